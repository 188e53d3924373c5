"""A training step of a LLaMA-like model as a list of operations.

Two scales are folded into tables, so that no engine multiplies by them. Softmax is to base 2: the angles of the queries
have the factor ``log2(e)``, and the angles with which the gradient of the keys is turned back ``ln 2``, since it is
made with those queries. The factor of the scores is a power of two, which their exponent takes, times what the
queries' angles take too: with their ``log2(e)``, 1 to 2. The last norm's weights have ``log2(e)`` on the way to the
logits, and the mean over the foretold tokens on the way back.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from gradloom.models.filled import filled
from gradloom.models.language import BIASED, PROJECTIONS, LanguageModel
from gradloom.rtl.formats.vector import ELEMENTS, PULLED
from gradloom.rtl.machines.configs.language import LanguageConfig

from .base import Operation
from .blocks.attention import BlockAttention
from .blocks.head import LossHead
from .blocks.rows import Order, TextBlock, blocks, in_turn
from .cores import Cores
from .elements import Add, Biased, Gated, GatedBackward, Rope
from .norms import NormsOfLayers
from .products import Gradient, Product
from .shapes import odd_shapes
from .tensors import EDGE, AdapterTensors, Angles, Codes, Tensor, TensorSlice
from .vectors import StepVectors

__all__ = ["StepOperations", "longest"]

#: Tensors of a layer that linears with biases make.
_MADE = {"q_proj": "raw_q", "k_proj": "raw_k", "v_proj": "v"}
#: Logits of a token.
_VOCAB = 1 << ELEMENTS
#: Stages forward and backward by the blocks of a text: alone, two, or more. Linears hide what attention and elements of
#: other blocks load; with two blocks, a layer cannot begin before the last one ends.
_ORDERS: Mapping[int, tuple[Order, Order]] = {
    1: ([(stage, 0) for stage in range(6)], [(stage, 0) for stage in range(8)]),
    2: (
        [(0, 0), (1, 0), (3, 1), (2, 0), (4, 1), (5, 1)],
        [(0, 0), (3, 1), (1, 0), (4, 1), (5, 1), (6, 1), (7, 1), (2, 0)],
    ),
    3: (
        [(3, 1), (2, 0), (0, -1), (4, 1), (1, -1), (5, 1)],
        [(3, 1), (0, -1), (1, 0), (4, 1), (5, 1), (6, 1), (7, 1), (2, 0)],
    ),
}
#: Keys of a row whose softmax has a gradient.
_KEYS = 1 << PULLED


def longest(tokens: int) -> int:
    """Tokens of a text at most, where a machine's commands take so many: those of blocks, where it takes one."""
    return _KEYS if tokens >= EDGE else tokens


