"""The memory map: areas one after the other, their kinds, and common places by lifetimes."""

from gradloom.program.assembler import Assembler
from gradloom.program.memory import BLOCK, PAGE, AreaKind, MemoryMap, rounded
from gradloom.rtl.shell.engines import LOAD, STORE


def test_areas_lie_one_after_the_other_at_multiples():
    held = MemoryMap(100, align=PAGE, least=16)
    assert [held.place("a", 5000), held.place("b", 0), held.place("c", 8), held.place("a", 1)] == [
        4096,
        12288,
        16384,
        4096,
    ]
    assert (held.used, held.end) == (16400, 20480) and held.areas["a"] == (4096, 5000)


def test_a_copy_goes_on_by_itself():
    held = MemoryMap()
    assert (held.shared, held.shared_bytes) == (frozenset(), 0)
    assert held.place("none", 0) == held.place("w", 70, AreaKind.FROZEN) == 0
    later = held.copy()
    later.place("m", 8, AreaKind.LEARNT)
    later.offsets["alias"] = 0
    assert held.end == 128 and list(held.offsets) == ["none", "w"]
    assert later.of(AreaKind.LEARNT) == [(128, 8)] and later.of(AreaKind.FROZEN) == [(0, 70)] and later["alias"] == 0


def transfers(held, *named):
    made = Assembler()
    for kind, name in named:
        made.add(kind, 0, offset=held[name], beats=held.sizes[name] // 32)
    return made.instructions


def test_lifetimes_give_areas_of_a_step_common_places():
    held = MemoryMap()
    held.place("w", 64, AreaKind.FROZEN)
    before = held.copy()
    for name, kind in (("a", AreaKind.STEP), ("b", AreaKind.STEP), ("m", AreaKind.LEARNT), ("unused", AreaKind.STEP)):
        held.place(name, 64, kind)
    steps = transfers(
        held, (LOAD, "w"), (STORE, "a"), (LOAD, "a"), (STORE, "m"), (LOAD, "w"), (STORE, "b"), (LOAD, "b")
    )
    made = held.settle(before, steps, {1: 0, 3: 2, 5: 4}, 32)
    assert held.areas == {"w": (0, 64), "a": (128, 64), "b": (128, 64), "m": (64, 64)}
    assert held.shared == {"a", "b"} and (held.shared_bytes, held.end) == (64, 192)
    assert [each.operands["offset"] for each in made] == [0, 128, 128, 64, 0, 128, 128]


def test_blocks_and_pages_begin_where_a_window_may():
    """The machine refuses a base that is no multiple of 4096."""
    assert BLOCK % 4096 == PAGE % 4096 == 0
    assert [rounded(size) for size in (0, 1, 64, 65)] == [0, 64, 64, 128] and rounded(4097, BLOCK) == 8192
