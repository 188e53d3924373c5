"""Proves claims by Yosys, ABC and a SAT solver.

Three methods:

``induction``  k-induction: it holds in the first k cycles, and k cycles in which it holds are followed by another.
               The step by a SAT solver, the beginning by ABC. Unbounded.
``reach``      property-directed reachability: ABC finds an inductive invariant of its own. Unbounded.
``bounded``    ABC: no run of ``depth`` cycles from the start breaks it. Says nothing of longer ones.
"""

import dataclasses
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from gradloom.rtl.emit.yosys import yosys_files

from .step import Aiger, step

__all__ = ["Circuit", "Verdict", "check_claim", "solver_missing"]

ABC = yosys_files() / "yosys-abc"

_YOSYS = """\
import sys
from pyosys import libyosys as ys
design = ys.Design()
for command in sys.stdin:
    ys.run_pass(command.rstrip(), design)
"""

_READ = """\
read_rtlil claim.il
hierarchy -check -top claim
proc
"""

_COMMON = f"""\
{_READ}\
flatten
opt -full
{{cut}}
opt_clean
memory_collect
memory_nordff
check -assert
opt -full
setundef -undriven -anyseq
write_rtlil flat.il
"""

_BITS = """\
memory_map
async2sync
opt -full
dffunmap
simplemap
techmap -map carries.v -map +/techmap.v
opt_clean
dffunmap
simplemap
opt_clean
aigmap
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """Result of a prover.

    ``holds``: proven, with ``method`` and ``depth``; False: refuted, in cycle ``depth``; None: neither.
    """

    holds: bool | None
    method: str
    depth: int | None
    seconds: float
    detail: str = ""


def solver_missing():
    """Whether the SAT solver of k-induction is not here."""
    return importlib.util.find_spec("pysat") is None


def check_claim(claim, directory):
    """Lets Yosys read a claim; ``RuntimeError`` if it refuses it. A :class:`Circuit` flattens and optimises it, too."""
    (Path(directory) / "claim.il").write_text(claim.rtlil())
    _yosys(_READ, directory)


def _yosys(script, directory):
    run = subprocess.run(
        [sys.executable, "-P", "-c", _YOSYS], input=script, cwd=directory, text=True, capture_output=True
    )
    if run.returncode:
        raise RuntimeError("Yosys: " + "; ".join((run.stdout + run.stderr).strip().splitlines()[-12:]))


class Circuit:
    """A claim, made into circuits in ``directory``.

    ``cut``: commands of Yosys that free parts of it; what holds then holds with them.
    """

    def __init__(self, claim, directory, cut=()):
        if not claim.names:  # lemmas alone say nothing
            raise ValueError("nothing is claimed")
        self.claim, self.directory = claim, Path(directory)
        shutil.rmtree(self.directory, ignore_errors=True)  # circuits of an earlier claim would be taken for ours
        self.directory.mkdir(parents=True)
        (self.directory / "claim.il").write_text(claim.rtlil())
        (self.directory / "products.v").write_text(_PRODUCTS)
        (self.directory / "carries.v").write_text(_CARRIES)
        _yosys(_COMMON.format(cut="\n".join(cut)), self.directory)

    def prove(self, method, depth, seconds=600):
        """Tries to show that everything holds."""
        begin = time.monotonic()
        holds, at, detail = {"induction": self._induction, "reach": self._reach, "bounded": self._bounded}[method](
            depth, seconds
        )
        return Verdict(holds=holds, method=method, depth=at, seconds=time.monotonic() - begin, detail=detail)

    def refute(self, depth, seconds=600):
        """Searches for a run of at most ``depth`` cycles that breaks a claim.

        Lemmas are left out.
        """
        begin = time.monotonic()
        holds, at, detail = self._bounded(depth, seconds, kind="assert")
        return Verdict(holds=holds, method="bounded", depth=at, seconds=time.monotonic() - begin, detail=detail)

    def uncovered(self, depth, seconds=600):
        """Names of what no run of ``depth`` cycles was found to meet."""
        if not self.claim.covers:
            return []
        file, names = self._bits("cover")
        said = self._abc(f"read_aiger {file}; fold; strash; bmc3 -a -F {depth} -T {seconds}", seconds)
        met = {int(number) for number in re.findall(r"Output +(\d+) +was asserted", said)}
        return [name for number, name in enumerate(names) if number not in met]

    def leads(self, source, target):
        """Whether wire ``target`` follows wire ``source`` in the same cycle.

        The path has any cells but registers.
        """
        _yosys(
            "read_rtlil flat.il\ncd claim\n"
            f"select -set cone w:{target} %ci*:-$dff,$dffe,$sdff,$sdffe,$sdffce\n"
            f"select -write leads.txt @cone w:{source} %i\n",
            self.directory,
        )
        return bool((self.directory / "leads.txt").read_text().strip())

    def _reach(self, depth, seconds):
        file, _ = self._bits("assert")
        said = self._abc(f"read_aiger {file}; fold; strash; orpos; pdr -T {seconds}", seconds)
        if "Property proved" in said:
            return True, None, ""
        if found := re.search(r"Output 0 of miter .* was asserted in frame (\d+)", said):
            return False, int(found[1]), ""
        return None, None, said.strip().splitlines()[-1] if said.strip() else "out of time"

    def _bounded(self, depth, seconds, kind="lemma"):
        file, names = self._bits(kind)
        said = self._abc(f"read_aiger {file}; fold; strash; bmc3 -F {depth} -T {seconds}", seconds)
        if found := re.search(r"Output +(\d+) .*was asserted in frame (\d+)", said):
            return False, int(found[2]), names[int(found[1])]
        frames = re.search(r"No output asserted in (\d+) frames", said)
        if frames and int(frames[1]) >= depth:
            return True, depth, ""
        return None, int(frames[1]) if frames else None, said.strip().splitlines()[-1] if said.strip() else "no time"

    def _induction(self, depth, seconds):
        holds, at, detail = self._bounded(depth + 1, seconds)
        if not holds:
            return holds, at, detail
        file, names = self._bits("lemma")
        k, left = step(Aiger(self.directory / file), depth, seconds)
        return (None if left else True), k, "; ".join(names[number] for number in left)

    def _bits(self, kind):
        """AIGER file whose bad states are the cells of ``kind``.

        ``"lemma"``: claims too. Also returns their names in order.
        """
        others = {"assert": ("cover", "lemma"), "lemma": ("cover",), "cover": ("assert", "lemma")}[kind]
        file = self.directory / f"{kind}.aig"
        if not file.exists():
            left_out = "\n".join(f"delete c:{other}__*" for other in others)
            script = f"read_rtlil flat.il\n{left_out}\n{_BITS}write_aiger -zinit -ywmap {kind}.json {file.name}\n"
            _yosys(script, self.directory)
        names = json.loads((self.directory / f"{kind}.json").read_text())["asserts"]
        return file.name, [path[-1].split("__", 1)[1] for path in names]

    def _abc(self, commands, seconds):
        return self._run([ABC, "-c", commands], seconds + 30)

    def _run(self, command, seconds):
        """Output of a command.

        It is empty if the command takes too long, and then its child processes end with it. ``RuntimeError`` if a
        signal ended it.
        """
        process = subprocess.Popen(
            command,
            cwd=self.directory,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            said = process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return ""
        if process.returncode < 0:
            # It is no verdict that the system ended the prover, for want of memory for instance.
            raise RuntimeError(f"{command[0]} was ended by {signal.Signals(-process.returncode).name}: {said[-400:]}")
        return said


#: A product is cut to anything at all.
_PRODUCTS = """\
(* techmap_celltype = "$mul" *)
module free_product(A, B, Y);
    parameter A_SIGNED = 0;
    parameter B_SIGNED = 0;
    parameter A_WIDTH = 1;
    parameter B_WIDTH = 1;
    parameter Y_WIDTH = 1;
    input [A_WIDTH-1:0] A;
    input [B_WIDTH-1:0] B;
    output [Y_WIDTH-1:0] Y;
    \\$anyseq #(.WIDTH(Y_WIDTH)) any (.Y(Y));
endmodule
"""

#: Carries from bit to bit, which a solver follows more easily than the fast ones of Yosys.
_CARRIES = """\
(* techmap_celltype = "$lcu" *)
module _80_ripple (P, G, CI, CO);
    parameter WIDTH = 1;
    input [WIDTH-1:0] P, G;
    input CI;
    output [WIDTH-1:0] CO;
    genvar n;
    assign CO[0] = G[0] | (P[0] & CI);
    generate for (n = 1; n < WIDTH; n = n + 1) begin: bits
        assign CO[n] = G[n] | (P[n] & CO[n-1]);
    end endgenerate
endmodule
"""
