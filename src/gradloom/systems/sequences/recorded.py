"""Options of a folder of recordings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gradloom.models.recordings import Cut
from gradloom.options import Bounds, Options, option

__all__ = ["RecordedOptions"]


@dataclass(frozen=True, kw_only=True)
class RecordedOptions(Options):
    """How a folder's recordings become sequences."""

    window: int | None = option(
        "Steps of a sequence that is cut out of a folder's recordings.", usual="a whole recording", bounds=Bounds(1)
    )
    hop: int | None = option("Steps from one window to the next.", usual="window", bounds=Bounds(1))
    columns: str | None = option("Columns of a folder's CSV files.", metavar="NAME,…", usual="all")
    sound: str | None = option(
        "Features of a folder's WAV files: logmel or mfcc, with constants that differ from "
        "rate=16000,window=30,hop=20,mels=40,low=20,high=4000,coefficients=10 (Hz, ms).",
        metavar="KIND[,NAME=N]…",
        usual="its files are CSV",
    )

    def cut(self, learnt: Mapping[str, Any] | None = None) -> Cut:
        """The options as the reader takes them.

        ``learnt``: a fine-tune's request, which holds where no option is given.
        """
        own = {name: getattr(self, name) for name in RecordedOptions.known()}
        if learnt is not None and not any(value is not None for value in own.values()):
            own = {name: learnt.get(name) for name in own}
        return Cut(**own)
