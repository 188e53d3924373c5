"""Broken variants of units: the same source with one place changed."""
import inspect
import sys
import types

__all__ = ["mutant"]


def mutant(unit, old, new):
    """Class ``unit`` as it would be if its file said ``new`` where it says ``old``, which it must say once."""
    module = sys.modules[unit.__module__]
    text = inspect.getsource(module)
    if text.count(old) != 1:
        raise ValueError(f"{module.__name__}: {old!r} stands there {text.count(old)} times")
    changed = types.ModuleType(module.__name__)
    changed.__package__, changed.__file__ = module.__package__, module.__file__
    exec(compile(text.replace(old, new), module.__file__, "exec"), changed.__dict__)
    return getattr(changed, unit.__name__)
