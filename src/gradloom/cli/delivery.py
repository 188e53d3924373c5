"""Verbs for adapters as signed packages."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gradloom.words import some

from .app import app
from .arguments import Json
from .cards import card_file
from .output import print_json, say

__all__ = ["apply", "delta", "keygen", "keys", "sign", "verify"]


def keygen(output: Path | str) -> dict[str, str]:
    """Writes a new secret key and, beside it, its public key in ``.pub``."""
    from gradloom.delivery.keys import make_keys

    return make_keys(output)


def keys(
    output: Path | str,
    *,
    key: Path | str,
    version: int,
    trust: Sequence[Path | str] = (),
    revoke: Sequence[Path | str] = (),
) -> dict[str, Any]:
    """Writes a list of trusted and revoked keys, signed by the root key."""
    from gradloom.delivery.keys import read_public, read_signer, write_keys
    from gradloom.delivery.package import key_list_package
    from gradloom.output import check_file

    check_file(output, inputs=(key, *trust, *revoke))
    root, gone = read_signer(key), [read_public(each) for each in revoke]
    if root.public in gone:
        raise ValueError("revoke: is the key that signs the list; make a new root key and trust it instead")
    payload = write_keys([read_public(each) for each in trust], gone)
    _write(output, package := key_list_package(payload, root, version=version))
    return {"bytes": len(package), "version": version, "trusted": len(trust), "revoked": len(revoke)}


def sign(
    adapter: Path | str,
    output: Path | str,
    *,
    base: Path | str | None = None,
    card: Path | str | None = None,
    key: Path | str,
    version: int,
    bits: int = 8,
    least: int = 0,
    bound: float = 0.0,
) -> dict[str, Any]:
    """Writes an adapter in PEFT's format as a signed package.

    ``base`` is the packed base (a folder or a file); the adapter of a language model must fit it. With ``card`` in its
    place the package is for boards that have this card image of a fine-tune. ``bits`` are those of a value; ``least``
    the lowest version that may be installed after it, ``bound`` the growth of the loss that an installation accepts.
    """
    return _make(adapter, output, base, key, card=card, version=version, bits=bits, least=least, bound=bound)


def delta(
    parent: Path | str,
    adapter: Path | str,
    output: Path | str,
    *,
    base: Path | str | None = None,
    card: Path | str | None = None,
    key: Path | str,
    version: int,
    bits: int = 4,
    least: int = 0,
    bound: float = 0.0,
) -> dict[str, Any]:
    """Writes the change from one adapter to another as a signed package.

    ``parent`` is what the receiver has: the folder of an :func:`apply`; with ``card`` the package that the board has
    installed. ``bits`` are those of a difference.
    """
    asked = {"version": version, "bits": bits, "least": least, "bound": bound}
    return _make(adapter, output, base, key, card=card, parent=parent, **asked)


def verify(
    package: Path | str,
    *,
    trust: Path | str,
    keys: Path | str | None = None,
    base: Path | str | None = None,
    installed: Path | str | None = None,
) -> dict[str, Any]:
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
) -> dict[str, Any]:
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
) -> dict[str, Any]:
    from gradloom.delivery.installed import read_content
    from gradloom.delivery.keys import read_signer
    from gradloom.delivery.package import base_hash, make_package
    from gradloom.models.adapters.learnt import check_learnt
    from gradloom.models.pack import model_of
    from gradloom.output import check_file

    check_file(output, inputs=(adapter, base, key, card, parent))
    if (base is None) == (card is None):
        raise ValueError("base, card: give one of them: a packed base, or the card image of the boards")
    signer = read_signer(key)
    if card is not None:
        return _make_for_board(adapter, output, card, signer, parent, **asked)
    assert base is not None
    digest, content, before = base_hash(base), read_content(adapter), None if parent is None else read_content(parent)
    model = model_of(base)
    if model is not None:
        check_learnt(Path(adapter), model)
    package, result = make_package(content, signer, base=digest, parent=before, **asked)
    _write(output, package)
    largest = max(float(abs(array).max(initial=0)) for array in content.tensors.values())
    error = max(float(abs(result.tensors[name] - array).max(initial=0)) for name, array in content.tensors.items())
    return {
        "bytes": len(package),
        "parameters": sum(array.size for array in content.tensors.values()),
        "result": result.hash.hex(),
        "largest_value": largest,
        "largest_error": error,
    }


def _make_for_board(
    adapter: Path | str, output: Path | str, card: Path | str, signer: Any, parent: Path | str | None, **asked: Any
) -> dict[str, Any]:
    import hashlib

    from gradloom.delivery.board import make_board_package, read_parent
    from gradloom.systems.text.card.words import read_board

    with card_file(card) as file:
        board = read_board(file)
    if asked["bound"] and not board.about.get("held_out"):
        raise ValueError("bound: the card has no held-out text; write it with gradloom finetune --card --held-out FILE")
    words = board.of(adapter)
    before = None if parent is None else read_parent(parent, len(words))
    base = hashlib.sha256(board.block).digest()
    package, result = make_board_package(words, signer, base=base, parent=before, exact=board.exact, **asked)
    _write(output, package)
    size = abs(words[: board.exact].astype("int64"))
    error = abs(result[: board.exact].astype("int64") - words[: board.exact])
    return {
        "bytes": len(package),
        "parameters": board.exact,
        "result": hashlib.sha256(result.astype("<i4").tobytes()).hexdigest(),
        "largest_value": int(size.max(initial=0)),
        "largest_error": int(error.max(initial=0)),
    }


def _write(output: Path | str, content: bytes) -> None:
    from gradloom.output import staged_file

    with staged_file(output) as file:
        file.write(content)


Output = Annotated[Path, typer.Option("-o", "--output", metavar="FILE.pkg", help="Output file.")]
Key = Annotated[Path, typer.Option(metavar="FILE", help="Secret key of gradloom keygen.")]
Base = Annotated[Path, typer.Option(metavar="PACKED", help="The base: output folder of gradloom pack, or a file.")]
OfBase = Annotated[Path | None, typer.Option("--base", metavar="PACKED", help="The base: of gradloom pack, or a file.")]
OfCard = Annotated[Path | None, typer.Option("--card", metavar="CARD.img", help="Or the card image of the boards.")]
Version = Annotated[int, typer.Option(help="Version of the package: higher than all before it.")]
Least = Annotated[int, typer.Option(help="Lowest version that may be installed afterwards.")]
Bound = Annotated[
    float, typer.Option(help="Share by which the held-out loss may grow when a board installs it; 0: any.")
]
Trust = Annotated[Path, typer.Option(metavar="ROOT.pub", help="Public key that is trusted.")]
KeyList = Annotated[Path | None, typer.Option("--keys", metavar="KEYS.pkg", help="Signed list of further keys.")]


@app.command("keygen", epilog="Example: gradloom keygen -o root.key")
def _keygen_verb(
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Secret key; FILE.pub is the public.")],
    as_json: Json = False,
) -> None:
    """Make a key pair for signed adapters."""
    result = keygen(output)
    _say(result, as_json, f"{result['public']} is what receivers trust; keep {result['secret']} to yourself")


@app.command(
    "keys", epilog="Example: gradloom keys --key root.key --trust a.pub --revoke b.pub --version 2 -o keys.pkg"
)
def _keys_verb(
    output: Output,
    key: Key,
    version: Version,
    trust: Annotated[list[Path], typer.Option(metavar="A.pub", help="A key to trust; repeatable.")] = [],  # noqa: B006
    revoke: Annotated[list[Path], typer.Option(metavar="B.pub", help="A key to revoke; repeatable.")] = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Sign a list of trusted and revoked keys."""
    result = keys(output, key=key, version=version, trust=trust, revoke=revoke)
    _say(result, as_json, f"{output}: {some(result['trusted'], 'key')} trusted, {result['revoked']} revoked")


