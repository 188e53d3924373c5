"""Places of a job in memory, its programs, and their table.

A job is laid out alike whether its values are known or not, so a plan says the bytes that a card then takes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from gradloom.firmware.chip.adapter_store import HEADER_BYTES as STORE_HEADER
from gradloom.firmware.chip.soc import HEADER_BYTES, RECORD_BYTES, JobProgram
from gradloom.firmware.chip.steps import STATE_BYTES, AdapterPlaces, StepTable, values_of
from gradloom.models.adapters.language.methods import LORA_XS, METHODS
from gradloom.models.filled import filled
from gradloom.models.language import LanguageModel
from gradloom.program.assembler import Assembler
from gradloom.program.descent import AdamW
from gradloom.program.memory import PAGE, rounded
from gradloom.rtl.machines.configs.language import LanguageConfig

from ...rates import CONSTANT, Schedule
from ..costs.request import BudgetRequest
from ..operations.base import Fracs, Operation
from ..operations.blocks.head import HEAD_MATRIX, LOSS, TARGETS
from ..operations.learnt.rechosen import FRACS, Rechosen, constants
from ..operations.learnt.training import training_operations
from ..operations.learnt.updates import Update
from ..operations.norms import NormsOfLayers
from ..operations.shapes import paired, suited
from ..operations.tensors import EDGE, Tensor
from ..operations.transformer import StepOperations
from ..program.layout import Layout
from ..program.packed import STORES
from ..program.peak import peak_bytes
from ..program.planned import exponents
from ..program.residents import by_class, residents
from ..program.step import lower
from ..program.stepped import SteppedProgram, schedule, scheduled, stepped

__all__ = [
    "STATE",
    "JobLayout",
    "LoweredJob",
    "Shape",
    "laid_out",
    "log_bytes",
    "lowered",
    "measured_sizes",
    "page_rounding",
    "planned_job",
    "planner",
    "row_bytes",
    "shape_of",
]

#: Name of the exponents of adapters that a job changes.
STATE = "exponents"
#: Bytes of the commands of a head's queries of a block with keys of another one, about.
_PAIR = 34 * 32


@dataclass(kw_only=True)
class JobLayout:
    """Places in the window of a job, its programs and its table.

    Parameters
    ----------
    layout : Layout
        Of what outlives a step; the adapters and their state come first.
    operations : sequence
        Of the step on a new text.
    own, cached : sequence of str
        Names of tensors of which each text has its own; the latter are kept of the first step on it.
    exponents : Rechosen
        Of the adapters.
    moments : sequence of str
        Names of those of what learns.
    texts : int
    order : sequence of int
        Number of each step's text; all take turns unless given.
    rates : Schedule
        Of the learning rate.
    """

    layout: Layout
    operations: Sequence[Operation]
    own: Sequence[str]
    cached: Sequence[Tensor]
    exponents: Rechosen
    moments: Sequence[str]
    texts: int
    order: Sequence[int] = ()
    rates: Schedule = CONSTANT
    programs: list[SteppedProgram] = field(default_factory=list)
    placed: list[JobProgram] = field(default_factory=list)
    #: Bytes of the shared places, and where these end.
    shared: int = 0
    end: int = 0
    table: bytes = b""
    table_offset: int = 0
    steps: int = 0

    def rest(self, tokens: int, beat: int) -> None:
        """Places the loss, forward caches, and what is measured between steps."""
        self.layout.place(LOSS, beat)
        for number in range(self.texts):
            for tensor in self.cached:
                self.layout.place(f"{number}:{tensor.name}", 4 * tensor.rows * tensor.features)
        for each in self.operations:
            if isinstance(each, Update):
                self.layout.adapter(each.adapter, each.linear, tokens)

    @property
    def names(self) -> tuple[str, ...]:
        """Tensors that have another place for each text."""
        return *self.own, *(tensor.name for tensor in self.cached)

    def write(
        self,
        kinds: Iterable[Sequence[Operation]],
        frac: Fracs,
        config: LanguageConfig,
        steps: int,
        yield_every: int | None = None,
    ) -> None:
        """Writes the programs of ``kinds`` of steps, and the table.

        They yield to requests about every ``yield_every`` cycles, if this is given.
        """
        for operations in kinds:
            mine = self.layout.copy()
            for name in self.names:
                mine.offsets[name] = self.layout[f"0:{name}"]
            adapters = self.exponents.constants
            made = stepped(
                operations, 1, frac, mine, config, adapters=adapters, texts=self.names, yield_every=yield_every
            )
            self.programs.append(made)
            self.end, self.shared = max(self.end, mine.end), max(self.shared, mine.shared_bytes)
        start = rounded(self.end, PAGE)
        for each in self.programs:
            self.placed.append(JobProgram(each.program.code, start, checked=False))
            start += rounded(len(each.program.code))
        self.steps, self.table_offset, self.table = steps, start, self._table(steps)

    @property
    def window(self) -> int:
        """Bytes of the window."""
        return rounded(self.table_offset + len(self.table), PAGE)

    @property
    def kept(self) -> int:
        """Bytes of the adapters, their state and the moments."""
        kept = (STATE, *self.moments)
        return max(self.layout[name] + rounded(self.layout.sizes[name]) for name in kept)

    def memory(self, model: LanguageModel) -> dict[str, int]:
        """Bytes of the board's memory by class.

        They include the job's header and its log.
        """
        sizes, measured, caches = dict(self.layout.sizes), 0, 0
        adapters = {each.adapter.name for each in self.operations if isinstance(each, Update)}
        kept = {f"{number}:{tensor.name}" for number in range(self.texts) for tensor in self.cached}
        for name in self.layout.sizes:
            stem, _, end = name.rpartition(".")
            if stem in adapters and end in FRACS[2:]:
                measured += rounded(sizes.pop(name))
            elif name in kept:
                caches += rounded(sizes.pop(name))
        state = rounded(sizes.pop(STATE))
        found = by_class(sizes, model) | {
            "forward_cache": caches,
            "state": state,
            "measured": measured,
            "step_tensors": self.shared,
            "programs": sum(rounded(len(each.code)) for each in self.placed),
            "step_table": len(self.table),
        }
        found["page_rounding"] = page_rounding(found)
        return _told(found, self.cached) | {"job_log": log_bytes(self.steps)}

    def _table(self, steps: int) -> bytes:
        """The table of steps.

        A row has a program's number, offsets of :attr:`names`, and columns of the optimiser.
        """
        layout, (_, rules) = self.layout, scheduled(self.operations)
        columns = ["program", *self.names, *schedule(rules, 1)]
        variables = {name: index for index, name in enumerate(columns)}
        for number, name in enumerate(self.exponents.constants):
            for place, which in enumerate(FRACS):
                variables[f"{name}.{which}"] = len(columns) + number * STATE_BYTES // 4 + place
        return StepTable(
            programs=tuple(values_of(each.patches, variables) for each in self.programs),
            rows=tuple(
                (
                    int(len(self.programs) > 1 and step >= self.texts),
                    *(layout[f"{self.order[step] if self.order else step % self.texts}:{name}"] for name in self.names),
                    *schedule(rules, step + 1, self.rates.factor(step + 1)).values(),
                )
                for step in range(steps)
            ),
            adapters=self._measured(),
            state=layout[STATE],
        ).encoded()

    def _measured(self) -> tuple[AdapterPlaces, ...]:
        """Places of what is measured, in the order of the state."""
        return tuple(
            AdapterPlaces(
                tuple((self.layout[f"{name}.{each}"], self.layout.sizes[f"{name}.{each}"] // 4) for each in FRACS),
                given.x,
                given.w,
                given.dy,
            )
            for name, given in self.exponents.constants.items()
        )


def page_rounding(found: Mapping[str, int]) -> int:
    """Bytes of the window in no class.

    Programs begin at a page, and the window ends at one.
    """
    ends = sum(found[name] for name in ("programs", "step_table"))
    start = sum(found.values()) - ends
    return rounded(rounded(start, PAGE) + ends, PAGE) - start - ends


def _told(found: dict[str, int], cached: Sequence[object]) -> dict[str, int]:
    """Classes that there are, with the header."""
    if not cached:
        found.pop("forward_cache")
    return found | {"job_header": HEADER_BYTES}


def log_bytes(steps: int) -> int:
    """Bytes of a job's log, behind the window."""
    return rounded(RECORD_BYTES * steps)


