"""The step of k-induction, by a SAT solver.

If a rule holds for k cycles from any state of the registers, it holds in the next cycle.

Bit by bit: the circuit as ABC reads it (AIGER), cycle after cycle, to a SAT solver that learns from claim to claim.
"""

import time

__all__ = ["Aiger", "step"]


class Aiger:
    """A circuit of and-gates from a binary AIGER file.

    Attributes
    ----------
    inputs : int
        Variables 1 to ``inputs`` are free; those of ``latches`` follow, then those of ``gates``.
    latches : list of int
        Literals of their next values.
    gates : list of (int, int)
        Literals that each is the conjunction of. A literal is twice a variable, and 1 more for its opposite.
    bad, constraints : list of int
        Literals that must never be true, and that always are.
    """

    def __init__(self, file):
        blob = file.read_bytes()
        end = blob.index(b"\n")
        head = blob[:end].split()
        if head[0] != b"aig":
            raise ValueError(f"{file}: no binary AIGER")
        _, self.inputs, latches, outputs, gates, bad, constraints = (*map(int, head[1:]), 0, 0)[:7]
        if outputs:
            raise ValueError(f"{file}: outputs are not looked at")
        lines = []
        for _ in range(latches + bad + constraints):
            begin, end = end + 1, blob.index(b"\n", end + 1)
            lines.append(blob[begin:end].split())
        if any(len(line) > 1 and line[1] != b"0" for line in lines[:latches]):
            raise ValueError(f"{file}: a register that does not start at 0")
        values = [int(line[0]) for line in lines]
        self.latches, self.bad = values[:latches], values[latches : latches + bad]
        self.constraints = values[latches + bad :]
        self.gates, place = [], end + 1
        for number in range(gates):
            literals = [2 * (self.inputs + latches + 1 + number)]
            for _ in range(2):
                delta = shift = 0
                while True:
                    byte = blob[place]
                    place += 1
                    delta |= (byte & 127) << shift
                    shift += 7
                    if byte < 128:
                        break
                literals.append(literals[-1] - delta)
            self.gates.append((literals[1], literals[2]))


class _Cycles:
    """Cycles of a circuit one after the other, as clauses.

    Literals are those of the solver; True is 1.
    """

    def __init__(self, circuit, solver):
        self.circuit, self.solver = circuit, solver
        self.last, self.known = 1, {}
        solver.add_clause([1])
        self.frames = []
        self.state = [self._new() for _ in circuit.latches]

    def _new(self):
        self.last += 1
        return self.last

    def _and(self, a, b):
        if a == -1 or b == -1 or a == -b:
            return -1
        if a == 1 or a == b:
            return b
        if b == 1:
            return a
        pair = (a, b) if a < b else (b, a)
        if pair not in self.known:
            self.known[pair] = out = self._new()
            for clause in ((-out, a), (-out, b), (out, -a, -b)):
                self.solver.add_clause(clause)
        return self.known[pair]

    def cycle(self):
        """Adds a cycle and constrains it; returns its violated claims."""
        circuit = self.circuit
        value = [-1, *(self._new() for _ in range(circuit.inputs)), *self.state]
        self.frames.append(value)

        def of(literal):
            return -value[literal >> 1] if literal & 1 else value[literal >> 1]

        for a, b in circuit.gates:
            value.append(self._and(of(a), of(b)))
        for literal in circuit.constraints:
            self.solver.add_clause([of(literal)])
        self.state = [of(literal) for literal in circuit.latches]
        return [of(literal) for literal in circuit.bad]


def step(circuit, depth, seconds, trace=None):
    """k-induction: ``(k, left)``.

    All claims follow from k cycles, at most ``depth``, in which they held, except ``left``: numbers of claims that were
    not shown. ``trace(number, frames, model)`` receives the counterexamples.
    """
    from pysat.solvers import Cadical195

    until = time.monotonic() + seconds
    with Cadical195() as solver:
        cycles = _Cycles(circuit, solver)
        left = list(range(len(circuit.bad)))
        for k in range(depth + 1):
            bad = cycles.cycle()
            missed = []
            for number in left:
                if time.monotonic() > until:
                    return None, left
                if solver.solve(assumptions=[bad[number]]):
                    missed.append(number)
                    if trace and k == depth:
                        trace(number, cycles.frames, solver.get_model())
            if not missed:
                return k, []
            left = missed
            for literal in bad:
                solver.add_clause([-literal])
    return None, left
