"""Single changes of sources, each of which some test should find.

Of Python by its syntax tree, so that hardware in Amaranth, planners and models are changed alike; of C and Verilog by
operators and constants outside comments, strings and directives. Texts, messages, annotations and documentation stay
as they are.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Change", "changes_of"]

_COMPARED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
}
_BINARY: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.FloorDiv: ("//", "*"),
}
#: Of C and Verilog, the longest first.
_OTHERS = {
    "<<": ">>",
    ">>": "<<",
    "==": "!=",
    "!=": "==",
    "<=": "<",
    ">=": ">",
    "&&": "||",
    "||": "&&",
    "<": "<=",
    ">": ">=",
    "+": "-",
    "-": "+",
    "&": "|",
    "|": "&",
}
_TOKENS = re.compile(
    r"""(?P<left>/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])+'|^[ \t]*[#`][^\n]*)"""
    r"""|->|\+\+|--|[-+*/%&|^]=|<<=|>>="""
    r"""|(?P<operator><<|>>|==|!=|<=|>=|&&|\|\||(?<=[\w)\]] )[-+<>&|](?= [\w(~!]))"""
    r"""|(?P<number>(?<![\w.'])\d+(?![\w.'x]))""",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Change:
    """``old`` at ``start`` of a file's text becomes ``new``."""

    path: Path
    line: int
    start: int
    old: str
    new: str
    kind: str

    def __str__(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.path.as_posix()}:{self.line} {self.kind}: {old[:60]} -> {new[:60]}"

    def made(self, text: str) -> str:
        """The file's text with the change."""
        assert text[self.start : self.start + len(self.old)] == self.old
        return text[: self.start] + self.new + text[self.start + len(self.old) :]


def changes_of(root: Path, path: Path) -> list[Change]:
    """All changes of a file, whose path is relative to ``root``, in the order of their places."""
    text = (root / path).read_text(encoding="utf-8")
    found = _of_python(path, text) if path.suffix == ".py" else _of_others(path, text)
    return sorted(set(found), key=lambda each: (each.start, each.kind, each.new))


def _of_others(path: Path, text: str) -> Iterator[Change]:
    for token in _TOKENS.finditer(text):
        old, start = token.group(), token.start()
        line = text.count("\n", 0, start) + 1
        if token["operator"] and not (path.suffix == ".v" and old == "<="):
            yield Change(path, line, start, old, _OTHERS[old], "operator")
        elif token["number"]:
            yield Change(path, line, start, old, str(int(old, 8 if old[0] == "0" else 10) + 1), "constant")


class _Places:
    """Where a syntax tree's nodes stand in a text; columns count bytes of UTF-8."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.splitlines(keepends=True)
        self.starts = [0]
        for each in self.lines:
            self.starts.append(self.starts[-1] + len(each))

    def at(self, line: int, column: int) -> int:
        held = self.lines[line - 1].encode()[:column].decode()
        return self.starts[line - 1] + len(held)

    def span(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def source(self, node: ast.expr) -> str:
        start, end = self.span(node)
        return self.text[start:end]


def _of_python(path: Path, text: str) -> Iterator[Change]:
    places, tree = _Places(text), ast.parse(text)

    def whole(node: ast.expr, new: str, kind: str) -> Change:
        start, end = places.span(node)
        return Change(path, node.lineno, start, text[start:end], new, kind)

    def between(left: ast.expr, right: ast.expr, old: str, new: str, kind: str) -> Iterator[Change]:
        first, last = places.span(left)[1], places.span(right)[0]
        found = text.find(old, first, last)
        # A comment between the operands may have the operator, too.
        if found >= 0 and "#" not in text[first:last]:
            yield Change(path, text.count("\n", 0, found) + 1, found, old, new, kind)

    for node in _reached(tree):
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in _COMPARED:
                yield from between(left, right, *_COMPARED[type(operator)], "comparison")
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _BINARY:
                yield from between(left, right, *_BINARY[type(operator)], "operator")
                if isinstance(operator, ast.BitAnd):
                    yield whole(node, f"({places.source(left)})", "dropped term")
            case ast.BoolOp(op=operator, values=[first, second, *_]):
                old, new = ("and", "or") if isinstance(operator, ast.And) else ("or", "and")
                yield from between(first, second, old, new, "operator")
            case ast.UnaryOp(op=ast.Invert() | ast.Not(), operand=operand):
                yield whole(node, f"({places.source(operand)})", "dropped negation")
            case ast.Constant(value=bool(value)):
                yield whole(node, str(not value), "constant")
            case ast.Constant(value=int(value)):
                yield whole(node, str(value + 1), "constant")
            case ast.Call(func=ast.Name(id="Mux"), args=[chosen, first, second]):
                one, other = places.source(first), places.source(second)
                yield whole(node, f"Mux({places.source(chosen)}, {other}, {one})", "swapped arms")
            case ast.Call(func=ast.Attribute(attr="If" | "Elif"), args=[chosen]):
                yield whole(chosen, "1", "dropped condition")
            case ast.Call(func=ast.Name(id="Signal"), keywords=keywords):
                for each in keywords:
                    if each.arg == "init" and not isinstance(each.value, ast.Constant):
                        yield whole(each.value, "0", "dropped reset")


def _reached(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes that do something when a program runs: no annotations, texts, messages, nor what a module exports.

    Nor whether a module is run as a program.
    """
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name) and node.left.id == "__name__":
        return
    if isinstance(node, ast.Assign) and any(
        isinstance(each, ast.Name) and each.id == "__all__" for each in node.targets
    ):
        return
    yield node
    left_out = {"annotation", "returns", "decorator_list", "type_params"}
    for name, value in ast.iter_fields(node):
        if name in left_out:
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST):
                yield from _reached(each)
