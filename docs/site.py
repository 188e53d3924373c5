"""Parts of the site that are generated while MkDocs builds it.

Code replaces the marks ``<!-- made by make docs: NAME -->``. The file of an example replaces a line that is its path in
backticks.

They are not kept in the pages, so they cannot be stale. MkDocs calls :func:`on_page_markdown`.
"""

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_MARK = re.compile(r"<!-- made by make docs: (\w+) -->")
_FILE = re.compile(r"^`(examples/[\w/.]+)`$", re.MULTILINE)
_ROOT = Path(__file__).parents[1]


def on_page_markdown(markdown: str, **_: Any) -> str:
    """A page as MkDocs' Markdown wants it, with its generated parts."""
    made = _MARK.sub(lambda found: "\n".join(PARTS[found[1]]()), markdown)
    return _FILE.sub(lambda found: _shown(_ROOT / found[1]), "\n".join(_spaced(made.splitlines())))


def _shown(path: Path) -> str:
    """A file as a block of code under its name."""
    language = {".py": "python", ".toml": "toml"}[path.suffix]
    return f'```{language} title="{path.relative_to(_ROOT)}"\n{path.read_text(encoding="utf-8")}```'


def _spaced(lines: list[str]) -> Iterator[str]:
    """Lists and tables in MkDocs' form, from GitHub's form.

    MkDocs needs an empty line before them and four spaces within items.
    """
    fence, before = False, ""
    for line in lines:
        if line.lstrip().startswith("```"):
            fence = not fence
        elif not fence:
            kind = re.match(r"(?: {2,3})?(- |\d+\. |\|)", line)
            if kind:
                if before.strip() and not re.match(r"\s*(- |\d+\. )|\s", before) and before[:1] != kind[1][:1]:
                    yield ""
                if line.startswith("  "):
                    line = "    " + line.lstrip()
        yield line
        before = line


def _cell(text: object) -> str:
    return " ".join(str(text).split()).replace("|", r"\|").replace("<", "&lt;")


def _prose(text: str | None) -> str:
    """A docstring as Markdown: roles and double backticks are code."""
    return re.sub(r"``(.+?)``", r"`\1`", re.sub(r":\w+:`~?([^`]+)`", r"`\1`", inspect.cleandoc(text or "")))


def _sections(text: str | None) -> Iterator[str]:
    """A docstring with numpydoc's sections as headed lists.

    An entry is its first line, and what is indented below it; words without an entry stay a paragraph.
    """
    lines = _prose(text).splitlines()
    at, inside = 0, False
    while at < len(lines):
        line = lines[at]
        if at + 1 < len(lines) and line and re.fullmatch(r"-{3,}", lines[at + 1]):
            yield from (f"**{line}**", "")
            inside, at = True, at + 2
            continue
        entry = inside and line[:1].strip() and (" : " in line or lines[at + 1 : at + 2] and lines[at + 1][:1] == " ")
        name, colon, rest = line.partition(" : ")
        yield f"- `{name}`{colon}{rest}  " if entry else line
        at += 1


def command_line() -> Iterator[str]:
    """Every verb: its purpose, its options for any model, an example."""
    import typer

    from gradloom.cli import faces
    from gradloom.cli.main import app

    for words, _ in _verbs(typer.main.get_command(app)):
        faces.take([*words, "--help"])
    for words, verb in _verbs(typer.main.get_command(app)):
        yield from (f"### {' '.join(words)}", "", _prose(verb.help), "")
        arguments = [each for each in verb.params if each.name != "help"]
        if arguments:
            yield from ("| argument or option | purpose | default |", "| --- | --- | --- |")
        for each in arguments:
            option = each.param_type_name == "option"
            names = [*each.opts, *each.secondary_opts] if option else [each.metavar or each.name.upper()]
            shown = getattr(each, "show_default", False)
            default = shown if isinstance(shown, str) else each.default if shown and each.default else ""
            default = getattr(default, "value", default)
            spelt = ", ".join(f"`{one}`" for one in names)
            help_text = _cell(getattr(each, "help", None) or "")
            yield f"| {spelt} | {help_text} | {_cell(default) if not callable(default) else ''} |"
        yield ""
        for line in (verb.epilog or "").split("\n\n"):
            if line.startswith("Example: "):
                yield from ("```console", f"$ {line.removeprefix('Example: ')}", "```", "")


