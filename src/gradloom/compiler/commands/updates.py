"""AdamW on the masters of what learns, and their new codes."""

from gradloom.program.descent import AdamW
from gradloom.program.tiles.drafts import Hold
from gradloom.program.tiles.jobs import LoadJob, StoreJob, TileJob
from gradloom.rtl.engines.update.commands import UpdateOpcode
from gradloom.rtl.engines.update.parameters import UPDATE_BEATS
from gradloom.rtl.formats.adamw import gradient_argument
from gradloom.rtl.formats.tiles.codes import WIDE
from gradloom.rtl.formats.tiles.element import ElementOpcode
from gradloom.rtl.formats.tiles.records import BEAT, tile_argument

from .base import Base, Learner, Rule

__all__ = ["Updates", "descent"]

#: Codes have the upper bits of a gradient's word of 24.
_GRADIENT = 24 - WIDE


def descent(rule: AdamW, step: int, fraction: int) -> dict[str, int]:
    """Operands of AdamW in step ``step``, for masters of ``fraction`` bits."""
    given = rule.operands(step, 0, fraction)
    return given | {"gradient": given["gradient"] - _GRADIENT}


class Updates(Base):
    """Writes the update of all that learns."""

    def update(self) -> dict[int, Rule]:
        """AdamW on every record, then its codes.

        Returns the rule of each command, by the offset of its words.
        """
        rules = {}
        # Gradients of the last layers are there first.
        for each in reversed(self.learners.values()):
            for at in each.gradient.places():
                record, words = each.gradient.record(*at[:2]), each.words
                lanes, length, first = words.lanes(at[1]), words.length(*at[:2]), words.at(*at)
                # The engine has room for so many rows of words of a command.
                most = max(UPDATE_BEATS * BEAT // (4 * lanes), 1)
                own, moments = words.words + 4 * first, words.moments + 8 * first
                parts = []
                for row in range(0, record.rows, most):
                    count = min(most, record.rows - row)
                    parts.append(own + 4 * lanes * row)
                    self._moved(each, at, row, (count, lanes), parts[-1], moments + 8 * lanes * row)
                    rules[parts[-1]] = each.rule
                self._anew(each, at, LoadJob("words", own, 4 * length, after=tuple(parts)))
        return rules

    def _moved(
        self, each: Learner, at: tuple[int, int, int], row: int, shape: tuple[int, int], words: int, moments: int
    ) -> None:
        """AdamW on rows of the gradient's record of a tile; ``shape``: rows, and words of each."""
        record, header = each.gradient.record(*at[:2]), int(row == 0)
        count, lanes = shape
        first, size = each.gradient.at(*at), 4 * lanes * count
        begin = first + (0 if header else BEAT * (1 + row * record.row_beats))
        codes = BEAT * (count * record.row_beats + header)
        arg = gradient_argument(record.features, header=bool(header))
        given = {"beats": size // BEAT} | descent(each.rule.rule, 1, each.rule.fraction)

        def build(job: TileJob, slot: int, hold: Hold) -> None:
            # The engine keeps the exponent of a record's first rows.
            job.streams, job.waits, job.chained = True, False, True
            job.loads = [
                LoadJob("directions", begin, codes, arg, after=(first,)),
                LoadJob("words", words, size),
                LoadJob("moments", moments, 2 * size),
            ]
            job.commands = [(UpdateOpcode.ADAMW_CODES, given)]
            job.stores = [StoreJob("moments", moments, 2 * size), StoreJob("words", words, size)]

        self.tiler.add("update", build, results=0)

    def _anew(self, each: Learner, at: tuple[int, int, int], load: LoadJob) -> None:
        """A tile of codes from its masters."""
        codes, record = each.codes, each.codes.record(*at[:2])

        def build(job: TileJob, slot: int, hold: Hold) -> None:
            job.streams = True
            job.loads = [load]
            given = {"rows": record.rows - 1, "features": record.features - 1, "o": slot, "fresh": 1}
            job.commands = [(ElementOpcode.WORDS, given | {"exponent": -each.rule.fraction})]
            arg = tile_argument(slot, record.rows, record.features, wide=codes.bits == WIDE)
            job.stores = [StoreJob("o", codes.at(*at), record.size, arg, slot)]

        self.tiler.add("element", build)
