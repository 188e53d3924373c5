"""Sizes of the encoders."""

import pytest

from gradloom.rtl.engines.encode.parameters import EncodeParameters


@pytest.mark.parametrize(("bits", "frac"), [(18, 10), (24, 16)])
def test_an_activation_has_eight_bits_before_the_point(bits, frac):
    form = EncodeParameters(activation_bits=bits).activation
    assert (form.width, form.frac) == (bits, frac)


def test_values_that_do_not_go_together_are_refused():
    for name, value in (("activation_bits", 20), ("rows", 3), ("rows", 33), ("dense_depth", 48), ("blocks", 3)):
        with pytest.raises(ValueError, match=f"^{name}={value}: must be "):
            EncodeParameters(**{name: value})
    assert EncodeParameters(rows=4, dense_depth=65536, blocks=1024).counted.dsp == {"encoders": 2}
    assert EncodeParameters(rows=32, dense_depth=32, blocks=2) == EncodeParameters(
        rows=32, dense_depth=32, blocks=2, activation_bits=24
    )
    assert EncodeParameters().known == {"rows": 25, "activation_bits": 24}
    assert EncodeParameters(activation_bits=18).known == {"rows": 25}