@app.command("sign", epilog="Example: gradloom sign run --base packed --key root.key --version 1 -o run.pkg")
def _sign_verb(
    adapter: Annotated[Path, typer.Argument(metavar="ADAPTER_DIR", help="An adapter in PEFT's format.")],
    output: Output,
    key: Key,
    version: Version,
    base: OfBase = None,
    card: OfCard = None,
    bits: Annotated[int, typer.Option(help="Bits of a value: 32, 8, 4, 3 or 2.")] = 8,
    least: Least = 0,
    bound: Bound = 0.0,
    as_json: Json = False,
) -> None:
    """Sign an adapter as a package for boards and other hosts."""
    result = sign(adapter, output, base=base, card=card, key=key, version=version, bits=bits, least=least, bound=bound)
    _say_size(result, as_json, output, f"{bits} bits a value")


@app.command("delta", epilog="Example: gradloom delta installed run2 --base packed --key root.key --version 2 -o d.pkg")
def _delta_verb(
    parent: Annotated[Path, typer.Argument(metavar="PARENT_DIR", help="What receivers have: a gradloom apply's.")],
    adapter: Annotated[Path, typer.Argument(metavar="ADAPTER_DIR", help="What they are to have, in PEFT's format.")],
    output: Output,
    key: Key,
    version: Version,
    base: OfBase = None,
    card: OfCard = None,
    bits: Annotated[int, typer.Option(help="Bits of a difference: 32, 8, 4, 3 or 2.")] = 4,
    least: Least = 0,
    bound: Bound = 0.0,
    as_json: Json = False,
) -> None:
    """Sign the change from one adapter to another."""
    result = delta(
        parent, adapter, output, base=base, card=card, key=key, version=version, bits=bits, least=least, bound=bound
    )
    _say_size(result, as_json, output, f"{bits} bits a difference")


