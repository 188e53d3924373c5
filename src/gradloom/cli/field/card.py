"""The group of verbs ``card``: a board's memory card."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import typer

from gradloom.options import check_request
from gradloom.output import some
from gradloom.systems.asked import asked_for
from gradloom.systems.request import keyworded, tuned

from ..app import app
from ..arguments import Baud, Json
from ..faces import FOLDER, face, more
from ..output import print_json, progress_bar, say, say_card
from .cards import Tell, any_card, name_of
from .installing import install, rollback

if TYPE_CHECKING:
    from gradloom.firmware.chip.card import CardSection
    from gradloom.systems.text.card.collected import CardResults

__all__ = ["LoadedCard", "collect", "install", "load", "rollback", "write"]

card = typer.Typer(name="card", no_args_is_help=True, help="Write, read and update a board's memory card.")
app.add_typer(card)


class LoadedCard(TypedDict):
    """The image of a card with weights and adapters, and where memory that they take ends."""

    model: str
    bytes: int
    memory_end: int
    sections: "list[CardSection]"


def load(
    source: Path | str,
    output: Path | str,
    *,
    adapters: Sequence[Path | str] = (),
    offset: int = 1 << 20,
    progress: Tell = None,
) -> "LoadedCard":
    """Writes the image of a card with weights and adapters alone.

    It has the output of :func:`gradloom.pack`, and adapters as PEFT has them, for the memory of a system on chip from
    ``offset`` on. Returns the place of each section.
    """
    from gradloom import boards
    from gradloom.firmware.chip import card
    from gradloom.models.adapters.language.gguf_lora import load_linears
    from gradloom.models.adapters.words import pack_adapters
    from gradloom.models.pack import PackedModel
    from gradloom.output import check_file, staged_file
    from gradloom.systems.text.base import check_base

    check_file(output, inputs=(source, *adapters))
    board = boards.find("genesys2")
    if offset < 4096 or offset % 4096 or offset >= board.memory_bytes:
        raise ValueError(f"offset={offset}: must be a multiple of 4096 below {board.memory_bytes}, at least 4096")
    if len(adapters) >= card.MAX_SECTIONS:
        raise ValueError(f"adapter: at most {card.MAX_SECTIONS - 1}, not {len(adapters)}")
    packed = PackedModel(source)
    for each in adapters:
        check_base(Path(each), packed)
    blocks = [pack_adapters(packed.model, load_linears(each, packed.model)) for each in adapters]
    sections = [card.place("weights", [packed.weights], offset)]
    for number, block in enumerate(blocks):
        sections.append(card.place(f"adapter {number}", [block], sections[-1].end, kind=card.ADAPTER))
    with staged_file(output) as file:
        packed.check(progress)
        rows = card.write_card(file, sections, memory_bytes=board.memory_bytes)
        size = file.seek(0, 2)
    return {"model": packed.model.name, "bytes": size, "memory_end": sections[-1].end, "sections": rows}


@keyworded("card")
def write(
    model: str, output: Path | str, *, board: str | None = None, progress: Tell = None, **options: Any
) -> dict[str, Any]:
    """Writes the image of a card with which a board fine-tunes by itself.

    ``output`` gets ``card.img`` and ``job.json``. ``options``: see :class:`gradloom.CardOptions` and
    :class:`gradloom.InstantCardOptions`.
    """
    asked = asked_for(model, board=board, method=options.get("method"), verb="card")
    return tuned(asked, output=output, verb="card", progress=progress, **options)


def collect(
    output: Path | str,
    *,
    card: Path | str | None = None,
    port: str | None = None,
    host: str | None = None,
    baud: int | None = None,
    tell: Tell = None,
) -> "CardResults":
    """Writes what a board has learnt.

    The output has the adapter in PEFT's format, ``optimizer.safetensors`` and ``log.json``. ``card`` is the memory
    card's device, or a copy of it in a file: on this machine, or on ``host`` (``USER@HOST``, which answers ssh). With
    ``port`` the board itself gives its card's blocks by its UART, at ``baud`` bits a second (115200).

    ``tell`` is told blocks that have arrived, of so many, and what is done.
    """
    from gradloom.output import check_folder, staged
    from gradloom.systems.text.card.collected import collected_files, read_collected

    check_folder(output, verb="collect")
    named = name_of(card, port)
    if host is not None and card is None:
        raise ValueError("host: needs card, the device of the card's reader there, or an image")
    with any_card(card, port, baud=baud, host=host, tell=tell) as file:
        try:
            found = read_collected(file)
        except (OSError, ValueError) as error:
            raise ValueError(f"{named}: {_why(error)}") from None
    with staged(output, verb="collect") as stage:
        log = collected_files(found, stage)
    return {"output": str(output), "model": found.about["model"], **log}


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror or error}: name the card's device or its image"
    return str(error)


Card = Annotated[Path | None, typer.Option(metavar="CARD", help="The board's memory card: its device, or its image.")]
Port = Annotated[str | None, typer.Option(metavar="TTY", help="Serial port of the board, with its card in it.")]


@card.command(
    "write",
    epilog="Example: gradloom card write smollm2-135m --data mine.txt --steps 100 -o run\n\n"
    f"Example: gradloom card write packed --adapter run -o card.img\n\n{more('card', 'write')}",
)
@face("card", "write", verb="card", output=(FOLDER, Path("card")))
def _write_verb(model_name: str, *, board: str | None, output: Path, as_json: bool, **options: Any) -> None:
    """Write the image of a card with which a board works by itself.

    It has a whole fine-tune.

    Of a folder of gradloom pack it has weights and an adapter alone, and the output is a file.
    """
    packed = (Path(model_name) / "manifest.json").is_file()
    if packed:
        adapter = options.pop("adapter")
        check_request(f"with {model_name}, packed weights without a fine-tune", needless={"board": board, **options})
    with progress_bar(as_json) as progress:
        if packed:
            result: Mapping[str, Any] = load(
                model_name, output, adapters=[] if adapter is None else [adapter], progress=progress
            )
        else:
            result = write(model_name, output, board=board, progress=progress, **options)
    if as_json:
        print_json(result)
    elif packed:
        say_card(result["sections"], output, result["model"], result["bytes"])
    else:
        what = f"{result['model']}, {some(result['steps'], 'step')} of {some(result['tokens'], 'token')}"
        say_card(result["sections"], output / "card.img", what, result["card_bytes"])
        say(
            f"the board needs {result['memory_bytes']:,} bytes of memory. Offsets and fraction bits are in "
            f"{output / 'job.json'}"
        )


@card.command("collect", epilog="Example: gradloom card collect --port /dev/ttyUSB0 -o adapter")
def _collect_verb(
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Output folder.")],
    card: Card = None,
    port: Port = None,
    host: Annotated[
        str | None, typer.Option(metavar="USER@HOST", help="Machine that has the card, for ssh. Default: this one.")
    ] = None,
    baud: Baud = None,
    as_json: Json = False,
) -> None:
    """Bring what a board has learnt off its memory card."""
    with progress_bar(as_json) as tell:
        result = collect(output, card=card, port=port, host=host, baud=baud, tell=tell)
    if as_json:
        print_json(result)
        return
    last = next((loss for loss in reversed(result["loss"]) if loss is not None), None)
    loss = "" if last is None else f", last loss {last:.4f} nats a token"
    say(
        f"{output}: {result['model']} after {result['steps']:,} of {some(result['of'], 'step')}, "
        f"{result['parameters']:,} parameters{loss}"
    )


@card.command("install", epilog="Example: gradloom card install run.pkg --port /dev/ttyUSB0")
def _install_verb(
    package: Annotated[Path, typer.Argument(metavar="FILE.pkg", help="A package of gradloom package sign --card.")],
    card: Card = None,
    port: Port = None,
    baud: Baud = None,
    as_json: Json = False,
) -> None:
    """Put a signed package onto a board's memory card."""
    with progress_bar(as_json) as tell:
        result = install(package, card=card, port=port, baud=baud, tell=tell)
    if as_json:
        print_json(result)
        return
    if result["said"]:
        say(f"{result['card']}: {result['said']}")
        return
    say(
        f"{result['card']}: version {result['version']} waits in the inbox, base {result['base'][:16]}, installed is "
        f"{'version ' + str(result['installed']) if result['installed'] else 'none'}; the board checks it at its start"
    )


@card.command("rollback", epilog="Example: gradloom card rollback --card /dev/sdb")
def _rollback_verb(card: Card = None, port: Port = None, baud: Baud = None, as_json: Json = False) -> None:
    """Bring back the adapter before the installed one."""
    result = rollback(card=card, port=port, baud=baud)
    if as_json:
        print_json(result)
        return
    if result["said"]:
        say(f"{result['card']}: {result['said']}")
        return
    say(f"{result['card']}: the board brings back version {result['version']} for {result['installed']} at its start")
