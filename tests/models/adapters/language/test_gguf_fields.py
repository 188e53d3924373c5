"""GGUF files of LoRA adapters: what is written, and what is refused by its field or tensor."""

import io
import re
from dataclasses import replace

import numpy as np
import pytest

from gradloom.models.adapters.language.gguf_lora import is_gguf_adapter, load_gguf_lora, load_linears, write_gguf_lora
from gradloom.models.adapters.lora import Adapter, fresh_lora, save_lora
from gradloom.models.files.language.gguf import GgufFile

from ...files.language.test_gguf_headers import field, header, tensor, text, written


@pytest.fixture
def adapters(tiny):
    random = np.random.default_rng(2)
    made = fresh_lora(tiny, rank=2, alpha=3, targets=("q_proj", "down_proj"), layers=[1])
    shapes = {name: each.b.shape for name, each in made.items()}
    return {name: Adapter(made[name].a, random.normal(size=shapes[name]).astype(np.float32), 1.5) for name in made}


def saved(path, model, adapters):
    with path.open("wb") as file:
        return write_gguf_lora(file, model, adapters)


def test_what_is_written_is_read(tiny, adapters, tmp_path):
    path = tmp_path / "a.gguf"
    assert saved(path, tiny, adapters) == 3.0 and is_gguf_adapter(path)
    file = GgufFile(path)
    assert file.fields == {
        "general.architecture": "llama",
        "general.type": "adapter",
        "adapter.type": "lora",
        "general.name": "tiny",
        "general.file_type": 0,
        "general.quantization_version": 2,
        "adapter.lora.alpha": 3.0,
    }
    assert {name: each.shape for name, each in file.tensors.items()} == {
        "blk.1.attn_q.weight.lora_a": (2, 64),
        "blk.1.attn_q.weight.lora_b": (64, 2),
        "blk.1.ffn_down.weight.lora_a": (2, 128),
        "blk.1.ffn_down.weight.lora_b": (64, 2),
    }
    # llama.cpp takes an adapter beside a model whose architecture has the same name.
    for change, name in (({"unturned": (1,)}, "smollm3"), ({"score": 0.1}, "granite")):
        other = tmp_path / f"{name}.gguf"
        saved(other, replace(tiny, **change), adapters)
        its = GgufFile(other)
        assert its.fields == file.fields | {"general.architecture": name}
        for each in file.tensors:
            np.testing.assert_array_equal(its.tensor(each), file.tensor(each))
        assert load_gguf_lora(other, replace(tiny, **change)).keys() == adapters.keys()
        with pytest.raises(ValueError, match=f'architecture="{name}": must be "llama"'):
            load_gguf_lora(other, tiny)
    for found in (load_gguf_lora(path, tiny), load_gguf_lora(path, tiny, rank=2), load_linears(path, tiny)):
        assert list(found) == list(adapters)
        for name, each in adapters.items():
            assert found[name].scale == 1.5
            np.testing.assert_array_equal(found[name].a, each.a)
            np.testing.assert_array_equal(found[name].b, each.b)
    # Rows of q are pairs there, those of the others are not turned.
    q, down = adapters
    assert (file.tensor("blk.1.attn_q.weight.lora_b") != adapters[q].b).any()
    np.testing.assert_array_equal(file.tensor("blk.1.ffn_down.weight.lora_b"), adapters[down].b)
    save_lora(tmp_path / "folder", tiny, adapters)
    assert list(load_linears(tmp_path / "folder", tiny, rank=2)) == list(adapters)
    assert not is_gguf_adapter(tmp_path / "folder") and not is_gguf_adapter(tmp_path / "none.gguf")


def test_adapters_of_another_scale_have_it_in_b(tiny, adapters, tmp_path):
    q, down = adapters
    adapters[down] = replace(adapters[down], scale=0.75)
    assert saved(tmp_path / "a.gguf", tiny, adapters) == 3.0
    found = load_gguf_lora(tmp_path / "a.gguf", tiny)
    np.testing.assert_array_equal(found[down].b, adapters[down].b / 2)
    np.testing.assert_array_equal(found[q].b, adapters[q].b)
    # Another rank of the same alpha has its own.
    one = adapters[q]
    adapters[down] = Adapter(adapters[down].a[:1], adapters[down].b[:, :1], 3.0)
    assert saved(tmp_path / "b.gguf", tiny, adapters) == 3.0
    again = load_gguf_lora(tmp_path / "b.gguf", tiny)
    assert (again[down].scale, again[q].scale) == (3.0, 1.5)
    np.testing.assert_array_equal(again[down].b, adapters[down].b)
    np.testing.assert_array_equal(again[q].b, one.b)


