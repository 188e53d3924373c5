"""Writes commands of the adapters' steps: forward to update."""

from collections.abc import Sequence
from typing import Any

from gradloom.program.assembler import Assembler, pack
from gradloom.program.operations import Reading
from gradloom.rtl.engines.array.commands import RECORD_ARG, ArrayOpcode
from gradloom.rtl.engines.head.commands import HeadOpcode
from gradloom.rtl.machines.images import ARRAY, HEAD
from gradloom.rtl.shell.engines import LOAD, STORE

from ..operations import Descent, Loss, Product, descents, judged
from .lowered import Lowered
from .schedule import ScheduledBatch
from .tokens import ProgramToken

__all__ = ["AdapterWriter"]

#: Books that the array holds after reset: 4-bit codes; high nibbles of 8-bit codes, those of the low ones come next.
BOOK_NF4, BOOK_INT8 = 0, 2


class AdapterWriter(Reading):
    """Writes a microbatch's part of a program from its operations."""

    step: ScheduledBatch
    half: int

    def __init__(self, lowered: Lowered, asm: Assembler) -> None:
        self.low = lowered
        self.asm = asm
        self.judged, self.descents = judged(len(lowered.taps)), descents(len(lowered.taps))

    def store(
        self,
        source: int,
        offset: int,
        beats: int,
        slots: tuple[int, int] | None = None,
        *,
        wait: tuple[int, ...] = (),
        post: tuple[int, ...] = (),
    ) -> None:
        """STORE of ``beats`` beats from the port ``source`` to ``offset``."""
        self.asm.add(STORE, 0, offset=offset, beats=beats, source=source, arg=0, slots=slots, wait=wait, post=post)

    def fetch(self, where: Sequence[int], labels: int, half: int, free: bool) -> None:
        """Loads a microbatch's records and labels into ``half``.

        ``free``: once the step before last has left it.
        """
        low, asm = self.low, self.asm
        asm.add(
            LOAD,
            0,
            offset=labels,
            beats=2,
            dest=HEAD.load("labels"),
            arg=half,
            wait=(ProgramToken.HALF_FREE,) if free else (),
        )
        for row, record in enumerate(where):
            arg = pack(
                RECORD_ARG,
                {"row": row, "half": half, "codes": low.record_scales, "logits": low.record_scales + low.record_codes},
            )
            asm.add(
                LOAD,
                0,
                offset=record,
                beats=low.record_beats,
                dest=ARRAY.load("record"),
                arg=arg,
                post=(ProgramToken.RECORDS,) if row == len(where) - 1 else (),
            )

    def forward(
        self,
        step: ScheduledBatch,
        half: int,
        loss: int | None,
        *,
        apply: bool = True,
        after: tuple[int, ...] = (),
        done: tuple[int, ...] = (ProgramToken.GRADIENT,),
    ) -> None:
        """Adapters' forward and loss of a microbatch.

        ``apply``: B learns from it. ``after``: tokens that it waits for beside its records. ``done``: those that it
        posts.
        """
        self.step, self.half, self.apply, self.after, self.done = step, half, apply, after, done
        self.run(self.judged)
        if loss is not None:
            self.store(HEAD.store("losses"), loss, 1)

    def backward(self, step: ScheduledBatch, half: int, final: bool) -> None:
        """Gradients and update of a microbatch; ``final``: of the last one."""
        self.step, self.half, self.learnt = step, half, ProgramToken.LEARNT if final else ProgramToken.HALF_FREE
        self.run(self.descents)

    def _product(self, operation: Product) -> None:
        self._passes(
            ArrayOpcode.FORWARD,
            operation.tap,
            (ProgramToken.RECORDS, *self.after),
            ProgramToken.HIDDEN,
            phase="forward",
        )

    def _loss(self, operation: Loss) -> None:
        low, step = self.low, self.step
        self.asm.add(
            HEAD,
            HeadOpcode.STEP,
            wait=(ProgramToken.HIDDEN,),
            post=self.done,
            samples=len(step.samples),
            k=low.k,
            classes=low.classes,
            v_mode=step.v_mode,
            apply=step.last and self.apply,
            first=step.first,
            last=step.last,
            half=self.half,
            scale=step.scale,
            q=step.q,
            mu=step.mu,
        )

    def _descent(self, operation: Descent) -> None:
        if operation.tap is None:
            return  # The head's command has changed B, whose gradient it makes with the loss.
        step = self.step
        self._passes(
            ArrayOpcode.GRADIENT,
            operation.tap,
            (ProgramToken.GRADIENT,),
            self.learnt,
            phase="gradient",
            q=step.q,
            v_mode=step.v_mode,
            apply=step.last,
            mu=step.mu,
        )

    def _passes(self, opcode: ArrayOpcode, index: int, begin: tuple[int, ...], end: int, **more: Any) -> None:
        """A pass over a tap for each part of its rank.

        The first of a microbatch waits, the last one posts.
        """
        low, tap = self.low, self.low.taps[index]
        for part, lane in enumerate(tap.lanes_at):
            virtual = index * low.parts + part
            self.asm.add(
                ARRAY,
                opcode,
                wait=begin if virtual == 0 else (),
                post=(end,) if virtual == len(low.taps) * low.parts - 1 else (),
                **more,
                elements=tap.elements,
                tap=virtual,
                half=self.half,
                samples=len(self.step.samples),
                wide=low.wide,
                book=BOOK_INT8 if low.wide else BOOK_NF4,
                bank=low.block_beats * tap.first_block,
                scale=tap.first_block,
                lane=lane,
            )
