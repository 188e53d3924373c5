"""``gradloom card write``: a packed model and adapters become an image for a memory card, or nothing does."""

import numpy as np
import pytest

import gradloom
from gradloom.firmware.chip.card import BLOCK, read_card
from gradloom.models.adapters.lora import Adapter, fresh_lora, save_lora
from gradloom.models.adapters.words import pack_adapters, unpack_adapters
from gradloom.models.language import LanguageModel

from ...language import save_model

MODEL = LanguageModel(
    name="small",
    hidden=64,
    inter=128,
    layers=2,
    heads=2,
    kv_heads=2,
    head_dim=32,
    vocab=96,
    context=128,
    rope_theta=10000.0,
    norm_eps=1e-5,
    tied=True,
)


def trained(seed, rank=4):
    random = np.random.default_rng(seed)
    return {
        name: Adapter(each.a, random.normal(0, 0.01, each.b.shape).astype(np.float32), each.scale)
        for name, each in fresh_lora(MODEL, rank=rank, targets=("q_proj", "down_proj"), seed=seed).items()
    }


@pytest.fixture
def here(tmp_path, monkeypatch, run):
    """A folder with ``packed``, a model, and ``first`` and ``second``, adapters; we are in it."""
    save_model(tmp_path / "small", MODEL)
    monkeypatch.chdir(tmp_path)
    assert run("pack", "small", "-o", "packed")[0] == 0
    for seed, name in enumerate(("first", "second")):
        save_lora(name, MODEL, trained(seed))
    return tmp_path


def test_an_image_holds_weights_and_adapters(here):
    said = gradloom.card.load("packed", "card.img", adapters=["first", "second"])
    image = (here / "card.img").read_bytes()
    assert said["bytes"] == len(image) and len(image) % BLOCK == 0
    weights, *stores = read_card(image)
    content = (here / "packed" / "weights.bin").read_bytes()
    assert weights.parts[0][: len(content)] == content and weights.offset == 1 << 20
    assert [(each["name"], each["kind"], each["offset"], each["bytes"]) for each in said["sections"]] == [
        (each.name, kind, each.offset, each.size)
        for each, kind in zip((weights, *stores), ("plain", "adapter", "adapter"))
    ]
    assert said["memory_end"] == stores[-1].end
    for seed, store in enumerate(stores):
        found = unpack_adapters(MODEL, store.parts[0])
        for name, each in trained(seed).items():
            assert found[name].scale == each.scale and found[name].rank == 4
            assert np.allclose(found[name].a, each.a, atol=1e-9) and np.allclose(found[name].b, each.b, atol=1e-9)


def test_the_same_request_gives_the_same_bytes(run, here):
    for name in ("one.img", "two.img"):
        assert run("card", "write", "packed", "-o", name, "--adapter", "first")[0] == 0
    assert (here / "one.img").read_bytes() == (here / "two.img").read_bytes()


def test_people_are_told_how_to_write_it(run, here):
    code, out, _ = run("card", "write", "packed", "-o", "card.img")
    assert code == 0 and "1,048,576" in out and "dd if=card.img" in out


def spoil_weights(here):
    data = bytearray((here / "packed" / "weights.bin").read_bytes())
    data[-100] ^= 1
    (here / "packed" / "weights.bin").write_bytes(data)


def cut_weights(here):
    data = (here / "packed" / "weights.bin").read_bytes()
    (here / "packed" / "weights.bin").write_bytes(data[:-64])


def other_adapter(here):
    other = LanguageModel(**CONFIG_OTHER)
    save_lora(here / "first", other, fresh_lora(other, rank=4))


CONFIG_OTHER = {
    **{
        field: getattr(MODEL, field)
        for field in (
            "name",
            "hidden",
            "inter",
            "heads",
            "kv_heads",
            "head_dim",
            "vocab",
            "context",
            "rope_theta",
            "norm_eps",
            "tied",
        )
    },
    "layers": 3,
}


@pytest.mark.parametrize(
    "spoil, options, said",
    [
        (spoil_weights, (), "is damaged"),
        (cut_weights, (), "its manifest says"),
        (other_adapter, ("--adapter", "first"), "first: "),
        (None, ("--adapter", "third"), "third/adapter_config.json: no such file"),
        (None, ("--steps", "3"), "steps=3: must be left out with packed, packed weights without a fine-tune"),
    ],
)
def test_a_wrong_request_leaves_the_earlier_image(run, here, spoil, options, said):
    (here / "card.img").write_text("earlier")
    if spoil is not None:
        spoil(here)
    before = sorted(here.iterdir())
    code, out, err = run("card", "write", "packed", "-o", "card.img", "--json", *options)
    assert (code, out) == (2, "") and said in err and err.count("\n") == 1
    assert (here / "card.img").read_text() == "earlier" and sorted(here.iterdir()) == before


@pytest.mark.parametrize(
    "options, said",
    [
        ({"offset": 1 << 30}, f"offset={1 << 30}: must be a multiple of 4096 below 1073741824"),
        ({"offset": 100}, "offset=100: must be a multiple of 4096"),
        ({"offset": (1 << 30) - 4096}, "weights ends at byte"),
        ({"adapters": ["first"] * 12}, "adapter: at most 11, not 12"),
    ],
)
def test_what_does_not_fit_the_card_is_refused(here, options, said):
    with pytest.raises(ValueError, match=said):
        gradloom.card.load("packed", "card.img", **options)
    assert not (here / "card.img").exists()


def test_what_is_no_file_is_not_replaced(run, here):
    code, _, err = run("card", "write", "packed", "-o", "small", "--json")
    assert (code, err) == (2, "gradloom: output=small: is a directory, a file is needed: name another one\n")
    assert (here / "small").is_dir()


def test_adapters_that_are_no_block_are_refused():
    adapters = trained(1)
    block = pack_adapters(MODEL, adapters)
    with pytest.raises(ValueError, match="not a block of adapters"):
        unpack_adapters(MODEL, b"GLAX" + block[4:])
    with pytest.raises(ValueError, match=r"linear 0 has shape \[64, 65\]"):
        unpack_adapters(MODEL, block[:20] + b"\x41" + block[21:])
    with pytest.raises(ValueError, match=r"adapters has ranks \[2, 4\]: must be of one rank"):
        pack_adapters(MODEL, adapters | dict(list(trained(1, rank=2).items())[:1]))
    with pytest.raises(ValueError, match="small has no such linear"):
        pack_adapters(MODEL, {"lm_head": next(iter(adapters.values()))})