def _verbs(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The verbs of a group and of the groups in it, by their words."""
    for name, verb in group.commands.items():
        if hasattr(verb, "commands"):
            yield from _verbs(verb, (*words, name))
        else:
            yield (*words, name), verb


def python_api() -> Iterator[str]:
    """The functions of the package, and the driver of a board."""
    import gradloom
    from gradloom.firmware.device.host import Accelerator

    for name in gradloom.__all__:
        found = getattr(gradloom, name)
        if inspect.isfunction(found):
            yield from _function(f"gradloom.{name}", found, "###")
    yield from ("### gradloom.firmware.device.host.Accelerator", "", *_sections(Accelerator.__doc__), "")
    for name, found in vars(Accelerator).items():
        if inspect.isfunction(found) and not name.startswith("_"):
            yield from _function(name, found, "####")


def _function(name: str, found: Any, heading: str) -> Iterator[str]:
    arguments = []
    for each in inspect.signature(found).parameters.values():
        default = "" if each.default is inspect.Parameter.empty else f" = {each.default!r}"
        star = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        if each.kind == each.KEYWORD_ONLY and "*" not in "".join(arguments):
            arguments.append("*")
        arguments.append(f"{star}{each.name}{default}")
    yield from (f"{heading} {name}", "", "```python", f"{name.split('.')[-1]}({', '.join(arguments)})", "```", "")
    yield from (*_sections(found.__doc__), "")


def instructions() -> Iterator[str]:
    """Opcodes and operands of every engine."""
    from gradloom.rtl.machines.diffusion import DIFFUSION
    from gradloom.rtl.machines.images import IMAGES
    from gradloom.rtl.machines.language import LANGUAGE
    from gradloom.rtl.machines.recurrent import RECURRENT
    from gradloom.rtl.shell.engines import CONTROL, LOAD, STORE

    for title, engines in (
        ("Shell of every machine", (CONTROL, LOAD, STORE)),
        ("Image machine", IMAGES.own),
        ("Language machine", LANGUAGE.own),
        ("Recurrent machine", RECURRENT.own),
        ("Diffusion machine", DIFFUSION.own[:-1]),
    ):
        yield from (f"## {title}", "")
        for engine in engines:
            spec = engine.spec
            yield from (
                f"### {spec.name}",
                "",
                f"Engine {int(engine)}. Its cycles count as: {', '.join(spec.phases)}.",
                "",
                "| opcode | name | effect |",
                "| --- | --- | --- |",
            )
            source = inspect.getsource(spec.opcodes)
            for opcode in spec.opcodes:
                said = re.search(rf"^ +{opcode.name} *=.*?#: *(.*)$", source, re.MULTILINE)
                yield f"| {opcode.value} | `{opcode.name}` | {_cell(_prose(said[1] if said else ''))} |"
            layouts: dict[int, tuple[Any, list[str]]] = {}
            for opcode in spec.opcodes:
                layout = spec.operands.get(opcode, spec.default)
                layouts.setdefault(id(layout), (layout, []))[1].append(opcode.name)
            for layout, names in layouts.values():
                yield from ("", f"**Operands of {', '.join(names)}.** {_comment(layout)}", *_fields(layout))
            for direction, ports in (("load", engine.loads), ("store", engine.stores)):
                for port in ports:
                    yield from (
                        "",
                        f"**{direction.capitalize()} port `{port}`, number {int(port)}.** "
                        f"{port.port.doc[:1].upper()}{port.port.doc[1:]}.",
                        *_fields(port.port.arg),
                    )
            yield ""


def _fields(layout: Any) -> Iterator[str]:
    """A table of a layout's fields that are in use; nothing without such."""
    said = operands(layout)
    if said:
        yield from ("", "| bits | field | meaning |", "| --- | --- | --- |")
    for name, text in said.items():
        field = layout[name]
        last = field.offset + field.width - 1
        bits = str(last) if field.width == 1 else f"{last}:{field.offset}"
        yield f"| {bits} | `{name}` | {_cell(_prose(text))} |"


def operands(layout: Any) -> dict[str, str]:
    """The comment behind each field of a layout, by name.

    Reserved fields are left out.
    """
    source = next((source for _, source in _definitions(layout)), "")
    return {
        name: (found[1] if (found := re.search(rf'^ +"{name}": .*?#: *(.*)$', source, re.MULTILINE)) else "")
        for name, _ in layout
        if not str(name).startswith("_")
    }


def _comment(value: Any, module: Any = None) -> str:
    """The comment in front of a constant.

    It is in the module that defines it: the one given, or a loaded one.
    """
    for comment, _ in _definitions(value, module):
        return _prose(" ".join(line.removeprefix("#:").strip() for line in comment.splitlines()))
    return ""


def _definitions(value: Any, module: Any = None) -> Iterator[tuple[str, str]]:
    """Comment and source of a commented constant.

    There is one pair for each module that defines it.
    """
    loaded = [each for name, each in sys.modules.items() if name.startswith("gradloom.rtl")]
    for each in [module] if module else loaded:
        for name in [name for name, found in vars(each).items() if found is value]:
            found = re.search(rf"((?:^#:.*\n)+)({name} =.*\n(?:(?![#\w]).*\n)*)", inspect.getsource(each), re.MULTILINE)
            if found:
                yield found[1], found[2]


def formats() -> Iterator[str]:
    """The fixed-point formats that modules name.

    Each has the comment in front of it.
    """
    from gradloom.rtl.formats.fixed import Fixed

    for title, name in (
        ("Image machine", "gradloom.rtl.formats.images"),
        ("Linears", "gradloom.rtl.formats.weights.linear"),
        ("Vector engine", "gradloom.rtl.formats.vector"),
    ):
        module = importlib.import_module(name)
        yield from (
            f"## {title}",
            "",
            "| name | use | bits | fraction bits | smallest | largest | step | C |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
        )
        for constant, each in vars(module).items():
            if isinstance(each, Fixed):
                yield (
                    f"| `{constant}` | {_cell(_comment(each, module))} | {each.width} | {each.frac} | "
                    f"{each.lo * each.step:.7g} | {each.hi * each.step:.7g} | {each.step:.7g} | `{each.c_type}` |"
                )
        yield ""


def components() -> Iterator[str]:
    """Units and engines: import, parameters, ports, latency."""
    from gradloom.preset import PRESETS
    from gradloom.rtl.catalog import UNITS
    from gradloom.rtl.machines.diffusion import DIFFUSION
    from gradloom.rtl.machines.images import IMAGES
    from gradloom.rtl.machines.language import LANGUAGE
    from gradloom.rtl.machines.recurrent import RECURRENT

    yield from ("## Units", "", "`gradloom generate NAME` makes the Verilog of each.", "")
    for unit in UNITS.values():
        yield from _component(unit.name, unit.summary, unit.build())
    yield from (
        "## Engines",
        "",
        "An engine is made from its specification and a machine's configuration: `SPEC.unit(SPEC, config)`. "
        "Ports have the name of the memory port that they serve.",
        "",
    )
    for engines, preset in (
        (IMAGES.own, "instantft-kv260"),
        (LANGUAGE.own, "edge-qlora-genesys2"),
        (RECURRENT.own, "lstm-zcu104"),
        (DIFFUSION.own[:-1], "cdm-qta-kv260"),
    ):
        for engine in engines:
            made = engine.spec.unit(engine.spec, PRESETS[preset].config)
            made._MustUse__used = True  # Made to be looked at.
            yield from _component(f"{engine.name} engine", f"as in {preset}", made)


def _component(name: str, summary: str, made: Any) -> Iterator[str]:
    found = type(made)
    yield from (f"### {name}", "", f"{summary[:1].upper()}{summary[1:]}.", "")
    yield from ("```python", f"from {found.__module__} import {found.__name__}", "```", "")
    arguments = ", ".join(str(each) for each in list(inspect.signature(found).parameters.values()))
    latency = getattr(made, "latency", None)
    yield from (
        f"- made by `{found.__name__}({arguments})`",
        f"- latency {latency}" if isinstance(latency, int) else "- latency depends on the command; the forecast has it",
        "",
        "| port | direction | shape |",
        "| --- | --- | --- |",
    )
    for port, member in made.signature.members.items():
        shape = member.shape if member.is_port else member.signature
        shown = type(shape).__name__ if " object at " in repr(shape) else repr(shape)
        copies = f" x {member.dimensions}" if member.dimensions else ""
        yield f"| `{port}` | {member.flow.name.lower()} | `{_cell(shown)}`{copies} |"
    yield from ("", *_sections(found.__doc__), "")


def _tables() -> dict[str, Callable[[], Iterator[str]]]:
    """The tables of ``tables.py``; a hook has no package to import."""
    spec = importlib.util.spec_from_file_location("docs_tables", Path(__file__).with_name("tables.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.PARTS)


PARTS = {
    "command_line": command_line,
    "python_api": python_api,
    "instructions": instructions,
    "formats": formats,
    "components": components,
    **_tables(),
}
