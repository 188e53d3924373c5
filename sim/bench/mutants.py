"""Broken variants of units: the same source with one line changed.

A unit's file says in a comment above a line what a mutant has in its place, and the mutant's name::

    # mutant never-full: m.d.comb += self.ready.eq(1)
    m.d.comb += self.ready.eq(level < depth)
"""

import inspect
import re
import sys
import types

__all__ = ["mutant", "mutants"]

_MARK = re.compile(r"\s*# mutant ([\w-]+):(.*)")


def mutants(text):
    """Changed lines of a file's text by the mutant's name.

    The value is ``(number of the line that changes, from 0, the replacement)``.

    Several comments may stand above a line. Without text after the name the line goes.
    """
    lines, found = text.splitlines(), {}
    for number, line in enumerate(lines):
        if not (mark := _MARK.fullmatch(line)):
            continue
        name, new = mark[1], mark[2].strip()
        if name in found:
            raise ValueError(f"mutant {name}: stands there twice")
        while _MARK.fullmatch(lines[number]):
            number += 1
        old = lines[number]
        found[name] = number, old[: len(old) - len(old.lstrip())] + new if new else ""
        if found[name][1] == old:
            raise ValueError(f"mutant {name}: changes nothing")
    return found


def mutant(unit, name):
    """Class ``unit`` as it is with the mutant ``name`` of its file."""
    module = sys.modules[unit.__module__]
    text = inspect.getsource(module)
    known = mutants(text)
    if name not in known:
        raise ValueError(f"{module.__name__}: has no mutant {name}, but {', '.join(known) or 'none'}")
    lines = text.splitlines()
    number, new = known[name]
    lines[number] = new
    changed = types.ModuleType(module.__name__)
    changed.__package__, changed.__file__ = module.__package__, module.__file__
    exec(compile("\n".join(lines), module.__file__, "exec"), changed.__dict__)
    return getattr(changed, unit.__name__)