def test_what_cannot_be_written_is_one_line(tiny, adapters):
    q, down = adapters
    one, two = adapters[q], adapters[down]
    large = np.full_like(two.b, 3e38)
    for given, says in (
        ({}, "adapters has none: at least 1 is needed"),
        ({"lm_head": one}, "lm_head: tiny has no such linear"),
        ({q: one, down: Adapter(two.a, large, 3.0)}, f"{down}: has a value that float32 does not hold"),
        ({q: Adapter(one.a * np.inf, one.b, 1.5)}, f"{q}: has a value that float32 does not hold"),
        ({q: Adapter(one.a, one.b * np.nan, 1.5)}, f"{q}: has a value that float32 does not hold"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(says)}$"):
            write_gguf_lora(io.BytesIO(), tiny, given)


GENERAL = {"general.type": "adapter", "general.architecture": "llama", "adapter.type": "lora"}
#: Of q in layer 0, rank 1.
PAIR = [tensor("blk.0.attn_q.weight.lora_a", (64, 1)), tensor("blk.0.attn_q.weight.lora_b", (1, 64), 0, 256)]


def made(path, fields=GENERAL, tensors=PAIR, alpha=None, more=()):
    held = [field(key, 8, text(value)) for key, value in fields.items()]
    held += [] if alpha is None else [field("adapter.lora.alpha", 6, np.float32(alpha).tobytes())]
    return written(path, header([*held, *more], tensors), np.ones(64 * len(tensors), "<f4").tobytes())


@pytest.mark.parametrize(("alpha", "scale"), [(None, 1.0), (0.0, 1.0), (2.5, 2.5), (2.0**-29, 2.0**-29), (1e9, 1e9)])
def test_alpha_may_be_missing_or_0(tiny, tmp_path, alpha, scale):
    (found,) = load_gguf_lora(made(tmp_path / "a.gguf", alpha=alpha), tiny).values()
    assert (found.scale, found.rank) == (scale, 1)


def test_fields_for_what_it_is_may_be_there(tiny, tmp_path):
    more = [field("adapter.lora.task_name", 8, text("x")), field("adapter.lora.prompt_prefix", 8, text(""))]
    assert len(load_gguf_lora(made(tmp_path / "a.gguf", more=more), tiny)) == 1


ALPHA = "must be 0, or a number from 1e-09 to 1e+09"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"fields": GENERAL | {"general.type": "model"}}, 'general.type="model": must be "adapter"'),
        ({"fields": GENERAL | {"general.architecture": "qwen2"}}, 'general.architecture="qwen2": must be "llama"'),
        ({"fields": GENERAL | {"adapter.type": "control"}}, 'adapter.type="control": must be "lora"'),
        ({"fields": {"general.type": "adapter"}}, 'general.architecture=null: must be "llama"'),
        ({"alpha": -1.0}, f"adapter.lora.alpha=-1.0: {ALPHA}"),
        ({"alpha": 1e-10}, f"adapter.lora.alpha=1.000000013351432e-10: {ALPHA}"),
        ({"alpha": 1.1e9}, f"adapter.lora.alpha=1100000000.0: {ALPHA}"),
        ({"more": [field("adapter.lora.prompt_prefix", 8, text("x"))]}, 'adapter.lora.prompt_prefix="x": must be ""'),
        ({"more": [field("adapter.magic", 8, text("x"))]}, 'adapter.magic="x": this key is not known'),
        ({"tensors": PAIR[:1]}, "has blk.0.attn_q.weight.lora_a, but not its other half"),
        ({"tensors": []}, "has no adapter"),
        (
            {"tensors": [*PAIR, tensor("blk.7.attn_q.weight.lora_a", (64, 1), 0, 512)]},
            "has blk.7.attn_q.weight.lora_a (1 that tiny has no place for)",
        ),
        (
            {"tensors": [PAIR[0], tensor("blk.0.attn_q.weight.lora_b", (1, 32), 0, 256)]},
            "blk.0.attn_q.weight.lora_b has shape [32, 1]: expected [64, 1]",
        ),
    ],
)
def test_what_is_not_understood_is_one_line(tiny, tmp_path, change, says):
    path = made(tmp_path / "a.gguf", **change)
    with pytest.raises(ValueError) as refused:
        load_gguf_lora(path, tiny)
    assert str(refused.value).startswith(f"{path}: {says}")


def test_another_rank_than_is_needed_is_refused(tiny, tmp_path):
    path = made(tmp_path / "a.gguf")
    with pytest.raises(ValueError, match=r"blk.0.attn_q.weight.lora_a has rank 1: rank 2 is needed$"):
        load_gguf_lora(path, tiny, rank=2)
