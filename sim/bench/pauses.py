"""Back-pressure for stream benches: random stalls and long holds."""

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = ["LEAD", "pauses", "feed", "drain"]

#: Cycles of random stalls before the first hold: results must be under way when it begins.
LEAD = 16


def _moves(seed: str, stall: float, hold: int, held: list[bool]) -> Iterator[bool]:
    rng = random.Random(seed)

    def by_chance() -> bool:
        return rng.random() >= stall

    if hold:
        for _ in range(LEAD):
            yield by_chance()
        for closed in held:
            for _ in range(hold):
                yield not closed and by_chance()
    while True:
        yield by_chance()


def pauses(
    outputs: Iterable[str], inputs: Iterable[str], *, stall: float = 0.0, hold: int = 0, rounds: int = 1, seed: int = 0
) -> dict[str, Iterator[bool]]:
    """For each port, whether the bench moves it in a cycle.

    Each iterator gives an item a cycle, without end.

    A True of an output is its ``ready``; a True of an input allows the next payload to be offered. ``valid`` must not
    fall before the payload is taken, so a bench looks at an input's item only while it offers nothing.

    ``stall`` is the chance of an idle cycle. ``hold`` is the length of a long hold in cycles; it must exceed the depth
    of all queues behind an output, and 0 leaves the holds out. After :data:`LEAD` cycles each round has these
    intervals of ``hold`` cycles: all outputs held; no port held; each output held alone, where there are several;
    each input starved alone.
    """
    if not 0 <= stall < 1:
        raise ValueError(f"stall={stall}: must be at least 0 and below 1")
    if hold < 0:
        raise ValueError(f"hold={hold}: must be at least 0")
    taking, giving = list(outputs), list(inputs)
    intervals: list[set[str]] = [set(taking), set()]
    if len(taking) > 1:
        intervals += [{name} for name in taking]
    intervals += [{name} for name in giving]
    return {
        name: _moves(f"{seed} {name}", stall, hold, [name in closed for closed in intervals] * rounds)
        for name in (*taking, *giving)
    }


async def feed(ctx: Any, port: Any, payloads: Iterable[Any], moves: Iterator[bool]) -> list[int]:
    """Offers each payload once, in Amaranth's simulator.

    Returns the cycles in which they were taken.
    """
    times, cycle = [], 0
    for payload in payloads:
        while not next(moves):
            await ctx.tick()
            cycle += 1
        ctx.set(port.payload, payload)
        ctx.set(port.valid, 1)
        while True:
            *_, ready = await ctx.tick().sample(port.ready)
            cycle += 1
            if ready:
                break
            next(moves)
        times.append(cycle - 1)
        ctx.set(port.valid, 0)
    return times


async def drain(
    ctx: Any,
    port: Any,
    count: int,
    moves: Iterator[bool],
    *,
    read: Callable[[Any], Any] = lambda payload: payload,
    patience: int = 5000,
) -> tuple[list[Any], list[int]]:
    """Reads ``count`` payloads, in Amaranth's simulator.

    Returns ``read(payload)`` of each, and the cycles in which they were taken.
    """
    got: list[Any] = []
    times: list[int] = []
    cycle = 0
    while len(got) < count:
        wants = next(moves)
        ctx.set(port.ready, wants)
        *_, valid, payload = await ctx.tick().sample(port.valid, port.payload)
        if valid and wants:
            got.append(read(payload))
            times.append(cycle)
        cycle += 1
        if cycle - (times[-1] if times else 0) > patience:
            raise AssertionError(f"{len(got)} of {count} payloads, then none for {patience} cycles")
    ctx.set(port.ready, 0)
    return got, times