@dataclass(frozen=True)
class StepOperations:
    """Operations of a step of ``tokens`` tokens.

    Parameters
    ----------
    model : LanguageModel
        Filled: its shapes are multiples of 64.
    tokens : int
    ranks : mapping
        Rank of the adapter of a linear, by the linear's name.
    layers : sequence of int
        Which layers, one behind the other.
    head : bool
        Whether the last norm, logits and loss belong to it. If not, ``N.dx`` of the layer behind the last one is an
        operand of the step.
    vectors : collection of str
        Modules with a learnt vector: norms, whose weight it is, and linears of :data:`~.vectors.SCALED`.
    texts : int
        Texts whose gradients are added.
    made : collection of str
        Linears of ``ranks`` whose B the step makes, of R that learns: LoRA-XS.
    foretold : int, optional
        Tokens that have a loss, over which it is a mean; all but one unless given.
    held : bool
        Of adapters B alone learns.
    head_part : int
        Tiles of logits whose gradient is the input of a product: the machine's.
    """

    model: LanguageModel
    tokens: int
    ranks: Mapping[str, int]
    layers: Sequence[int]
    head: bool = True
    vectors: Collection[str] = ()
    texts: int = 1
    made: Collection[str] = ()
    foretold: int | None = None
    held: bool = False
    head_part: int = 16

    def __post_init__(self) -> None:
        for field, value, bound in odd_shapes(self.model):
            raise ValueError(f"{field}={value}: {bound}")
        if filled(self.model) is not self.model:
            raise ValueError(f"model={self.model.name}: must have shapes in multiples of {EDGE}; see filled")

    def check(self, config: LanguageConfig) -> None:
        """Refuses a step that a machine cannot run; linears are not checked."""
        for field, value, bound in self.misfits(config):
            raise ValueError(f"{field}={value}: {bound}")

    def misfits(self, config: LanguageConfig) -> Iterator[tuple[str, int, str]]:
        """Fields that fail the bounds of a machine, without its linears.

        Yields field, value and bound.
        """
        if self.model.hidden > config.features:
            yield "hidden", self.model.hidden, f"the machine normalises rows of at most {config.features}"
        most = longest(config.tokens)
        if self.tokens > most:
            yield "tokens", self.tokens, f"must be at most {most}"
        if self.model.joint_norms and self.model.attention > config.features:
            yield "heads", self.model.heads, f"the machine normalises {config.features} elements of all heads at most"
        if self.model.vocab > _VOCAB:
            yield "vocab", self.model.vocab, f"the machine's softmax takes at most {_VOCAB}"

    @cached_property
    def learnt(self) -> StepVectors:
        """Operations of the vectors."""
        foretold = self.tokens - 1 if self.foretold is None else self.foretold
        return StepVectors(self.vectors, self.model, self.tokens, foretold, self.texts)

    @property
    def norms(self) -> NormsOfLayers:
        """Operations of norms within a layer."""
        return NormsOfLayers(self.model)

    @cached_property
    def cores(self) -> Cores:
        """Operations of what learns in place of A and B."""
        return Cores({name: rank for name, rank in self.ranks.items() if name in self.made})

    # names

    @property
    def input(self) -> Tensor:
        """The residual stream at the first layer: the tokens' embeddings."""
        return self._residual(self.layers[0])

    @property
    def output(self) -> Tensor:
        """The residual stream behind the last layer."""
        return self._residual(self.layers[-1] + 1)

    @property
    def gradient(self) -> Tensor:
        """Gradient of the last layer's output.

        With ``head`` the step makes it itself.
        """
        return self.tensor(self.layers[-1] + 1, "dx", self.model.hidden)

    @property
    def entry(self) -> Tensor:
        """Gradient of what enters the first layer."""
        return self.tensor(self.layers[0], "dx", self.model.hidden)

    def tensor(self, layer: int, name: str, features: int, *, wide: bool = False) -> Tensor:
        """A tensor of a layer."""
        return Tensor(f"{layer}.{name}", self.tokens, features, wide)

    def angles(self, which: str, layer: int) -> Angles:
        """``q``, ``k``, and those with which their gradients turn back."""
        rest, kind = self.model.score_factor * 2.0**-self.lift, self.model.kind(layer)
        gain = {"q": math.log2(math.e) * rest, "k": 1.0, "dq": rest, "dk": math.log(2)}[which]
        return Angles(f"angles.{which}{'.' * bool(kind)}{kind}", self.tokens, gain, kind, self.span)

    @property
    def span(self) -> int:
        """Tiles of a head."""
        return self.model.head_dim // EDGE

    def attention(self, layer: int) -> BlockAttention:
        """Operations of a layer's attention."""
        return BlockAttention(self.model, layer, self.tokens, self.lift)

    def groups(self) -> list[tuple[int, list[int]]]:
        """See :class:`~.attention.BlockAttention`."""
        return self.attention(self.layers[0]).groups()

    @property
    def lift(self) -> int:
        """The power of two in the factor of the scores."""
        # What is left fits the angles, whose factors are below 2.
        return math.floor(math.log2(self.model.score_factor * math.log2(math.e) * max(self.model.turned_size, 1.0)))

    def linear(self, layer: int, projection: str) -> tuple[Codes, AdapterTensors | None]:
        """The frozen matrix and its adapter."""
        name = f"model.layers.{layer}.{PROJECTIONS[projection]}.{projection}"
        rank = self.ranks.get(name, 0)
        return self.codes(name), AdapterTensors(name, rank, name in self.made, self.held) if rank else None

    def through(
        self,
        layer: int,
        projection: str,
        x: TensorSlice,
        y: TensorSlice,
        *,
        next_of: Callable[[Tensor], Tensor] | None = None,
    ) -> list[Operation]:
        """A linear with its adapter and its bias.

        ``next_of``: the tensor of one row that stands for a step's, of a token behind a text.
        """
        weight, adapter = self.linear(layer, projection)
        if not (self.model.biases and projection in BIASED):
            return [Product(x, weight, y, adapter=adapter)]
        made, bias = self.tensor(layer, f"{_MADE[projection]}.linear", EDGE * y.count), f"{weight.name}.bias"
        added = Tensor(bias, min(self.tokens, EDGE), made.features)
        if next_of is not None:
            made, added = next_of(made), next_of(added)
        # A row of a cache does not lie in one piece.
        size = y.count if y.whole else 1
        parts = [(n, replace(y, first=y.first + n, count=size)) for n in range(0, y.count, size)]
        return [Product(x, weight, made.all(), adapter=adapter)] + [
            Biased(made.part(n, size), bias, added.part(n, size), part) for n, part in parts
        ]

    def codes(self, name: str) -> Codes:
        """A frozen matrix by the linear's name."""
        held = next(each for each in self.model.linears if each.name == name)
        return Codes(name, held.outputs, held.inputs)

    def _residual(self, layer: int) -> Tensor:
        return self.tensor(layer, "x", self.model.hidden, wide=self.wide)

    @property
    def wide(self) -> bool:
        """Whether the residual stream has wide words: no linear reads it."""
        return self.norms.wide

    # operations

    def operations(self) -> list[Operation]:
        """Forward, and backward from the last layer to the first.

        :mod:`~.needs` selects the operations that a step needs.
        """
        forward, back = _ORDERS[min(len(self.blocks), max(_ORDERS))]
        made = self._prepared(self.layers[0])
        made += in_turn([self._forward(layer, block) for layer in self.layers for block in self.blocks], forward)
        if self.head:
            made += self.logits()
        graded: list[Operation] = []
        units: list[Sequence[list[Operation]]] = []
        for layer in reversed(self.layers):
            units += [self._backward(layer, block) for block in reversed(self.blocks)]
            # Gradients of the layer behind it are in memory by then.
            units[-1][-1].extend(graded)
            graded = [each for name in PROJECTIONS for each in self.cores.graded(*self.linear(layer, name))]
        return [*made, *in_turn(units, back), *graded]

    @cached_property
    def blocks(self) -> list[TextBlock]:
        """Of the text."""
        return blocks(self.tokens)

    def _part(self, block: TextBlock, operations: Sequence[Operation], *, once: bool = False) -> list[Operation]:
        """A block's part of operations on the whole text."""
        return block.part(operations, lambda adapter: self.codes(adapter.name), once=once)

    def _prepared(self, layer: int) -> list[Operation]:
        """What makes a layer's adapters."""
        return [each for name in PROJECTIONS for each in self.cores.prepared(*self.linear(layer, name))]

    def forward(self, layer: int) -> list[Operation]:
        """A layer, from its ``x`` to that of the next."""
        return [each for block in self.blocks for stage in self._forward(layer, block) for each in stage]

    def _forward(self, layer: int, block: TextBlock) -> Sequence[list[Operation]]:
        """The same of a block, whose attention sees the blocks before it.

        Stages are the norm before, queries and keys, scores and values, attention's result, gate and up, and down.
        """
        model, learnt = self.model, self.learnt
        width = {"hidden": model.hidden, "inter": model.inter, "q": model.attention, "kv": model.kv}

        def t(name: str, size: str, *, wide: bool = False) -> Tensor:
            return self.tensor(layer, name, width[size], wide=wide)

        def through(projection: str, x: Tensor, y: Tensor) -> list[Operation]:
            return self.through(layer, projection, x.all(), y.all())

        def scaled(projection: str, x: Tensor, y: Tensor) -> list[Operation]:
            module = learnt.linear(layer, projection)
            if module not in self.vectors:
                return through(projection, x, y)
            plain = learnt.plain(y)
            return [*through(projection, x, plain), *learnt.scaled(module, plain, y)]

        x = self._residual(layer)
        attended = self.norms.behind(x, "norm1")
        raw_q, raw_k, q, k, v = t("raw_q", "q"), t("raw_k", "kv"), t("q", "q"), t("k", "kv"), t("v", "kv")
        context, o = t("context", "q"), t("o", "hidden")
        middle = t("middle", "hidden", wide=self.wide)
        fed = self.norms.behind(middle, "norm2")
        gate, up, act, down = t("gate", "inter"), t("up", "inter"), t("act", "inter"), t("down", "hidden")
        later = [each for each in self.layers if each > layer]
        entered: list[Operation] = [] if layer != self.layers[0] else learnt.first_ready(layer)
        entered += self.norms.placed(layer, "norm1", x)
        made: list[Operation] = [
            *learnt.made_ready(layer, later[0] if later else None),
            *scaled("k_proj", attended, raw_k),
            *self.norms.normed(layer, "k_proj", raw_k),
            Rope(self.norms.plain(raw_k).all(), self.angles("k", layer), k.all()),
            *through("q_proj", attended, raw_q),
            *self.norms.normed(layer, "q_proj", raw_q),
            Rope(self.norms.plain(raw_q).all(), self.angles("q", layer), q.all()),
        ]
        attention = self.attention(layer)

        def part(operations: Sequence[Operation]) -> list[Operation]:
            return self._part(block, operations, once=block.number == 0)

        mixed = [
            *through("o_proj", context, o),
            *self.norms.placed(layer, "norm3", o),
            Add(x.all(), self.norms.behind(o, "norm3").all(), middle.all()),
            *self.norms.placed(layer, "norm2", middle),
        ]
        gated = [
            *(self._prepared(later[0]) if later else []),
            *through("gate_proj", fed, gate),
            *through("up_proj", fed, up),
        ]
        module = learnt.linear(layer, "down_proj")
        if module in self.vectors:
            plain = learnt.plain(act)
            gated += [Gated(gate.all(), up.all(), plain.all(), model.gate), *learnt.scaled(module, plain, act)]
        else:
            gated.append(Gated(gate.all(), up.all(), act.all(), model.gate))
        fallen = [
            *through("down_proj", act, down),
            *self.norms.placed(layer, "norm4", down),
            Add(middle.all(), self.norms.behind(down, "norm4").all(), self._residual(layer + 1).all()),
        ]
        return (
            part(entered),
            part(made),
            # Under v, the last softmaxes are made.
            [*attention.scored(block, q, k), *part(scaled("v_proj", attended, v))],
            [*attention.mixed(block, v, context), *part(mixed)],
            part(gated),
            part(fallen),
        )

    def _backward(self, layer: int, block: TextBlock) -> Sequence[list[Operation]]:
        """A layer of a block backward, with the gradients of what learns in it.

        The blocks behind it come before. Stages are down, gate and up, attention's result, scores, values, keys,
        queries, and what enters.
        """
        model, learnt = self.model, self.learnt

        def t(name: str, features: int, *, wide: bool = False) -> Tensor:
            return self.tensor(layer, name, features, wide=wide)

        made: list[Operation] = []
        stages: list[list[Operation]] = []

        def ended(*attended: Operation) -> None:
            """What attention makes, and then the linears that were made, are a stage."""
            stages.append([*attended, *self._part(block, made, once=block.number == block.count - 1)])
            made.clear()

        def back(projection: str, dy: TensorSlice, x: TensorSlice, dx: TensorSlice) -> None:
            weight, adapter = self.linear(layer, projection)
            made.append(Product(dy, weight, dx, backward=True, adapter=adapter))
            if adapter is not None:
                made.append(Gradient(adapter, x, dy))

        def unscaled(projection: str, y: Tensor, dy: Tensor) -> Tensor:
            """The gradient of what a vector multiplied, if there is one."""
            operations, dx = learnt.back(learnt.linear(layer, projection), y, dy)
            made.extend(operations)
            return dx

        hidden, inter, wide, kv = model.hidden, model.inter, model.attention, model.kv
        dy = self.tensor(layer + 1, "dx", hidden)
        x, middle = self._residual(layer), t("middle", hidden, wide=self.wide)
        gate, up, act, fed = t("gate", inter), t("up", inter), t("act", inter), self.norms.behind(middle, "norm2")
        dact, dgate, dup = t("dact", inter), t("dgate", inter), t("dup", inter)
        by_gate, by_up, dfed = t("dfed.gate", hidden), t("dfed.up", hidden), t("dfed", hidden)
        dmiddle = t("dmiddle", hidden)
        before, normed = learnt.norm_back(layer, "norm4", t("down", hidden), dy, t("ddown", hidden))
        made += before
        back("down_proj", normed.all(), act.all(), dact.all())
        by_act = unscaled("down_proj", act, dact).all()
        made.append(GatedBackward(gate.all(), up.all(), by_act, dgate.all(), dup.all(), model.gate))
        ended()
        back("gate_proj", dgate.all(), fed.all(), by_gate.all())
        back("up_proj", dup.all(), fed.all(), by_up.all())
        made.append(Add(by_gate.all(), by_up.all(), dfed.all()))
        made += learnt.norm_added(layer, "norm2", middle, dfed, t("dmiddle.norm", hidden), dy, dmiddle)

        dcontext, context = t("dcontext", wide), t("context", wide)
        before, normed = learnt.norm_back(layer, "norm3", t("o", hidden), dmiddle, t("do", hidden))
        made += before
        ended()
        back("o_proj", normed.all(), context.all(), dcontext.all())
        ended()
        attention, q, k, v = self.attention(layer), t("q", wide), t("k", kv), t("v", kv)
        dq, dk, dv = t("dq", wide), t("dk", kv), t("dv", kv)
        ended(*attention.scored_back(block, context, dcontext, v))
        attended = self.norms.behind(x, "norm1")
        raw_dq, raw_dk = t("raw_dq", wide), t("raw_dk", kv)
        by_q, by_k, by_v, by_kv, dattended = (
            t(name, hidden) for name in ("dattended.q", "dattended.k", "dattended.v", "dattended.kv", "dattended")
        )
        back("v_proj", unscaled("v_proj", v, dv).all(), attended.all(), by_v.all())
        # Under it, the gradients of the last softmaxes are made.
        ended(*attention.gathered(block, "p", dcontext, dv))
        made.append(Rope(dk.all(), self.angles("dk", layer), self.norms.plain(raw_dk).all(), turn=True))
        made += self.norms.normed_back(layer, "k_proj", t("raw_k", kv), raw_dk)
        ended(*attention.gathered(block, "ds", q, dk, self.lift))
        made.append(Rope(dq.all(), self.angles("dq", layer), self.norms.plain(raw_dq).all(), turn=True))
        made += self.norms.normed_back(layer, "q_proj", t("raw_q", wide), raw_dq)
        ended(*attention.keyed(block, k, dq))
        back("k_proj", unscaled("k_proj", t("raw_k", kv), raw_dk).all(), attended.all(), by_k.all())
        made.append(Add(by_v.all(), by_k.all(), by_kv.all()))
        back("q_proj", raw_dq.all(), attended.all(), by_q.all())
        made.append(Add(by_kv.all(), by_q.all(), dattended.all()))
        made += learnt.norm_added(layer, "norm1", x, dattended, t("dx.norm", hidden), dmiddle, t("dx", hidden))
        ended()
        return stages

    def logits(self, x: Tensor | None = None) -> list[Operation]:
        """Operations from ``x`` to the loss, and back to its gradient.

        ``x`` is the last layer's residual stream unless given.
        """
        after = self.layers[-1] + 1
        return LossHead(self.model, after, self.head_part, self.learnt, x or self.output, self.gradient).operations()
