"""Records a preset's short run, and writes its SAIF file."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from gradloom.output import check_file, staged_file
from gradloom.preset import Preset
from gradloom.rtl.emit.digest import design_digest
from gradloom.workload import Progress, silent

from ..run.builds.designs import Design
from ..run.recording import recorded
from .runs import ActivityRequest
from .saif import read_activity, write_saif
from .summary import NetActivity, PartActivity, activity_of, figures, most_active, named_parts

__all__ = ["SAMPLES", "Activity", "record"]


class Activity(NetActivity):
    """Switching activity of a run; ``engines`` and the parts that are ``most_active`` by row."""

    preset: str
    run: str
    cycles: int
    clock_mhz: float
    microseconds: float
    toggles: int
    engines: list[PartActivity]
    most_active: list[PartActivity]
    design: str
    saif: str | None
    instance: str


#: Images or sequences of a run, where nothing else is asked for.
SAMPLES = 4

#: Bytes that a SAIF file may take.
_ROOM = 1 << 28


def record(
    preset: Preset,
    saif: Path | None,
    *,
    design: Path | str | None = None,
    samples: int = SAMPLES,
    rank: int | None = None,
    cache: str | None = None,
    path: Sequence[str] = (),
    progress: Progress | None = None,
) -> Activity:
    """Switching activity of a preset's short run in simulated RTL.

    Parameters
    ----------
    preset : Preset
        Whose workload has the verb ``energy``.
    saif : Path, optional
        Gets the SAIF file.
    design : path, optional
        Folder of an earlier ``generate`` whose Verilog runs.
    samples : int
        Images or sequences of the run.
    rank, cache : optional
        Of the run's adapters, and format of its forward cache, where the preset's are not meant.
    path : sequence of str
        Instances from the file's outermost to the design's own.
    progress : callable, optional
        Hears the progress.
    """
    if saif is not None:
        check_file(saif, name="saif", suffix=".saif", needs=_ROOM)
    if samples < 1:
        raise ValueError(f"samples={samples}: must be at least 1")
    tell = progress or silent
    chosen = Design(preset, design)
    chosen.check()
    files = chosen.files(lambda text: tell(0, 0, text))
    with tempfile.TemporaryDirectory(prefix="gradloom.") as folder:
        with recorded(Path(folder)) as recording:
            request = ActivityRequest(
                design=chosen, samples=samples, rank=rank, cache=cache, scratch=Path(folder) / "out", tell=tell
            )
            text = preset.workload.function("energy")(request)
        tell(0, 0, "counting transitions")
        found = read_activity(Path(folder)).find("dut")
    cycles, config, digest = recording.cycles, chosen.preset.config, design_digest(chosen.made or files)
    assert cycles
    whole = activity_of(found, files, "gradloom")
    if saif is not None:
        tell(0, 0, f"writing {saif}")
        with staged_file(saif) as file:
            write_saif(file, found, cycles=cycles, clock_mhz=config.clock_mhz, design=(preset.name, digest), path=path)
    return {
        "preset": preset.name,
        "run": text,
        "cycles": cycles,
        "clock_mhz": config.clock_mhz,
        "microseconds": round(cycles / config.clock_mhz, 2),
        "toggles": whole.toggles,
        **figures(whole.nets, whole.toggles, cycles),
        "engines": named_parts(whole, [each.name for each in config.machine.engines.own], cycles),
        "most_active": most_active(whole, cycles),
        "design": digest,
        "saif": None if saif is None else str(saif),
        "instance": "/".join(path),
    }
