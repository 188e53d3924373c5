"""The group of verbs ``package``: adapters as signed packages."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict

import typer

from gradloom.options import check_request
from gradloom.output import some

from ..app import app
from ..arguments import Json, usual_option
from ..output import print_json, say
from .cards import card_file

if TYPE_CHECKING:
    from gradloom.delivery.installed import InstalledRecord
    from gradloom.delivery.keys import KeyFile

__all__ = ["AveragedAdapters", "SignedPackage", "apply", "average", "keys", "sign", "verify"]

package = typer.Typer(name="package", no_args_is_help=True, help="Sign, check, apply and average adapters.")
app.add_typer(package)


class SignedPackage(TypedDict):
    """A package; ``result``: hash of the adapter that it makes.

    ``largest_error``: of rounding to ``bits``, in words of the board where the package is for one.
    """

    bytes: int
    bits: int
    parameters: int
    result: str
    largest_value: float
    largest_error: float


class AveragedAdapters(TypedDict):
    """An average of adapters; ``errors`` by tensor, ``norms`` and ``kept`` share by client."""

    output: str
    clients: int
    weights: list[float]
    exact: bool
    largest_error: float
    errors: dict[str, float]
    norms: dict[str, float]
    kept: dict[str, float]
    held_out: NotRequired[dict[str, float]]


def keys(
    output: Path | str,
    *,
    key: Path | str | None = None,
    version: int | None = None,
    trust: Sequence[Path | str] = (),
    revoke: Sequence[Path | str] = (),
) -> "KeyFile":
    """Makes a key pair, or with ``key`` signs a list of keys.

    A pair is a new secret key, and beside it its public key in ``.pub``. A list has trusted and revoked keys; ``key``
    is the root's, which signs it.
    """
    from gradloom.delivery.keys import make_keys, read_public, read_signer, write_keys
    from gradloom.delivery.package import key_list_package
    from gradloom.output import check_file

    if key is None:
        needless = {"version": version, "trust": list(trust) or None, "revoke": list(revoke) or None}
        check_request("without --key, which signs a list", needless=needless)
        return make_keys(output)
    check_request("with --key, whose list it is", needed={"version": version})
    assert version is not None
    check_file(output, inputs=(key, *trust, *revoke))
    root, gone = read_signer(key), [read_public(each) for each in revoke]
    if root.public in gone:
        raise ValueError("revoke: is the key that signs the list; make a new root key and trust it instead")
    payload = write_keys([read_public(each) for each in trust], gone)
    _write(output, made := key_list_package(payload, root, version=version))
    return {"bytes": len(made), "version": version, "trusted": len(trust), "revoked": len(revoke)}


def sign(
    adapter: Path | str,
    output: Path | str,
    *,
    parent: Path | str | None = None,
    base: Path | str | None = None,
    card: Path | str | None = None,
    key: Path | str,
    version: int,
    bits: int | None = None,
    least: int = 0,
    bound: float = 0.0,
) -> SignedPackage:
    """Writes an adapter in PEFT's format as a signed package.

    ``base`` is the packed base (a folder or a file); the adapter of a language model must fit it. With ``card`` in its
    place the package is for boards that have this card image of a fine-tune. ``parent`` is what the receiver has, and
    the package has the change from it: the folder of an :func:`apply`; with ``card`` the package that the board has
    installed. ``bits`` are those of a value, 8 unless given, of a change 4; ``least`` the lowest version that may be
    installed after it, ``bound`` the growth of the loss that an installation accepts.
    """
    asked = {"version": version, "bits": bits or (8 if parent is None else 4), "least": least, "bound": bound}
    return _make(adapter, output, base, key, card=card, parent=parent, **asked)


def verify(
    package: Path | str,
    *,
    trust: Path | str,
    keys: Path | str | None = None,
    base: Path | str | None = None,
    installed: Path | str | None = None,
) -> dict[str, object]:
    """What a package says of itself, after signature and hashes hold.

    ``trust`` is the root's public key, ``keys`` a signed list of further ones. Of ``base`` and ``installed``, the
    folder of an :func:`apply`, those that are given must be the ones that the package is for.
    """
    from gradloom.delivery.installed import check

    opened, _, _ = check(package, trust, keys, base, installed)
    return opened.manifest.told()


def apply(
    package: Path | str,
    output: Path | str,
    *,
    trust: Path | str,
    base: Path | str,
    keys: Path | str | None = None,
    parent: Path | str | None = None,
) -> "InstalledRecord":
    """Writes the adapter of a package in PEFT's format, with a record.

    A delta changes ``parent``, by default what is in ``output``. An earlier version there is replaced; the same or a
    later one is refused, as is all that :func:`verify` refuses.
    """
    from gradloom.delivery.installed import install_files

    return install_files(package, output, trust=trust, base=base, keys=keys, parent=parent)


def _make(
    adapter: Path | str,
    output: Path | str,
    base: Path | str | None,
    key: Path | str,
    *,
    card: Path | str | None,
    parent: Path | str | None = None,
    **asked: Any,
) -> SignedPackage:
    from gradloom.delivery.installed import read_content
    from gradloom.delivery.keys import read_signer
    from gradloom.delivery.package import base_hash, make_package
    from gradloom.models.adapters.language.learnt import check_learnt
    from gradloom.models.pack import weights_of
    from gradloom.output import check_file
    from gradloom.systems.text.base import check_base

    check_file(output, inputs=(adapter, base, key, card, parent))
    if (base is None) == (card is None):
        raise ValueError("base, card: give one of them: a packed base, or the card image of the boards")
    signer = read_signer(key)
    if card is not None:
        return _make_for_board(adapter, output, card, signer, parent, **asked)
    assert base is not None
    digest, content, before = base_hash(base), read_content(adapter), None if parent is None else read_content(parent)
    weights = weights_of(base)
    if weights is not None:
        check_learnt(Path(adapter), weights.model)
        check_base(Path(adapter), weights)
    made, result = make_package(content, signer, base=digest, parent=before, **asked)
    _write(output, made)
    largest = max(float(abs(array).max(initial=0)) for array in content.tensors.values())
    error = max(float(abs(result.tensors[name] - array).max(initial=0)) for name, array in content.tensors.items())
    return {
        "bytes": len(made),
        "bits": asked["bits"],
        "parameters": sum(array.size for array in content.tensors.values()),
        "result": result.hash.hex(),
        "largest_value": largest,
        "largest_error": error,
    }


def _make_for_board(
    adapter: Path | str, output: Path | str, card: Path | str, signer: Any, parent: Path | str | None, **asked: Any
) -> SignedPackage:
    import hashlib

    from gradloom.delivery.board import make_board_package, read_parent
    from gradloom.systems.text.card.words import read_board

    with card_file(card) as file:
        board = read_board(file)
    if asked["bound"] and not board.about.get("held_out"):
        raise ValueError("bound: the card has no held-out text; write it with gradloom card write --held-out FILE")
    words = board.of(adapter)
    before = None if parent is None else read_parent(parent, len(words))
    base = hashlib.sha256(board.block).digest()
    made, result = make_board_package(words, signer, base=base, parent=before, exact=board.exact, **asked)
    _write(output, made)
    size = abs(words[: board.exact].astype("int64"))
    error = abs(result[: board.exact].astype("int64") - words[: board.exact])
    return {
        "bytes": len(made),
        "bits": asked["bits"],
        "parameters": board.exact,
        "result": hashlib.sha256(result.astype("<i4").tobytes()).hexdigest(),
        "largest_value": int(size.max(initial=0)),
        "largest_error": int(error.max(initial=0)),
    }


def average(
    clients: Sequence[Path | str],
    output: Path | str,
    *,
    weights: Sequence[float] | str = (),
    rank: int | None = None,
    clip: float | None = None,
    start: Path | str | None = None,
    held_out: Path | str | None = None,
    model: Path | str | None = None,
) -> AveragedAdapters:
    """Writes the average of adapters in PEFT's format.

    What is averaged is the change of the base, B A; the result tells whether that is exact. ``weights`` are equal
    unless given, or ``samples``: as many as each client's metrics.json says that it learnt from. ``rank`` is the
    clients'. ``clip`` bounds the norm of a client's change from ``start``, the adapter that all began with, or else
    from the base: the result has ``norms`` and the ``kept`` share of each. ``held_out``: a file or folder that judges
    the average, in floating point; the result has its score. Data and model are as the first client's metrics.json
    tells; ``model``: another place of the model.
    """
    from gradloom.delivery.aggregate import average as averaged
    from gradloom.delivery.installed import read_content
    from gradloom.models.adapters.peft_files import write_peft
    from gradloom.output import check_folder, staged

    check_folder(output, verb="average")
    if held_out is None:
        check_request("without held_out, which it judges", needless={"model": model})
    elif not Path(held_out).exists():
        raise ValueError(f"held_out={held_out}: no such file or folder")
    if isinstance(weights, str):
        if weights != "samples":
            raise ValueError(f"weights={weights}: must be numbers, or samples")
        weights = [_samples(Path(each)) for each in clients]
    if len({str(each) for each in clients}) != len(clients):
        raise ValueError("clients: one of them is named twice")
    made = averaged(
        {str(each): read_content(each) for each in clients},
        weights=weights,
        rank=rank,
        clip=clip,
        start=None if start is None else read_content(start),
    )
    told: AveragedAdapters = {
        "output": str(output),
        "clients": len(clients),
        "weights": list(weights),
        "exact": made.exact,
        "largest_error": max(made.errors.values(), default=0.0),
        "errors": dict(made.errors),
        "norms": dict(made.norms),
        "kept": dict(made.kept),
    }
    with staged(output, verb="average") as stage:
        write_peft(stage, made.content.tensors, made.content.config)
        if held_out is not None:
            told["held_out"] = _judged(stage, Path(clients[0]), Path(held_out), model)
    return told


def _metrics(client: Path) -> Mapping[str, object]:
    """What a fine-tune's folder tells of it."""
    from gradloom.json_file import read_json

    try:
        found = read_json(client / "metrics.json")
    except (OSError, ValueError) as error:
        raise ValueError(f"{client}/metrics.json: is needed, of a fine-tune ({error})") from None
    return found if isinstance(found, dict) else {}


