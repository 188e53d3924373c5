"""Base class of workloads: options, and where functions are."""

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from .options import Options

__all__ = ["Progress", "Workload", "silent"]

#: ``progress(done, total, text)``; a ``total`` of 0: nobody knows.
Progress = Callable[[int, int, str], None]


def silent(done: int, total: int, text: str) -> None:
    """Progress that nobody hears."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """A kind of fine-tune.

    Fields are the usual values of options that differ between presets.

    A kind joins by a subclass and a preset that has an instance of it: the command line, the Python functions and the
    driver ask it, and need no edit. This module and the kinds' are light: functions are named, and imported when used.

    Attributes
    ----------
    kind : str
        Name of the kind.
    title, label : str
        The kind in words, and what it fine-tunes. Kinds of one label share a panel of the help text.
    takes : mapping
        Options by verb: ``finetune``, and where the kind has them ``infer``, ``plan``, ``choose`` and ``card``.
    functions : mapping
        ``module:function`` by verb. ``finetune`` makes a :class:`~gradloom.systems.task.Task` of a
        :class:`~gradloom.systems.job.Job`, ``card`` one that writes a memory card. ``infer``, ``plan`` and
        ``choose`` answer an :class:`~gradloom.systems.asked.Asked`, the verb's options and ``progress``. ``knows`` says
        what the option ``model`` must be for a model's name, a file or a folder, or None if it is none of this kind.
        Others that a kind may have: ``alone`` (a task that a board makes by itself), ``expectation`` (forecast of the
        preset's own workload), ``measure`` (a point of a sweep), ``judge`` (the score of an adapter by what is held
        out), ``energy`` (a short run whose activity is recorded), ``sizes`` (``generate`` for a model), ``held`` (the
        preset's configuration for a model, and how it differs), ``unfit`` (why a preset cannot work with a model that
        is known, or with its data), ``power_up`` (memory of a board that fine-tunes by itself).
    reads : str
        Models that can be named, in words.
    methods : tuple of str
        Names of methods, where presets of a board differ by them.
    codes : tuple of str
        Formats that a sweep compares.
    usual_codes : str
        The format of a sweep that names none.
    anywhere : bool
        Whether a plan may be for a board that no preset of the kind is for.
    usual_board : bool
        Whether the board of the first preset is meant where none is named and several have one.
    window_bytes : int
        Memory that a project of Linux reserves; 0: its usual size.
    has_accuracy : bool
        Whether a sweep can tell an accuracy.
    units : mapping
        Units of entries of ``metrics.json`` that are not those of other kinds.
    rank : int
        Of the adapters.
    """

    kind: ClassVar[str]
    title: ClassVar[str]
    label: ClassVar[str]
    takes: ClassVar[Mapping[str, type[Options]]]
    functions: ClassVar[Mapping[str, str]]
    reads: ClassVar[str]
    methods: ClassVar[tuple[str, ...]] = ()
    codes: ClassVar[tuple[str, ...]] = ()
    usual_codes: ClassVar[str] = "nf4"
    anywhere: ClassVar[bool] = False
    usual_board: ClassVar[bool] = False
    window_bytes: ClassVar[int] = 0
    has_accuracy: ClassVar[bool] = False
    units: ClassVar[Mapping[str, str]] = {}

    rank: int = 1

    @property
    def ships(self) -> str | None:
        """Name of the model that a fine-tune takes unless another is given."""
        return None

    def options(self, preset: str, given: Mapping[str, Any], verb: str = "finetune") -> Options:
        """Options of a verb by name, which must be those of this kind.

        The error names ``preset`` where one is not.
        """
        own = self.takes[verb].known()
        for name, value in given.items():
            if name not in own:
                does = f"{preset} fine-tunes {self.title}; it" if verb == "finetune" else f"{verb} of {preset}"
                takes = ", ".join(each for each in own if each != "model")
                raise ValueError(f"{name}={value}: must be left out, {does} takes {takes}")
        return self.takes[verb](**given)

    def usual(self, name: str, verb: str = "finetune") -> str | None:
        """Default of a verb's option, in words; None if there is none."""
        takes = self.takes[verb]
        known, default = takes.known()[name], takes.__dataclass_fields__[name].default
        if known.usual is not None:
            return known.usual
        if default is None:
            own = getattr(self, name, None)
            return own if own is None or isinstance(own, str) else f"{own:g}"
        return None if isinstance(default, bool) else f"{default}"

    def mesh(self, config: Any) -> tuple[int, int]:
        """Rows and columns of a machine's array."""
        raise NotImplementedError

    def resized(self, config: Any, rows: int, columns: int) -> dict[str, int]:
        """Parameters that make an array of ``rows`` and ``columns``.

        :class:`ValueError` where no parameters do.
        """
        raise NotImplementedError

    def check_codes(self, name: str, preset: str) -> None:
        """Refuses a format that a sweep of the preset does not know."""
        if name not in self.codes:
            raise ValueError(f"codes={name}: must be one of {', '.join(self.codes)} for {preset}")

    def settings_of(self, codes: str) -> dict[str, int]:
        """Parameters in which a design for a format differs from the preset."""
        return {}

    @classmethod
    def can(cls, verb: str) -> bool:
        """Whether the kind has a verb."""
        return verb in cls.functions

    @classmethod
    def function(cls, verb: str) -> Callable[..., Any]:
        """The function of a verb that the kind has."""
        module, _, name = cls.functions[verb].partition(":")
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
        return found
