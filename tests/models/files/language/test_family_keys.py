"""Each key of a family's configuration is handled, harmless with its values, or refused by its name."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from gradloom.models.files import unet
from gradloom.models.files.language import gguf as gguf_reader
from gradloom.models.files.language import tokenizer
from gradloom.models.files.language.checkpoint import open_checkpoint
from gradloom.models.files.language.families import described
from gradloom.models.files.unet import find_unet
from gradloom.systems.text.reference.llama import Llama

from ....golden.language.weights import weights
from .test_language import write_gguf

GOLDEN = Path(__file__).parents[3] / "golden" / "language"
HELD = json.loads((GOLDEN / "language.json").read_text(encoding="utf-8"))
GGUF_KEYS = (GOLDEN / "gguf_keys.txt").read_text(encoding="utf-8").split()


def test_the_keys_of_transformers_are_those_committed():
    transformers = pytest.importorskip("transformers")
    assert transformers.LlamaConfig().to_dict().keys() <= HELD["keys"]["LlamaConfig"].keys()


def test_the_keys_of_diffusers_are_those_committed():
    diffusers = pytest.importorskip("diffusers")
    assert dict(diffusers.UNet2DConditionModel().config).keys() - {"_use_default_values"} <= set(unet_keys())


def test_the_keys_of_gguf_are_those_committed():
    def walk(keys):
        for name, value in vars(keys).items():
            if isinstance(value, type):
                yield from walk(value)
            elif isinstance(value, str) and not name.startswith("_"):
                yield value

    assert {key for key in walk(gguf.Keys) if key.startswith(("{arch}", "tokenizer"))} == set(GGUF_KEYS)


def unet_keys():
    return HELD["keys"]["UNet2DConditionModel"]


def test_every_key_of_the_libraries_is_known():
    assert unet_keys().keys() <= unet.HANDLED | unet.FIXED.keys() | unet.HARMLESS.keys()


def test_defaults_of_the_libraries_are_read(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(unet_keys() | {"sample_size": 64}))
    assert find_unet(tmp_path).channels == (320, 640, 1280, 1280)
    model = described(HELD["keys"]["LlamaConfig"], "llama-7b").model
    assert (model.hidden, model.head_dim, model.kv_heads, model.rope_theta) == (4096, 128, 32, 10000.0)


@pytest.mark.parametrize("key", [key for key in GGUF_KEYS if key.startswith("{arch}")])
def test_a_gguf_key_is_known_or_refused_by_its_name(key, tmp_path, tensors, tiny):
    key = key.format(arch="llama", dense="dense")
    own = key.removeprefix("llama.")
    if own in gguf_reader._HANDLED:
        return
    path = write_gguf(tmp_path / "m.gguf", tensors, change=[lambda w: w.add_float32(key, 0.375)])
    if gguf_reader._HARMLESS.get(own) == ():
        assert open_checkpoint(path).model.hidden == tiny.hidden
        return
    with pytest.raises(ValueError, match=rf"m\.gguf: .*{key}"):
        open_checkpoint(path)


def test_every_key_of_a_tokenizer_is_known_or_changes_tokens():
    known = tokenizer._HANDLED | tokenizer._HARMLESS.keys()
    strange = {key for key in GGUF_KEYS if key.startswith("tokenizer") and key not in known}
    assert strange == {
        "tokenizer.chat_template",
        "tokenizer.chat_template.{name}",
        "tokenizer.ggml.precompiled_charsmap",
        "tokenizer.rwkv.world",
    }


@pytest.mark.parametrize("case", HELD["logits"], ids=range(len(HELD["logits"])))
def test_logits_are_those_of_transformers(case, tmp_path):
    raw = case["config"]
    (tmp_path / "config.json").write_text(json.dumps(raw), encoding="utf-8-sig")
    model = described(raw, "small").model
    save_file(weights(model.tensors), tmp_path / "model.safetensors")
    checkpoint = open_checkpoint(tmp_path)
    found = Llama(checkpoint.model, checkpoint.tensor).logits(case["tokens"])[-1]
    np.testing.assert_allclose(found, case["last"], atol=5e-5)