def _samples(client: Path) -> float:
    """Samples, or windows of text, that a fine-tune learnt from."""
    metrics = _metrics(client)
    count = metrics.get("samples", metrics.get("windows"))
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError(f"{client}/metrics.json: has neither samples nor windows; give numbers as weights")
    return count


def _judged(adapter: Path, run: Path, held_out: Path, model: Path | str | None) -> dict[str, float]:
    """Score of an adapter beside the model of a run, by what is held out."""
    from gradloom.preset import PRESETS

    metrics = _metrics(run)
    preset = PRESETS.get(str(metrics.get("preset")))
    if preset is None or not preset.workload.can("judge"):
        what = metrics.get("workload", metrics.get("preset"))
        raise ValueError(f"held_out={held_out}: must be left out, nothing judges adapters of {what}")
    score: dict[str, float] = preset.workload.function("judge")(preset, adapter, run, held_out, metrics, model)
    return score


def _write(output: Path | str, content: bytes) -> None:
    from gradloom.output import staged_file

    with staged_file(output) as file:
        file.write(content)


Output = Annotated[Path, typer.Option("-o", "--output", metavar="FILE.pkg", help="Output file.")]
Key = Annotated[Path, typer.Option(metavar="FILE", help="Secret key of gradloom package keys.")]
OfBase = Annotated[Path | None, typer.Option("--base", metavar="PACKED", help="The base: of gradloom pack, or a file.")]
OfCard = Annotated[Path | None, typer.Option("--card", metavar="CARD.img", help="Or the card image of the boards.")]
Version = Annotated[int, typer.Option(help="Version of the package: higher than all before it.")]
Least = Annotated[int, typer.Option(help="Lowest version that may be installed afterwards.")]
Bound = Annotated[
    float, typer.Option(help="Share by which the held-out loss may grow when a board installs it; 0: any.")
]
Trust = Annotated[Path, typer.Option(metavar="ROOT.pub", help="Public key that is trusted.")]
KeyList = Annotated[Path | None, typer.Option("--keys", metavar="KEYS.pkg", help="Signed list of further keys.")]


