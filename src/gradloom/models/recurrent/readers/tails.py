"""What a graph makes of hidden states, as steps of the host."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ...files.onnx_graph import OnnxGraph
from ..cells import RnnCell, dense_cell
from ..coding import ACTIVATIONS
from ..host import FloatDense, Function
from .expressions import (
    Activated,
    AffineForm,
    Clipped,
    CodedForm,
    Expression,
    Rectified,
    Reduced,
    ResultForm,
    StackedDirections,
)

__all__ = [
    "answer_of",
    "behind_results",
    "commuted",
    "dense_cells",
    "pick_of",
    "steps_of",
    "whole",
    "with_two_logits",
    "with_zero",
]

#: Results of all steps that are no codes of a hidden state, and their names.
_REDUCED = {"mean": "mean", "max": "maximum"}
#: Results that recurrent nodes give themselves.
_STATES = ("all", "end", "last", "first", "state", "states")


def behind_results(value: Expression, where: str) -> tuple[ResultForm | StackedDirections, list[Expression]]:
    """Hidden states, and what follows them, each on the one before.

    ``where`` begins the refusal of anything else.
    """
    found: list[Expression] = []
    while not isinstance(value, (ResultForm, StackedDirections)):
        if isinstance(value, AffineForm):
            if len(value.terms) != 1:
                raise ValueError(f"node {value.name!r}: one dense layer on one source is supported")
            found.append(value)
            value = value.terms[0][0]
        elif isinstance(value, (Rectified, Activated, Clipped, Reduced)) or (isinstance(value, CodedForm) and found):
            found.append(value)
            value = value.source
        else:
            raise _refused(value, where)
    return value, found[::-1]


def _refused(value: Expression, where: str, pick: str = "") -> ValueError:
    coding = value.coding if isinstance(value, CodedForm) else value
    name = getattr(coding, "name", "")
    what = "its quantiser" if isinstance(value, CodedForm) else "what it makes"
    if pick in _REDUCED:
        return ValueError(
            f"node {name!r}: {what} is not supported behind the {_REDUCED[pick]} of all steps, where the host computes "
            "in floating point: leave quantisers of activations out there, those of weights may stay"
        )
    return ValueError(
        (f"node {name!r}: {what}" if name else where)
        + " is not supported behind the recurrent nodes: only dense layers, Relu, Sigmoid, Tanh, Clip, "
        "Softmax, LogSoftmax, and the last, mean or maximum of all steps"
    )


def dense_cells(pick: str, steps: list[Expression]) -> tuple[list[RnnCell], list[Expression]]:
    """Quantised dense layers with activations, in front of one more, and what follows them.

    A quantiser elsewhere is refused, and of the mean or the greatest of all steps any.
    """
    cells: list[RnnCell] = []
    while pick not in _REDUCED and (found := _dense(steps)) is not None:
        cell, count = found
        cells.append(cell)
        steps = steps[count:]
    for each in steps:
        if isinstance(each, CodedForm):
            raise _refused(each, "the answer", pick)
    return cells, steps


def _dense(steps: list[Expression]) -> tuple[RnnCell, int] | None:
    """The first layer and its steps, where they are a whole layer with another behind it."""
    at = next((n for n, each in enumerate(steps[1:], 1) if isinstance(each, AffineForm)), 0)
    first, between, own = steps[0] if steps else None, steps[1:at], None
    if not at or not isinstance(first, AffineForm) or first.terms[0][1].dtype.kind != "i":
        return None
    codings = [each.coding for each in between if isinstance(each, CodedForm)]
    functions = [each for each in between if not isinstance(each, CodedForm)]
    kinds = "".join("q" if isinstance(each, CodedForm) else "f" for each in between)
    if len(functions) == 1 and isinstance(functions[0], (Rectified, Activated)):
        own = "relu" if isinstance(functions[0], Rectified) else functions[0].kind
    if kinds == "q" and codings[0].lo >= 0:
        own, kinds = "relu", "fq"
    if own not in ACTIVATIONS or kinds != "qfq" and (kinds, own) != ("fq", "relu"):
        return None
    _, codes, scale = first.terms[0]
    negative = scale < 0
    cell = dense_cell(
        np.where(negative[:, None], -codes, codes),
        np.abs(scale),
        first.bias,
        accumulator=codings[0] if kinds == "qfq" else None,
        activation=own,
        output=codings[-1],
        name=first.name,
    )
    return cell, at


def answer_of(graph: OnnxGraph, values: dict[str, Expression]) -> tuple[ResultForm | None, list[Expression]]:
    """The answer of a graph: hidden states, and what follows them.

    None: its outputs are states alone. Two answers, and an output that is no answer, are refused.
    """
    answers: dict[int, tuple[str, ResultForm, list[Expression]]] = {}
    for name in graph.outputs:
        if name not in values:
            raise ValueError(f"output {name!r} is constant: it must depend on the input")
        source, steps = behind_results(values[name], f"output {name!r}: it")
        if steps and isinstance(source, StackedDirections):
            raise ValueError(f"output {name!r}: it mixes states of several layers")
        if isinstance(source, ResultForm) and (steps or source.what not in _STATES):
            answers[id(values[name])] = name, source, steps
    if len(answers) > 1:
        names = " and ".join(repr(name) for name, _, _ in answers.values())
        raise ValueError(f"outputs {names}: one answer beside the recurrent states is supported: export one of them")
    if not answers:
        return None, []
    ((_, source, steps),) = answers.values()
    return source, steps


def whole(source: ResultForm, steps: list[Expression], ways: int) -> tuple[ResultForm, list[Expression]]:
    """One direction of two as both, with weights of 0 for the other."""
    if len(source.ways) == ways or ways != 2:
        return source, steps
    (way,), both = source.ways, replace(source, ways=(0, 1))
    if steps and isinstance(first := steps[0], AffineForm):
        _, codes, scale = first.terms[0]
        rest = steps[1:]
    else:
        codes, scale, rest = np.eye(source.units), np.ones(source.units), steps
        first = AffineForm((), np.zeros(source.units), "direction")
    parts = [codes, np.zeros_like(codes)]
    wide = np.concatenate(parts if way == 0 else parts[::-1], axis=1)
    return both, [replace(first, terms=((both, wide, scale),)), *rest]


def pick_of(source: ResultForm, steps: list[Expression], ways: int) -> str:
    """Name of the hidden states that reach the answer.

    ``ways``: directions of the last layer.
    """
    if source.what in ("all", "mean", "max"):
        return source.what
    if source.what == "last" or (source.what == "end" and ways == 1):
        return "last"
    if source.what == "end":
        return "ends"
    raise ValueError(f"{_first(steps)}: its input is not the hidden state")


def _first(steps: list[Expression]) -> str:
    return f"node {steps[0].name!r}" if steps and hasattr(steps[0], "name") else "the answer"


def steps_of(expressions: Iterable[Expression]) -> list[FloatDense | Function]:
    """Steps of the host; dense layers right behind each other are one."""
    made: list[FloatDense | Function] = []
    for each in expressions:
        if isinstance(each, AffineForm):
            _, codes, scale = each.terms[0]
            weight, bias = codes * np.asarray(scale, np.float64)[:, None], each.bias
            if made and isinstance(before := made[-1], FloatDense):
                weight, bias = weight @ before.weight, weight @ before.bias + bias
                made.pop()
            made.append(FloatDense(weight=weight, bias=bias, name=each.name))
        elif isinstance(each, Clipped):
            made.append(Function(op="clip", name=each.name, lo=each.lo, hi=each.hi))
        elif isinstance(each, Rectified):
            made.append(Function(op="relu", name=each.name))
        elif isinstance(each, (Activated, Reduced)):
            made.append(Function(op=each.kind, name=each.name))
    return made


def commuted(
    pick: str, head: object, tail: list[FloatDense | Function], curved: bool = False
) -> tuple[str, list[FloatDense | Function]]:
    """A dense layer in front of the last or the mean of steps is behind it.

    ``curved``: there are activations in front of it, so that of the mean it is not.
    """
    picks = ("last",) if curved else ("last", "mean")
    if head is not None and pick == "all" and tail and isinstance(tail[0], Function) and tail[0].op in picks:
        return tail[0].op, tail[1:]
    return pick, tail


def with_two_logits(rows: int | None, tail: list[FloatDense | Function]) -> tuple[bool, list[FloatDense | Function]]:
    """One logit of two classes as two, of which the first is 0.

    A Sigmoid behind it is part of that. ``rows``: outputs of the head, None where there is none. Returns whether the
    head is to get a row of zeros in front, and the tail.
    """
    at = max((n for n, each in enumerate(tail) if isinstance(each, FloatDense)), default=-1)
    after = [each for each in tail[at + 1 :] if isinstance(each, Function)]
    last = tail[at] if at >= 0 else None
    count = len(last.bias) if isinstance(last, FloatDense) else rows
    picks = after[:-1] if after and after[-1].op == "sigmoid" else after
    if count != 1 or any(each.op not in ("last", "mean", "max") for each in picks):
        return False, tail
    if not isinstance(last, FloatDense):
        return True, [*picks]
    two = FloatDense(weight=with_zero(last.weight), bias=with_zero(last.bias), name=last.name)
    return False, [*tail[:at], two, *picks]


def with_zero(array: np.ndarray) -> np.ndarray:
    """``array`` behind a row of zeros."""
    made: np.ndarray = np.concatenate([np.zeros_like(array), array])
    return made