@app.command("verify", epilog="Example: gradloom verify run.pkg --trust root.key.pub --base packed")
def _verify_verb(
    package: Annotated[Path, typer.Argument(metavar="FILE.pkg", help="A package.")],
    trust: Trust,
    key_list: KeyList = None,
    base: Annotated[Path | None, typer.Option(metavar="PACKED", help="The base it must be for.")] = None,
    installed: Annotated[Path | None, typer.Option(metavar="DIR", help="The adapter it must succeed.")] = None,
    as_json: Json = False,
) -> None:
    """Check a package's signature, hashes, version, base and parent."""
    result = verify(package, trust=trust, keys=key_list, base=base, installed=installed)
    _say(
        result,
        as_json,
        f"{package} holds: {result['kind']}, version {result['version']}, {result['payload_bytes']:,} bytes of payload"
        f", key {str(result['key'])[:16]}",
    )


@app.command("apply", epilog="Example: gradloom apply run.pkg --trust root.key.pub --base packed -o installed")
def _apply_verb(
    package: Annotated[Path, typer.Argument(metavar="FILE.pkg", help="A package.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Output folder.")],
    trust: Trust,
    base: Base,
    key_list: KeyList = None,
    parent: Annotated[
        Path | None, typer.Option(metavar="DIR", help="What a delta changes. Default: what is in the output folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a package and write its adapter in PEFT's format."""
    result = apply(package, output, trust=trust, base=base, keys=key_list, parent=parent)
    _say(result, as_json, f"version {result['version']} is in {output}")


def _say_size(result: dict[str, Any], as_json: bool, output: Path, how: str) -> None:
    _say(
        result,
        as_json,
        f"{output}: {result['bytes']:,} bytes signed, {result['parameters']:,} parameters, {how}; largest error "
        f"{result['largest_error']:.3g} beside a largest value of {result['largest_value']:.3g}",
    )


def _say(result: dict[str, Any], as_json: bool, text: str) -> None:
    if as_json:
        print_json(result)
    else:
        say(text)
