"""Finds the parts of an LSTM in the expressions of its next states."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ...files.onnx_file import RefusedNode
from ..coding import Coding
from ..lstm import GATES, Gate, LstmCell
from .expressions import Activated, AffineForm, CodedForm, Complement, Expression, ProductForm, Sum
from .parts import activation, check_coding, check_same, core, gate_of, needed

__all__ = ["Found", "lstm_of"]

#: A gate that may be 1 minus the other.
_COUPLED = {"input": "forget", "forget": "input"}


@dataclass(frozen=True, eq=False)
class Found:
    """A cell that makes the next two states.

    Attributes
    ----------
    cell : LstmCell
    which : int
        Index of the hidden state among the two.
    seen : Coding, optional
        Quantiser of the input within the cell.
    """

    cell: LstmCell
    which: int
    seen: Coding | None


def lstm_of(results: Sequence[Expression], states: Sequence[Expression], step: Expression, name: str) -> Found:
    """The cell that makes ``results`` of ``states`` and ``step``.

    Whatever is no such cell is a :class:`RefusedNode`.
    """
    return _Matcher(results, states, step, name).found()


class _Matcher:
    def __init__(
        self, results: Sequence[Expression], states: Sequence[Expression], step: Expression, name: str
    ) -> None:
        self.results, self.states, self.step, self.name = results, states, step, name
        self.seen: Coding | None = None

    def found(self) -> Found:
        results, states, name = self.results, self.states, self.name
        kinds = [type(core(each)) for each in results]
        if kinds not in ([ProductForm, Sum], [Sum, ProductForm]):
            raise RefusedNode(
                "its states are not those of an LSTM: one must be a product of the output gate, the other a sum"
            )
        which = kinds.index(ProductForm)
        hidden, state = results[which], results[1 - which]
        if not isinstance(hidden, CodedForm):
            raise RefusedNode("a quantiser is missing: that of the hidden state")
        h, c = states[which], states[1 - which]
        total = core(state)
        product = hidden.source
        if not isinstance(product, ProductForm) or not isinstance(total, Sum):
            raise RefusedNode("the hidden or the cell state goes through two quantisers in a row")
        if isinstance(state, CodedForm) and state.source is not total:
            raise RefusedNode("the cell state goes through two quantisers in a row")
        squashed, squashed_in, out = self._squash(product, state)
        parts = [(needed(each, "a product of the cell state"), each) for each in (total.a, total.b)]
        kept = [
            each
            for each, _ in parts
            if isinstance(each.source, ProductForm) and any(core(v) is c for v in (each.source.a, each.source.b))
        ]
        rest = [each for each, _ in parts if each not in kept]
        if len(kept) != 1 or len(rest) != 1 or not isinstance(rest[0].source, ProductForm):
            raise RefusedNode("its cell state is not forget gate * state + input gate * cell gate")
        keep, add = kept[0].source, rest[0].source
        assert isinstance(keep, ProductForm) and isinstance(add, ProductForm)
        forget, carried = (keep.a, keep.b) if core(keep.b) is c else (keep.b, keep.a)
        check_same(carried, state, "cell state")
        pair = [add.a, add.b]
        tanh = [each for each in pair if activation(each) == "tanh"]
        if len(tanh) != 1:
            raise RefusedNode(
                f"node {add.name!r} multiplies {' and '.join(activation(each) for each in pair)}: "
                "expected sigmoid and tanh"
            )
        enter = next(each for each in pair if each is not tanh[0])
        found = {"input": enter, "forget": forget, "cell": tanh[0], "output": out}
        gates, one = {}, 0
        for gate in GATES:
            value = found[gate]
            if gate in _COUPLED and isinstance(value, Complement):
                other = found[_COUPLED[gate]]
                if value.source is not other or not isinstance(other, CodedForm):
                    raise RefusedNode(f"node {value.name!r}: 1 minus what is not the {_COUPLED[gate]} gate")
                code = Fraction(value.one) / Fraction(other.coding.scale)
                if value.one != 1 and code.denominator != 1:
                    raise RefusedNode(
                        f"node {value.name!r}: {value.one:.9g} minus a gate of scale {other.coding.scale:.9g}: must be "
                        "1 or a multiple of the scale"
                    )
                one = 0 if value.one == 1 else int(code)
                continue
            gates[gate] = self._read_gate(gate, value, h, hidden.coding)
        cell = LstmCell(
            gates,
            kept[0].coding,
            rest[0].coding,
            state.coding if isinstance(state, CodedForm) else None,
            squashed_in,
            squashed,
            hidden.coding,
            name,
            one,
        )
        return Found(cell, which, self.seen)

    @staticmethod
    def _squash(product: ProductForm, state: Expression) -> tuple[Coding, Coding | None, Expression]:
        """Quantisers behind and before the tanh of the state.

        Also returns the other factor.
        """
        for value, other in ((product.a, product.b), (product.b, product.a)):
            inner = core(value)
            if not isinstance(inner, Activated) or inner.kind != "tanh":
                continue
            coded = needed(value, "the tanh of the cell state")
            if inner.source is state:
                return coded.coding, None, other
            if isinstance(inner.source, CodedForm) and inner.source.source is state:
                return coded.coding, inner.source.coding, other
            raise RefusedNode(f"node {inner.name!r}: its input is not the cell state")
        raise RefusedNode(f"node {product.name!r}: its hidden state has no tanh of the cell state")

    def _read_gate(self, name: str, value: Expression, h: Expression, hidden: Coding) -> Gate:
        coded = needed(value, f"the {name} gate's activation")
        active = coded.source
        if not isinstance(active, Activated):
            raise RefusedNode(f"the {name} gate has no activation: expected sigmoid or tanh")
        kind = "tanh" if name == "cell" else "sigmoid"
        if active.kind != kind:
            raise RefusedNode(f"node {active.name!r}: the {name} gate has {active.kind}: expected {kind}")
        accumulator = needed(active.source, f"the {name} gate's accumulator")
        affine = accumulator.source
        if not isinstance(affine, AffineForm):
            raise RefusedNode(f"the {name} gate is not a product of weights with the input and the hidden state")
        terms: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for source, codes, scale in affine.terms:
            if source is h or (isinstance(source, CodedForm) and source.source is h):
                if isinstance(source, CodedForm):
                    check_coding(source.coding, hidden, "hidden state")
                kind_of = "u"
            elif source is self.step or (isinstance(source, CodedForm) and source.source is self.step):
                self._see(source)
                kind_of = "w"
            else:
                raise RefusedNode(
                    f"node {affine.name!r}: a term of the {name} gate is neither of the input nor of the hidden state"
                )
            if kind_of in terms:
                raise RefusedNode(f"node {affine.name!r}: two products with one source in the {name} gate")
            terms[kind_of] = codes, scale
        if set(terms) != {"w", "u"}:
            raise RefusedNode(
                f"node {affine.name!r}: the {name} gate needs a product with the input and one with the hidden state"
            )
        return gate_of(name, terms["w"], terms["u"], affine.bias, accumulator.coding, kind, coded.coding, affine.name)

    def _see(self, source: Expression) -> None:
        """Notes the input's quantiser within the cell."""
        coding = source.coding if isinstance(source, CodedForm) else None
        if self.seen is not None and coding is not None:
            check_coding(coding, self.seen, "input")
        self.seen = coding or self.seen
