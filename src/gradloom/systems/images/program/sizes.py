"""Sizes of a design: all that a network exceeds, and the samples of a block at power-up."""

from gradloom.program.memory import BLOCK
from gradloom.rtl.machines.configs.images import ImageConfig

from .lowered import BEAT, Lowered

__all__ = ["LABELS", "Needs", "SizeError", "place_of", "samples_of_block"]

#: Bytes of the labels of a microbatch.
LABELS = 2 * BEAT
#: Microbatches of a block: each has a half of the memories for what is learnt from.
_PARTS = 2


class SizeError(ValueError):
    """A network does not fit a design.

    ``changes``: fields of the configuration with their smallest legal values that hold the network together, and what
    each is for; None where no design of the family does.
    """

    def __init__(self, message: str, changes: dict[str, tuple[int, str]] | None) -> None:
        super().__init__(message)
        self.changes = changes


class Needs:
    """Collects the sizes that a network needs of a design.

    Parameters
    ----------
    network : str
    rank : int
    config : ImageConfig
    """

    def __init__(self, network: str, rank: int, config: ImageConfig) -> None:
        self.rank = rank
        self.what = f"{network} at rank {rank}"
        self.config = config
        self._short: dict[str, tuple[int, str]] = {}
        self._beyond: list[str] = []

    def field(self, field: str, needs: int, unit: str, layer: str = "") -> None:
        """``needs`` of a field of the configuration, in words: ``unit``."""
        if needs <= getattr(self.config, field):
            return
        where = f"{layer}: " if layer else ""
        least = ImageConfig.smallest(field, needs)
        if least is None:
            self.never(f"{where}{needs:,} {unit} (at most {ImageConfig.largest(field):,})")
        elif needs > self._short.get(field, (0, ""))[0]:
            self._short[field] = needs, f"{where}{needs:,} {unit}"

    def fixed(self, needs: int, most: int, unit: str, layer: str = "") -> None:
        """``needs`` of something of which every design has ``most``."""
        if needs > most:
            self.never(f"{layer + ': ' if layer else ''}{needs:,} {unit} (at most {most:,})")

    def adapters(self, layers: int) -> None:
        """An adapter a layer, each in parts of the design's rank."""
        config = self.config
        count = layers * -(-self.rank // config.rank)
        unit = f"adapters of rank {config.rank}"
        if ImageConfig.smallest("taps", count) is not None:
            self.field("taps", count, unit)
            return
        # Panels with more ranks and fewer elements make fewer parts, in as many columns.
        wider = config.columns // 2
        fewer = layers * -(-self.rank // wider)
        hint = (
            ""
            if config.panels == 2 or fewer > ImageConfig.largest("taps")
            else (f"; {fewer} of rank {wider} with --set panels=2 --set rank={wider}")
        )
        self.never(f"{count} {unit} (at most {ImageConfig.largest('taps')}{hint})")

    def never(self, what: str) -> None:
        """Something that no design of the family has."""
        if what not in self._beyond:
            self._beyond.append(what)

    def check(self) -> None:
        """Raises :class:`SizeError` if anything is too small."""
        if self._beyond:
            raise SizeError(f"{self.what} is beyond the maxima of every design: {'; '.join(self._beyond)}", None)
        if not self._short:
            return
        changes: dict[str, tuple[int, str]] = {}
        for field, (needs, why) in self._short.items():
            least = ImageConfig.smallest(field, needs)
            assert least is not None
            changes[field] = least, why
        each = ", ".join(
            f"{field}={least} ({why}, this design has {getattr(self.config, field):,})"
            for field, (least, why) in changes.items()
        )
        raise SizeError(
            f"{self.what} needs {each}: gradloom generate MODEL --rank {self.rank} makes a design "
            f"with them, or give "
            f"{' '.join(f'--set {field}={least}' for field, (least, _) in changes.items())}",
            changes,
        )


def samples_of_block(lowered: Lowered) -> int:
    """Samples of a block.

    They are a group of the design's rows, or two where a block has room for them.
    """
    rows = lowered.config.rows
    place = place_of(lowered)
    for parts in (_PARTS, 1):
        needs = parts * (rows * place + LABELS) + BEAT
        if needs <= BLOCK:
            return parts * rows
    raise ValueError(f"rows={rows}: samples of {place} bytes with their labels need {needs} bytes, a block has {BLOCK}")


def place_of(lowered: Lowered) -> int:
    """Bytes of a sample: those of its image, then of its record."""
    return max(4 * lowered.image_words, BEAT * lowered.record_beats)