@package.command(
    "keys",
    epilog="Example: gradloom package keys -o root.key\n\n"
    "Example: gradloom package keys --key root.key --trust a.pub --revoke b.pub --version 2 -o keys.pkg",
)
def _keys_verb(
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="Secret key, FILE.pub is the public; or the list.")
    ],
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="Root key that signs a list.")] = None,
    version: Annotated[int | None, typer.Option(help="Version of the list: higher than all before it.")] = None,
    trust: Annotated[list[Path], typer.Option(metavar="A.pub", help="A key to trust; repeatable.")] = [],  # noqa: B006
    revoke: Annotated[list[Path], typer.Option(metavar="B.pub", help="A key to revoke; repeatable.")] = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Make a key pair, or sign a list of trusted and revoked keys."""
    result = keys(output, key=key, version=version, trust=trust, revoke=revoke)
    if key is None:
        text = f"{result['public']} is what receivers trust; keep {result['secret']} to yourself"
    else:
        text = f"{output}: {some(result['trusted'], 'key')} trusted, {result['revoked']} revoked"
    _say(result, as_json, text)


@package.command(
    "sign",
    epilog="Example: gradloom package sign run --base packed --key root.key --version 1 -o run.pkg\n\n"
    "Example: gradloom package sign run2 --parent installed --base packed --key root.key --version 2 -o change.pkg",
)
def _sign_verb(
    adapter: Annotated[Path, typer.Argument(metavar="ADAPTER_DIR", help="An adapter in PEFT's format.")],
    output: Output,
    key: Key,
    version: Version,
    parent: Annotated[
        Path | None,
        typer.Option(
            metavar="PARENT", help="What receivers have, to sign the change alone: of gradloom package apply."
        ),
    ] = None,
    base: OfBase = None,
    card: OfCard = None,
    bits: Annotated[
        int | None, usual_option(help="Bits of a value: 32, 8, 4, 3 or 2.", usual="8; of a change 4")
    ] = None,
    least: Least = 0,
    bound: Bound = 0.0,
    as_json: Json = False,
) -> None:
    """Sign an adapter, or the change from one to another, as a package."""
    result = sign(
        adapter,
        output,
        parent=parent,
        base=base,
        card=card,
        key=key,
        version=version,
        bits=bits,
        least=least,
        bound=bound,
    )
    _say(
        result,
        as_json,
        f"{output}: {result['bytes']:,} bytes signed, {result['parameters']:,} parameters, {result['bits']} bits a "
        f"{'value' if parent is None else 'difference'}; largest error {result['largest_error']:.3g} beside a largest "
        f"value of {result['largest_value']:.3g}",
    )


@package.command(
    "apply",
    epilog="Example: gradloom package apply run.pkg --trust root.key.pub --base packed -o installed\n\n"
    "Example: gradloom package apply run.pkg --trust root.key.pub --check",
)
def _apply_verb(
    file: Annotated[Path, typer.Argument(metavar="FILE.pkg", help="A package.")],
    trust: Trust,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="DIR", help="Output folder.")] = None,
    base: OfBase = None,
    key_list: KeyList = None,
    parent: Annotated[
        Path | None, typer.Option(metavar="DIR", help="What a change is of. Default: what is in the output folder.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Check the package and write nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Check a package and write its adapter in PEFT's format.

    Signature, hashes, version, base and parent are checked.
    """
    if check:
        check_request("with --check, which writes nothing", needless={"output": output})
        result = verify(file, trust=trust, keys=key_list, base=base, installed=parent)
        _say(
            result,
            as_json,
            f"{file} holds: {result['kind']}, version {result['version']}, {result['payload_bytes']:,} bytes of "
            f"payload, key {str(result['key'])[:16]}",
        )
        return
    check_request("unless --check is", needed={"output": output, "base": base})
    assert output is not None and base is not None
    record = apply(file, output, trust=trust, base=base, keys=key_list, parent=parent)
    _say(record, as_json, f"version {record['version']} is in {output}")


