"""Every configuration is either refused, with field, value and bound in the message, or it is made."""

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradloom.rtl.catalog import UNITS
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.rtl.machines.configs.language import LanguageConfig

from .looks import looks

#: Values around bounds and powers of two, and what is no number at all.
ODD = st.one_of(
    st.integers(-2, 70),
    st.integers(0, 17).map(lambda n: 1 << n),
    st.integers(1, 17).map(lambda n: (1 << n) - 1),
    st.sampled_from([True, None, "7", 2.0, float("nan"), ()]),
)


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


@pytest.mark.parametrize("kind", [ImageConfig, LanguageConfig])
@looks(300, 20_000)
@given(st.data())
def test_a_configuration_is_made_or_refused_by_name(kind, data):
    values = data.draw(field_values(kind))
    try:
        config = kind(**values)
    except ValueError as error:
        check_refusal(error, values)
    else:
        for field in dataclasses.fields(kind):
            value, kinds = getattr(config, field.name), (int, float) if field.type is float else (int,)
            assert type(value) in kinds and value == value, field.name
        assert config.shell["data_bits"] in (64, 128, 256)


@pytest.mark.parametrize("kind", [ImageConfig, LanguageConfig])
@pytest.mark.parametrize("field, value", [("queue_depth", 3), ("outstanding", 6)])
def test_what_the_shell_would_refuse_is_refused_before(kind, field, value):
    with pytest.raises(ValueError, match=f"{field}={value}: must be a power of two"):
        kind(**{field: value})


@pytest.mark.parametrize("unit", UNITS.values(), ids=lambda unit: unit.name)
@looks(30, 1000)
@given(st.data())
def test_a_setting_of_a_unit_is_taken_or_refused_by_name(unit, data):
    names = [parameter.name for parameter in unit.parameters]
    values = data.draw(
        st.dictionaries(
            st.sampled_from([*names, "nonsense"]),
            st.one_of(st.integers(-2, 70).map(str), st.text(max_size=6)),
            min_size=1,
            max_size=3,
        )
    )
    try:
        unit.settings(values)
    except ValueError as error:
        assert any(name in str(error) for name in values), error
