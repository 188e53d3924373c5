"""Parameters of hardware: bounds and their words, what is merged by inheritance, and blocks of memories."""

from dataclasses import dataclass, fields

import pytest

from gradloom.rtl.shell.parameters import (
    Parameters,
    Resources,
    ShellParameters,
    block_rams,
    parameter,
    port_bits,
    ultra_rams,
)


@dataclass(frozen=True, kw_only=True)
class One(Parameters):
    rows: int = parameter(4, 3, 20, power=True, known=True)
    most: int = parameter(7, 7, 7)
    rate: float = parameter(1, 0, 2.5, fraction=True)

    def check(self):
        if self.rows == 16:
            raise ValueError("rows=16: of the first")

    def resources(self):
        return Resources(dsp={"mesh": self.rows}, bits={"queue": 1})


@dataclass(frozen=True, kw_only=True)
class Two(One):
    depth: int = parameter(2, 1, 3, known=True)

    def check(self):
        if self.rows == 16 or self.depth == 3:
            raise ValueError("depth=3: of the second")

    def resources(self):
        return Resources(dsp={"vector": self.depth}, ultra_rams={"sums": 2})


def test_a_value_is_within_its_bounds():
    for name, allowed in (("rows", (4, 8)), ("most", (7,)), ("rate", (0, 0.0, 1.25, 2, 2.5)), ("depth", (1, 2))):
        for value in allowed:
            assert getattr(Two(**{name: value}), name) == value
    for name, others, said in (
        ("rows", (2, 3, 6, 32, 4.0, True, "4"), "a power of two from 3 to 20"),
        ("most", (6, 8), "7"),
        ("rate", (-0.1, 2.6, True, "1"), "a number from 0 to 2.5"),
        ("depth", (0, 4, 1.5, False), "an integer from 1 to 3"),
    ):
        for value in others:
            with pytest.raises(ValueError) as refused:
                Two(**{name: value})
            assert str(refused.value) == f"{name}={value!r}: must be {said}"


def test_all_classes_are_asked_the_first_first():
    with pytest.raises(ValueError, match="of the first"):
        Two(rows=16)
    with pytest.raises(ValueError, match="of the second"):
        Two().replace(depth=3)
    found = Two(rows=8).counted
    assert (found.dsp, found.bits, found.ultra_rams) == ({"mesh": 8, "vector": 2}, {"queue": 1}, {"sums": 2})
    assert Two(rows=8).known == {"rows": 8, "depth": 2} and not found.block_rams


def test_bounds_of_a_field_are_told():
    assert [Two.smallest("rows", least) for least in (0, 4, 5, 9, 16, 17)] == [4, 4, 8, 16, 16, None]
    assert [Two.smallest("depth", least) for least in (0, 2, 3, 4)] == [1, 2, 3, None]
    assert (Two.largest("rows"), Two.largest("most")) == (20, 7)


def test_blocks_of_a_memory_are_those_of_its_cheapest_shape():
    """Halves of 36 bits by 512 words, down to one bit by 16,384 words; ultra RAMs have 72 bits and 4,096 words."""
    for bits, words, halves in (
        *((1, 1, 1), (36, 512, 1), (37, 512, 2), (36, 513, 2), (72, 512, 2), (18, 1024, 1), (9, 2048, 1)),
        *((4, 4096, 1), (5, 4096, 2), (2, 8192, 1), (1, 16384, 1), (1, 16385, 2), (3, 8192, 2), (8, 4096, 2)),
        *((18, 1025, 2), (9, 2049, 2), (4, 4097, 2), (2, 8193, 2)),
        *((72, 4096, 16), (19, 1024, 2), (10, 2048, 2), (130, 600, 8), (12, 40000, 30)),
    ):
        shapes = ((36, 512), (18, 1024), (9, 2048), (4, 4096), (2, 8192), (1, 16384))
        assert min(((bits - 1) // wide + 1) * ((words - 1) // deep + 1) for wide, deep in shapes) == halves
        assert block_rams(bits, words) == halves / 2
    found = [ultra_rams(*size) for size in ((1, 1), (72, 4096), (73, 4096), (72, 4097), (145, 8193), (144, 8192))]
    assert found == [1, 1, 2, 2, 9, 4]


def test_a_shell_is_built_as_it_is_configured():
    """Each of several ports has 128 bits at most, and a queue of its bursts in flight."""
    assert [port_bits(256, ports) for ports in (1, 2, 4)] == [256, 128, 128] and port_bits(64, 2) == 64
    found = ShellParameters(ports=2, outstanding=8, address_bits=40)
    assert found.bus == {"data_bits": 128, "address_bits": 40, "ports": 2}
    assert found.counted.block_rams == {"port queues": 2 * 2.0}
    assert ShellParameters().counted.block_rams == {} and ShellParameters().port_bits == 128
    for name, allowed in (
        ("address_bits", (32, 64)),
        ("cache_slots", (64, 32768)),
        ("queue_depth", (2, 16)),
        ("outstanding", (1, 16)),
        ("requests", (0, 1)),
        ("forwards", (0, 0)),
        ("ports", (1, 4)),
        ("clock_mhz", (1, 1000)),
    ):
        assert (ShellParameters.smallest(name, 0), ShellParameters.largest(name)) == allowed
    for name, value in (("queue_depth", 6), ("outstanding", 6), ("ports", 3)):
        with pytest.raises(ValueError, match=f"{name}={value}: must be a power of two"):
            ShellParameters(**{name: value})
    assert ShellParameters(clock_mhz=62.5).clock_mhz == 62.5
    assert not any(each.metadata["mesh"] for each in fields(ShellParameters))
    assert ShellParameters() == ShellParameters(
        address_bits=32, cache_slots=64, queue_depth=16, outstanding=16, requests=0, forwards=0, ports=1, clock_mhz=200
    )
