"""Broken variants of units: the same source with one line changed.

A unit's file says in a comment above a line what a mutant has in its place, and the mutant's name::

    # mutant never-full: m.d.comb += self.ready.eq(1)
    m.d.comb += self.ready.eq(level < depth)

So does the file of a part: a module whose functions the unit's file imports.
"""

import inspect
import re
import sys
import types

__all__ = ["holder", "mutant", "mutants"]

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


def holder(unit, name):
    """The module with the mutant ``name``: that of class ``unit``, or of a part of it."""
    module = sys.modules[unit.__module__]
    parts = {value.__module__: None for value in vars(module).values() if inspect.isfunction(value)}
    known = []
    for place in (module, *(sys.modules[part] for part in parts if part != module.__name__)):
        found = mutants(inspect.getsource(place))
        if name in found:
            return place
        known += found
    raise ValueError(f"{module.__name__}: has no mutant {name}, but {', '.join(known) or 'none'}")


def mutant(unit, name):
    """Class ``unit`` as it is with the mutant ``name`` of its file, or of a part's."""
    module, place = sys.modules[unit.__module__], holder(unit, name)
    number, new = mutants(inspect.getsource(place))[name]
    changed = _executed(place, {number: new})
    if place is module:
        return getattr(changed, unit.__name__)
    whole = _executed(module, {})
    for key, value in vars(whole).items():
        if getattr(value, "__module__", None) == place.__name__:
            setattr(whole, key, getattr(changed, value.__name__))
    return getattr(whole, unit.__name__)


def _executed(module, lines):
    """``module`` anew, with other text in the numbered ``lines``."""
    text = [lines.get(number, line) for number, line in enumerate(inspect.getsource(module).splitlines())]
    anew = types.ModuleType(module.__name__)
    anew.__package__, anew.__file__ = module.__package__, module.__file__
    exec(compile("\n".join(text), module.__file__, "exec"), anew.__dict__)
    return anew
