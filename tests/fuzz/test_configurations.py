"""Every configuration is either refused, with field, value and bound in the message, or it elaborates."""
import dataclasses
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from looks import looks  # noqa: E402

from gradloom.rtl.config import Config, LinearConfig  # noqa: E402
from gradloom.rtl.hierarchy import Emitter  # noqa: E402
from gradloom.rtl.top import Accelerator  # noqa: E402
from gradloom.rtl.units import UNITS  # noqa: E402

#: Values around bounds and powers of two, and what is no number at all.
ODD = st.one_of(st.integers(-2, 70), st.integers(0, 17).map(lambda n: 1 << n),
                st.integers(1, 17).map(lambda n: (1 << n) - 1),
                st.sampled_from([True, None, "7", 2.0, float("nan"), ()]))


def field_values(kind):
    names = [field.name for field in dataclasses.fields(kind)]
    return st.dictionaries(st.sampled_from(names), ODD, min_size=1, max_size=4)


def check_refusal(error, given_values):
    """``FIELD=VALUE: ...`` names what was given, or what it does not go together with, and the bound."""
    said = re.match(r"(\w+)=(\S+?)[,:] ", str(error))
    assert said, error
    if said[1] in given_values:
        assert f"{said[1]}={given_values[said[1]]!r}" in str(error)
    assert re.search(r": .*(\d|integer|power of two)", str(error)), error


@pytest.mark.parametrize("kind", [Config, LinearConfig])
@looks(300, 20_000)
@given(st.data())
def test_a_configuration_is_made_or_refused_by_name(kind, data):
    values = data.draw(field_values(kind))
    try:
        config = kind(**values)
    except ValueError as error:
        check_refusal(error, values)
    else:
        assert all(isinstance(value, int) and not isinstance(value, bool) for value in vars(config).values())
        assert config.shell["data_bits"] in (64, 128, 256)


@st.composite
def images(draw):
    """Legal configurations of small designs."""
    panels, rank = draw(st.sampled_from([(2, 2), (2, 5), (4, 1), (4, 4), (8, 2), (2, 8)]))
    kernel = draw(st.integers(1, 4))
    power = lambda low, high: draw(st.integers(low, high).map(lambda n: 1 << n))  # noqa: E731
    return Config(rows=draw(st.integers(max(kernel ** 2, 2), 20)), panels=panels, rank=rank, kernel=kernel,
                  classes=draw(st.integers(2, 16)), taps=draw(st.integers(1, 16)), adapter_depth=power(4, 8),
                  weight_depth=power(6, 9), bias_depth=power(1, 5), feature_depth=power(4, 9),
                  image_depth=power(4, 9), dense_depth=power(5, 9), blocks=power(1, 6), width=draw(st.integers(4, 40)),
                  positions=power(2, 8), address_bits=draw(st.integers(32, 64)),
                  cache_slots=32 * draw(st.integers(2, 20)), queue_depth=power(1, 4), outstanding=power(0, 4))


@st.composite
def linears(draw):
    """Legal configurations of small linear layers."""
    edge = draw(st.sampled_from([16, 32]))
    columns = draw(st.sampled_from([2, 4, 8]))
    return LinearConfig(edge=edge, columns=columns, outputs=draw(st.sampled_from([1, 2])),
                        rank=2 * draw(st.integers(1, edge // columns)),
                        tokens=1 << draw(st.integers(1, 6)), depth=1 << draw(st.integers(4, 8)),
                        lane_depth=1 << draw(st.integers(4, 8)), groups=1 << draw(st.integers(1, 6)),
                        outstanding=1 << draw(st.integers(0, 4)), queue_depth=1 << draw(st.integers(1, 4)))


@looks(2, 60)
@given(images())
def test_a_legal_configuration_for_images_elaborates(config):
    Emitter().top(Accelerator(config), "gradloom")


@looks(2, 60)
@given(linears())
def test_a_legal_configuration_for_linear_layers_elaborates(config):
    Emitter().top(Accelerator(config), "gradloom")


@pytest.mark.parametrize("unit", UNITS.values(), ids=lambda unit: unit.name)
@looks(30, 1000)
@given(st.data())
def test_a_setting_of_a_unit_is_taken_or_refused_by_name(unit, data):
    names = [parameter.name for parameter in unit.parameters]
    values = data.draw(st.dictionaries(st.sampled_from([*names, "nonsense"]), st.one_of(
        st.integers(-2, 70).map(str), st.text(max_size=6)), min_size=1, max_size=3))
    try:
        unit.settings(values)
    except ValueError as error:
        assert any(name in str(error) for name in values), error
