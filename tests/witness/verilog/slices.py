"""AMD's simulation models of DSP48E1 and DSP48E2: a stand-in around one gives what its unit gives, in every cycle."""

# amaranth: UnusedElaboratable=no
from gradloom.rtl.emit.verilog import convert
from gradloom.rtl.systolic.pe import PE

from ...systolic.test_slices import HERE, ONLY_E2, UNITS
from .clocked import counted, models

__all__ = ["FILES", "OF", "hear", "subject"]

#: What is counted.
OF = "cycles"
FILES = ("unisim/DSP48E1.v", "unisim/DSP48E2.v", "unisim/glbl.v")
_CELLS = {"xc7": "DSP48E1", "xcup": "DSP48E2"}
_CYCLES = 20_000


def subject():
    """Units and their stand-ins for each family, as they are emitted, by bench and file."""
    made = {"pe_bench/behaviour.v": convert(PE(), name="behaviour").files["behaviour"]}
    for family in _CELLS:
        made[f"pe_bench/{family}/sliced.v"] = PE().primitive(family=family, name="sliced")
    for name, make in UNITS.items():
        made[f"slices_bench/{name}.v"] = convert(make(), name=f"{name}_behaviour").files[f"{name}_behaviour"]
        for family in _CELLS:
            if family == "xcup" or name not in ONLY_E2:
                made[f"slices_bench/{family}/{name}.v"] = make().primitive(family=family, name=f"{name}_sliced")
    return made


def _differing(witness, family, bench, folder):
    """Cycles in which a stand-in and its unit differ."""
    define = "`define NO_ROUND\n" * (family == "xc7")
    sources = models(witness, [_CELLS[family]]) | {"bench.v": define + (HERE / f"{bench}.v").read_text()}
    for name, text in subject().items():
        where, *middle, file = name.split("/")
        if where == bench and middle in ([], [family]) and (family == "xcup" or file[:-2] not in ONLY_E2):
            sources["_".join((*middle, file))] = text
    folder.mkdir()
    return counted(bench, sources, cycles=_CYCLES, least=_CYCLES // 2, folder=folder)


def hear(witness, folder):
    """What the models say: by cell, cycles in which a stand-in and its unit differ, and cycles compared."""
    said = {}
    for family, cell in _CELLS.items():
        differing = [
            _differing(witness, family, bench, folder / f"{bench}_{family}") for bench in ("slices_bench", "pe_bench")
        ]
        said[cell] = {"differing": sum(differing), "compared": _CYCLES * len(differing)}
    return said