@package.command("average", epilog="Example: gradloom package average client1 client2 client3 -o average")
def _average_verb(
    clients: Annotated[list[Path], typer.Argument(metavar="CLIENT_DIR...", help="Adapters in PEFT's format.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Output folder.")],
    weights: Annotated[
        str | None,
        typer.Option(metavar="W,W,...", help="Weight of each client; or samples, of its metrics.json. Default: equal."),
    ] = None,
    rank: Annotated[int | None, typer.Option(help="Rank of the average. Default: that of a client.")] = None,
    clip: Annotated[
        float | None, typer.Option(metavar="NORM", help="Bound of the norm of a client's change. Default: none.")
    ] = None,
    start: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where changes begin, with --clip. Default: the base.")
    ] = None,
    held_out: Annotated[
        Path | None, typer.Option("--held-out", metavar="FILE", help="File or folder that judges the average.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(metavar="M", help="Model of the clients. Default: the one that they name.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Average the adapters of several clients."""
    result = average(
        clients,
        output,
        weights=weights if weights == "samples" else _weights(weights),
        rank=rank,
        clip=clip,
        start=start,
        held_out=held_out,
        model=model,
    )
    if as_json:
        print_json(result)
        return
    how = (
        "exact"
        if result["exact"]
        else f"by singular values: at most {result['largest_error']:.2%} of a linear's change is left out"
    )
    cut = sum(each < 1 for each in result["kept"].values())
    how += f"; {some(cut, 'change')} clipped" if cut else ""
    how += f"; held-out loss {result['held_out']['loss']:.4f}" if "held_out" in result else ""
    say(f"{output}: average of {result['clients']} clients, {how}")


def _weights(text: str | None) -> list[float]:
    try:
        return [float(word) for word in text.split(",")] if text else []
    except ValueError:
        raise ValueError(f"weights={text}: must be numbers with commas between them") from None


def _say(result: Mapping[str, Any], as_json: bool, text: str) -> None:
    if as_json:
        print_json(result)
    else:
        say(text)