def row_bytes(cached: bool, rule: float | AdamW) -> int:
    """Bytes that a step has in the table of steps.

    They are a program, places of a text, and four constants of each rule, A's and B's.
    """
    return 4 * (3 + cached + 8 * isinstance(rule, AdamW))


@dataclass(frozen=True, kw_only=True)
class Shape:
    """All that the memory of a fine-tune depends on.

    Parameters
    ----------
    model : LanguageModel
    ranks : tuple of (str, int)
        Rank of the adapter of a linear, by name.
    vectors : tuple of str
        Modules with a learnt vector.
    made : bool
        Whether the step makes each adapter's B: LoRA-XS.
    first : int
        The lowest layer that learns.
    tokens : int
        Of a text.
    adamw : bool
        Else SGD.
    store : str
        Format of what learns between steps.
    accumulate : int
        Texts of an update.
    texts, steps : int
        Texts that are in memory, and updates.
    """

    model: LanguageModel
    ranks: tuple[tuple[str, int], ...] = ()
    vectors: tuple[str, ...] = ()
    made: bool = False
    first: int = 0
    tokens: int = 64
    adamw: bool = True
    store: str = "words"
    accumulate: int = 1
    texts: int = 1
    steps: int = 1

    def __post_init__(self) -> None:
        # As a machine has them.
        object.__setattr__(self, "model", filled(self.model))
        object.__setattr__(self, "ranks", tuple((name, paired(rank)) for name, rank in self.ranks))

    @property
    def on_card(self) -> bool:
        """Whether a memory card takes it: its adapters are words, its texts of one block."""
        words = not self.vectors and not self.made and self.store == "words"
        return words and self.accumulate == 1 and self.tokens <= EDGE

    @property
    def rule(self) -> float | AdamW:
        """With any rate: bytes do not depend on it."""
        return AdamW(lr=1e-3) if self.adamw else 1e-3

    def operations(
        self, config: LanguageConfig, *, kept: bool = False, updates: bool = True
    ) -> tuple[StepOperations, list[Operation]]:
        """The step and its operations, for a machine.

        With ``kept`` they begin at the lowest layer that learns.
        """
        ranks, layers = dict(self.ranks), range(self.first if kept else 0, self.model.layers)
        step = StepOperations(
            self.model,
            self.tokens,
            ranks,
            layers,
            vectors=frozenset(self.vectors),
            texts=self.accumulate,
            made=frozenset(ranks) if self.made else (),
            head_part=config.head_part,
        )
        rule, scales = self.rule if updates else None, dict.fromkeys(ranks, 2.0)
        return step, training_operations(step, scales, rule, texts=self.accumulate, wide=STORES[self.store])

    @property
    def cached(self) -> list[Tensor]:
        """What is kept of a text."""
        wide = NormsOfLayers(self.model).wide
        return [Tensor(f"{self.first}.x", self.tokens, self.model.hidden, wide)] if self.first else []


