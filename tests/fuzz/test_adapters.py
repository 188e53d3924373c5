"""An adapter means what PEFT makes of it, or it is refused in one line."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradloom.delivery.installed import read_content
from gradloom.models.adapters.diffusion_lora import FILE, adapted_layers, load_diffusion_lora
from gradloom.models.adapters.language.methods import IA3, LAYERNORM
from gradloom.models.adapters.language.vectors import load_vectors, peft_method
from gradloom.models.adapters.lora import load_lora
from gradloom.models.language import LanguageModel

from .adapters import SHAPE, WRONG_KEYS, drawn, drawn_unet, drawn_vectors, meaning, write
from .looks import looks

MODEL = LanguageModel(name="tiny", **SHAPE, context=64, rope_theta=1e4, norm_eps=1e-5, tied=True)
LAYERS = {
    f"{block}.attentions.0.transformer_blocks.0.attn2.{end}": (12 if end in ("to_k", "to_v") else 8, 8)
    for block in ("down_blocks.0", "mid_block", "up_blocks.1")
    for end in ("to_q", "to_k", "to_v", "to_out.0")
}


def refused(fault, read):
    """What a reader says, in one line, of a fault."""
    with pytest.raises(ValueError) as error:
        read()
        pytest.fail(f"taken: {fault}")
    assert str(error.value).strip() and "\n" not in str(error.value), fault
    return str(error.value)


def check(seed, folder):
    made = drawn(seed)
    write(folder, made)
    if made.fault:
        said = refused(made.fault, lambda: load_lora(folder, MODEL))
        if "adapter_config.json: " in said:
            # Who needs no model says the same of the config.
            try:
                read_content(folder)
            except ValueError as error:
                assert str(error) == said
        return
    found, expected = load_lora(folder, MODEL), meaning(made)
    changes = {name.removeprefix("model."): each.scale * each.b.astype(float) @ each.a for name, each in found.items()}
    assert changes.keys() == {name.removeprefix("model.") for name in expected}
    for name, each in expected.items():
        np.testing.assert_allclose(changes[name.removeprefix("model.")], each, rtol=1e-5, atol=1e-6)
    assert len(read_content(folder).tensors) == 2 * len(found)


@looks(60, 3000)
@given(st.integers(0, 1 << 40))
def test_a_drawn_adapter_is_right_or_refused_in_a_line(seed):
    with tempfile.TemporaryDirectory() as folder:
        check(seed, Path(folder))


@pytest.mark.parametrize("key, value", WRONG_KEYS)
def test_each_wrong_key_is_refused_by_its_name_everywhere(key, value, tmp_path):
    made = next(each for each in map(drawn, range(100)) if not each.fault)
    folder = write(tmp_path, type(made)({**made.config, key: value}, made.tensors, made.start))
    said = refused(key, lambda: load_lora(folder, MODEL))
    assert key in said or "layers_to_transform" in said or "target_modules" in said
    # A model is needed to know whether a name stands for anything.
    if key not in ("target_modules", "exclude_modules", "gradloom_topology"):
        assert refused(key, lambda: read_content(folder)) == said


@looks(40, 1500)
@given(st.integers(0, 1 << 40))
def test_drawn_vectors_are_right_or_refused_in_a_line(seed):
    made, expected = drawn_vectors(seed)
    with tempfile.TemporaryDirectory() as place:
        folder = write(Path(place), made)
        method = LAYERNORM if any("norm" in name for name in expected) else IA3
        if made.fault:
            refused(made.fault, lambda: load_vectors(folder, MODEL, method))
            return
        assert peft_method(folder) is method
        found = {name.removeprefix("model."): each.values for name, each in load_vectors(folder, MODEL, method).items()}
        assert found.keys() == {name.removeprefix("model.") for name in expected}
        for name, each in expected.items():
            np.testing.assert_array_equal(found[name.removeprefix("model.")], each)
        assert read_content(folder).tensors


@looks(40, 1500)
@given(st.integers(0, 1 << 40))
def test_a_drawn_lora_of_a_unet_is_right_or_refused_in_a_line(seed):
    made, expected = drawn_unet(seed, LAYERS)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / FILE).write_bytes(made.bytes())
        if made.fault:
            refused(made.fault, lambda: load_diffusion_lora(folder, LAYERS))
            return
        assert adapted_layers(folder, LAYERS) == set(LAYERS)
        for layer, each in load_diffusion_lora(folder, LAYERS).items():
            np.testing.assert_allclose(
                each.scale * each.b.astype(float) @ each.a, expected[layer], rtol=1e-5, atol=1e-6
            )