def shape_of(request: BudgetRequest, *, accumulate: int = 1, texts: int = 1, steps: int = 1) -> Shape:
    """Of a request."""
    modules = METHODS[request.method].modules(
        request.model, request.targets, range(request.from_layer, request.model.layers)
    )
    ranked = request.known.ranked
    return Shape(
        model=request.model,
        ranks=tuple((name, request.rank) for name in modules) if ranked else (),
        vectors=() if ranked else tuple(modules),
        made=request.method == LORA_XS.name,
        first=request.from_layer,
        tokens=request.seq,
        adamw=request.optimizer == "adamw",
        store=request.store,
        accumulate=accumulate,
        texts=texts,
        steps=steps,
    )


def planned_job(shape: Shape, config: LanguageConfig) -> JobLayout:
    """A job of values that are unknown."""
    step, operations = shape.operations(config)
    frac = exponents(operations)
    found, ranks = constants(operations, frac), dict(shape.ranks)
    given = {name: found[name] for name in ranks}
    chosen = Rechosen(given, {f"{name}.{each}": frac[f"{name}.{each}"] for name in given for each in FRACS})
    layout, own = Layout(), (step.input.name, TARGETS)
    sizes = residents(operations, step, config.data_bits // 8)
    for name in given:
        for which in "ab":
            layout.place(f"{name}.{which}", sizes.pop(f"{name}.{which}"))
    layout.place(STATE, STATE_BYTES * len(given))
    for name in given:
        for which in "ab":
            layout.place(f"{name}.m{which}", sizes.pop(f"{name}.m{which}"))
    for name in own:
        size = sizes.pop(name)
        for number in range(shape.texts):
            layout.place(f"{number}:{name}", size)
    for name, size in sizes.items():
        layout.place(name, size)
    made = JobLayout(
        layout=layout,
        operations=operations,
        own=own,
        cached=shape.cached,
        exponents=chosen,
        moments=[f"{name}.m{which}" for name in given for which in "ab"],
        texts=shape.texts,
    )
    made.rest(shape.tokens, config.data_bits // 8)
    kinds = [operations]
    if shape.first and shape.steps > shape.texts:
        kinds.append(shape.operations(config, kept=True)[1])
    made.write(kinds, frac, config, shape.steps)
    return made


def planner(config: LanguageConfig, **counts: int) -> Callable[[BudgetRequest], Mapping[str, int]]:
    """What lays out requests for a plan; ``counts``: of :func:`shape_of`."""

    def laid(request: BudgetRequest) -> Mapping[str, int]:
        # Adapters that are stored as codes need the machine to have packing, as their fine-tune gives it.
        made = suited(config, request.model, rank=request.rank, targets=request.adapted, packing=1)
        return laid_out(shape_of(request, **counts), made)

    return laid


@lru_cache(maxsize=64)
def laid_out(shape: Shape, config: LanguageConfig) -> dict[str, int]:
    """Bytes of the board's memory by class, as the job is laid out.

    A fine-tune that no card takes has neither a table of steps nor exponents that change.
    """
    if shape.on_card:
        return planned_job(shape, config).memory(shape.model)
    step, operations = shape.operations(config)
    found = by_class(residents(operations, step, config.data_bits // 8), shape.model)
    found["texts"] *= shape.texts
    found["forward_cache"] = sum(rounded(4 * each.rows * each.features) for each in shape.cached) * shape.texts
    kinds: list[dict[str, bool]] = [{}]
    if shape.first and shape.steps * shape.accumulate > shape.texts:
        kinds.append({"kept": True})
    if shape.accumulate > 1:
        kinds += [{**each, "updates": False} for each in kinds]
    measure = program_bytes if shape.tokens <= EDGE else counted_bytes
    programs = [measure(shape, config, **each) for each in kinds]
    found["measured"] = sum(rounded(size) for size in measured_sizes(shape).values())
    found["step_tensors"] = max(tensors for tensors, _ in programs)
    found["programs"] = sum(rounded(code) for _, code in programs)
    return _told(found, shape.cached) | {"adapter_copies": 2 * (STORE_HEADER + found["adapters"])}


def program_bytes(shape: Shape, config: LanguageConfig, **kind: bool) -> tuple[int, int]:
    """Bytes of a step's own tensors, and of its program."""
    made = lowered(shape, config, **kind)
    return made.layout.shared_bytes, len(made.program.code)


def counted_bytes(shape: Shape, config: LanguageConfig, **kind: bool) -> tuple[int, int]:
    """The same of a text of several blocks, whose program would take minutes: by its operations, and by one block's."""
    step, operations = shape.operations(config, **kind)
    own = {*residents(operations, step, config.data_bits // 8), *measured_sizes(shape)}
    own.update(each.name for each in shape.cached)
    count = len(step.blocks)
    _, block = program_bytes(replace(shape, tokens=EDGE), config, **kind)
    pairs = shape.model.heads * len(step.layers) * count * (count - 1) // 2
    return peak_bytes(operations, exponents(operations), own), count * block + _PAIR * pairs


@dataclass(frozen=True)
class LoweredJob:
    """A program of a step and its layout."""

    program: Assembler
    layout: Layout


def measured_sizes(shape: Shape) -> dict[str, int]:
    """Bytes of the tensors that are measured between steps, by name."""
    linears = {each.name: each for each in shape.model.linears}
    found: dict[str, int] = {}
    for name, rank in shape.ranks:
        if not shape.made:
            found[f"{name}.ga"] = 4 * rank * linears[name].inputs
        found[f"{name}.gb"] = 4 * rank * linears[name].outputs
        found |= dict.fromkeys((f"{name}.h", f"{name}.dh"), 4 * shape.tokens * rank)
    return found


def lowered(shape: Shape, config: LanguageConfig, *, kept: bool = False, updates: bool = True) -> LoweredJob:
    """The program of a step.

    ``kept``: from the lowest layer that learns on; ``updates``: adapters change behind it.
    """
    _, operations = shape.operations(config, kept=kept, updates=updates)
    layout = Layout()
    layout.place(HEAD_MATRIX, 2 * -(-shape.model.vocab // EDGE) * EDGE * shape.model.hidden)
    for name, size in measured_sizes(shape).items():
        layout.place(name, size)
    for tensor in shape.cached:
        layout.tensor(tensor)
    return LoweredJob(lower(operations, exponents(operations), layout, config, share=True), layout)
