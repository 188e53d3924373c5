"""Scripts of the pages on quality and baselines: PyTorch's losses are ours, choices and results share no data."""

import gzip
import importlib
import json
import runpy
from pathlib import Path

import numpy as np
import pytest

import gradloom
from gradloom.models.adapters.language.instant import fresh_instant
from gradloom.models.adapters.language.methods import METHODS
from gradloom.models.adapters.language.vectors import fresh_vectors
from gradloom.models.adapters.lora import fresh_lora
from gradloom.models.datasets import default_split
from gradloom.models.language import LanguageModel
from gradloom.models.onnx_import import load_pretrained
from gradloom.models.pack import quantize_linear
from gradloom.systems.images.mathematics import FloatCache
from gradloom.systems.text.reference.descent import fine_tune
from gradloom.systems.text.reference.llama import Llama
from gradloom.systems.text.reference.optimizers import FloatAdamW
from gradloom.systems.text.run.frozen import Frozen
from gradloom.systems.text.run.instant import InstantTrainer

DOCS = Path(__file__).parents[2] / "docs"
#: Hidden and heads as the tiles of InstantFT's operations want them.
MODEL = LanguageModel(
    name="small",
    hidden=128,
    inter=192,
    layers=3,
    heads=2,
    kv_heads=1,
    head_dim=64,
    vocab=128,
    context=16,
    rope_theta=100.0,
    norm_eps=1e-5,
    tied=True,
)
TOKENS = [3, 14, 15, 9, 2, 6, 5, 3, 49]
ALL = METHODS["lora"].parse("all")


@pytest.fixture
def example(monkeypatch):
    """A script of ``docs/examples`` by its name."""
    for folder in ("networks", "quality"):
        monkeypatch.syspath_prepend(str(DOCS / "examples" / folder))
    return importlib.import_module


@pytest.fixture(scope="module")
def tensors():
    random = np.random.default_rng(3)
    return {
        name: np.asarray(random.normal(float(len(shape) == 1), 0.2 if len(shape) == 1 else shape[-1] ** -0.5, shape))
        for name, shape in MODEL.tensors.items()
    }


def adapters(method, first, tensors):
    layers = range(first, MODEL.layers)
    if method == "lora":
        return dict(fresh_lora(MODEL, rank=2, targets=ALL, layers=layers))
    return dict(fresh_vectors(MODEL, METHODS[method], tensors.__getitem__, layers=layers))


def torchs_losses(rule, losses, count):
    """Losses of steps of AdamW without decay."""
    found = []
    for _ in range(count):
        loss = losses().sum()
        rule.zero_grad()
        loss.backward()
        rule.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("method", ["lora", "layernorm", "ia3"])
def test_losses_by_torch_are_our_float_engines(method, first, tensors, example):
    torch = pytest.importorskip("torch")
    made = pytest.importorskip("gradloom.systems.text.reference.torch_llama")
    ours = fine_tune(
        Llama(MODEL, tensors.__getitem__), [TOKENS], adapters(method, first, tensors), FloatAdamW(lr=1e-2), 8
    )
    llama, text = made.TorchLlama(MODEL, tensors.__getitem__), torch.tensor([TOKENS])
    learnt, parts = made.parameters(adapters(method, first, tensors))
    entry = llama.entering(first, text) if first else None
    rule = torch.optim.AdamW(parts, lr=1e-2, weight_decay=0)
    theirs = torchs_losses(rule, lambda: llama.losses(text, learnt, entry), 8)
    assert ours[0] - ours[-1] > 0.05
    assert np.abs(np.array(ours) - theirs).max() < 1e-4


def test_instantft_by_torch_is_our_float_engines(tensors, example):
    torch = pytest.importorskip("torch")
    made = pytest.importorskip("gradloom.systems.text.reference.torch_llama")
    # The trainer reads codes.
    coded = dict(tensors)
    for each in MODEL.linears:
        coded[f"{each.name}.weight"] = quantize_linear(tensors[f"{each.name}.weight"]).weight()
    trainer = InstantTrainer(
        Frozen(MODEL, coded.__getitem__, lambda name: quantize_linear(tensors[f"{name}.weight"])),
        fresh_instant(MODEL, rank=2),
        range(MODEL.layers),
        FloatAdamW(lr=1e-2),
    )
    ours = [trainer.step(TOKENS).loss for _ in range(4)]
    llama, text = made.TorchLlama(MODEL, coded.__getitem__), torch.tensor([TOKENS])
    learnt, parts = made.parameters(
        {made.instant_name(layer): each for layer, each in fresh_instant(MODEL, rank=2).items()}
    )
    taps, rule = llama.taps(text), torch.optim.AdamW(parts, lr=1e-2, weight_decay=0)
    theirs = torchs_losses(rule, lambda: llama.instant_losses(text, learnt, taps), 4)
    assert ours[0] - ours[-1] > 0.05
    assert np.abs(np.array(ours) - theirs).max() < 1e-4


def test_what_is_learnt_is_never_judged(example):
    learnt, held = example("quality_text").parts(list(range(64 * 57 + 5)))
    assert len(learnt) == 47 and len(held) == 10
    starts = [window[0] // 64 for window in held]
    assert starts == sorted({at for at in range(57) if at % 10 >= 8})
    assert not {at for window in learnt for at in window} & {at for window in held for at in window}


def test_images_that_choose_rates_neither_learn_nor_judge(example):
    images = example("quality_images")
    bench = object.__new__(images.Bench)
    bench.labels = np.zeros(10_000)
    chosen = np.concatenate(bench.images("rates", 0))
    for seed in images.SEEDS:
        learnt, held = bench.images("judged", seed)
        assert len(learnt) == images.SAMPLES and len(set(learnt) | set(held)) == len(learnt) + len(held)
        assert not set(chosen) & {*learnt, *held}


@pytest.fixture
def small_bench(example, monkeypatch):
    """The script, a bench of 100 images to learn from and 60 to judge by, and the images."""
    images = example("quality_images")
    monkeypatch.setattr(images, "SAMPLES", 100)
    monkeypatch.setattr(images, "CHOOSING", 50)
    bench, data = object.__new__(images.Bench), default_split(0, degrees=90).limited(train=50, test=160)
    pixels = np.concatenate([data.x_train, data.x_test])
    bench.network, bench.labels = load_pretrained(), np.concatenate([data.y_train, data.y_test])
    bench.exact = FloatCache.of(bench.network, pixels, cache="none")
    bench.format, bench.taps = "none", bench.exact.taps
    return images, bench, pixels


@pytest.mark.parametrize("rate", [0.05, 1e40])
def test_accuracy_on_the_way_is_that_of_shorter_fine_tunes(rate, small_bench):
    """Also of one that diverges."""
    images, bench, _ = small_bench

    def found(*epochs):
        return bench.run(images.Case(rank=2), "judged", rate, 0, epochs)

    whole = found(1, 2, 3)
    assert whole == [*found(1), *found(2), *found(3)]
    assert (whole[0] != whole[1]) == (rate < 1)


@pytest.mark.parametrize("cache", ["nf4", "int8"])
def test_integers_are_those_of_the_verb(cache, small_bench, tmp_path, monkeypatch):
    images, bench, pixels = small_bench
    monkeypatch.setattr(images, "EPOCHS", (1, 9))
    case, (learnt, held) = images.Case(rank=2, cache=cache), bench.images("judged", 1)
    arrays = {}
    for part, index in (("train", learnt), ("test", held)):
        arrays |= {f"x_{part}": pixels[index], f"y_{part}": bench.labels[index]}
    np.savez(tmp_path / "data.npz", **arrays)
    told = gradloom.finetune(
        "instantft-kv260",
        gradloom.ImageOptions(
            data=tmp_path / "data.npz", engine="reference", rank=2, cache=cache, epochs=9, lr=0.05, seed=1
        ),
        output=tmp_path / "run",
    )
    assert (
        images.Words(bench, pixels, case).run(case, 0.05, 1) == told["accuracy_after"] > told["accuracy_before"] + 0.1
    )


def test_images_of_a_base_network_are_turned_together_with_their_labels(tmp_path, example):
    bases, random = example("bases"), np.random.default_rng(5)
    x, y = random.integers(0, 256, (20, 28, 28), np.uint8), np.arange(20, dtype=np.uint8)
    for kind, dims, array in (("images", 3, x), ("labels", 1, y)):
        path = tmp_path / f"t10k-{kind}-idx{dims}-ubyte.gz"
        path.write_bytes(gzip.compress(bytes(4 + 4 * dims) + array.tobytes(), 1))
    turned, labels = bases.unseen("fashion", 90, tmp_path)
    assert sorted(labels) == list(y) and list(labels) != list(y)
    assert all(np.array_equal(image[0], np.rot90(x[label])) for image, label in zip(turned, labels))


def test_no_cache_learns_what_an_nf4_cache_does_and_takes_longer(example):
    quality = example("quality")
    rows = quality.quality_images.rows(json.loads(quality.RESULTS.read_text(encoding="utf-8"))["images"])
    whole = {(row["rank"], row["cache"], row["epochs"]): row for row in rows if len(row["layers"]) == 5}
    for (rank, cache, epochs), row in whole.items():
        assert {data: len(each) for data, each in row["right"].items()} == {"mnist": 6, "fashion": 6}
        if cache == "again":
            kept = whole[rank, "nf4", epochs]
            assert row["right"] == kept["right"] and row["cycles"] > 1.5 * kept["cycles"]


def test_results_are_written_with_a_list_on_a_line(example):
    quality, held = example("quality"), {"a [b] c": [[1.5, 2], [3, 4e37]], "d": {"e": []}}
    text = quality.written(held)
    assert json.loads(text) == held and "[ 1.5, 2 ]" in text and text.count("\n") == 9


@pytest.mark.parametrize(
    "losses, tries, best",
    [
        ([3, 2, 1, 2, 3, 4, 5], [1e-3, 1e-2, 3e-3, 3e-4], 1e-3),
        ([9, 8, 7, 6, 5, 4, 3], [1e-3, 1e-2, 3e-3, 3e-2, 1e-1], 1e-1),
        ([1, 2, 3, 4, float("nan"), 4, 5], [1e-3, 1e-2, 3e-3, 3e-4, 1e-4], 1e-4),
    ],
)
def test_a_rate_is_tried_on_both_sides_of_the_best(losses, tries, best, example, monkeypatch):
    text = example("quality_text")
    monkeypatch.setitem(text.BEGIN, "lora", 3e-3)
    case, found = text.Case(method="lora", rank=8), {}
    while (rate := text.wanted(found, case)) is not None:
        found[rate] = {str(epochs): losses[text.RATES.index(rate)] for epochs in case.epochs}
    assert set(found) == set(tries) and text.chosen(found, 1) == best


@pytest.mark.parametrize("name", ["text", "images"])
def test_the_sites_tables_are_those_of_the_results(name, example):
    quality = example("quality")
    held = json.loads(quality.RESULTS.read_text(encoding="utf-8"))[name]
    shown = "\n".join(runpy.run_path(str(DOCS / "site.py"))["PARTS"][f"quality_{name}"]())
    assert shown.strip() == quality.TABLES[name](held).strip() and shown.count("\n| ") > 8


def test_costs_are_of_todays_program(example):
    """Of the preset's own fine-tune: the ledger's last forecast."""
    costs = json.loads((DOCS / "quality.json").read_text(encoding="utf-8"))["images"]["costs"]
    said = json.loads((DOCS / "results.json").read_text(encoding="utf-8"))
    assert costs["rank 4, nf4, layers 0,1,2,3,4"]["cycles"]["10"] == said["forecast"]["total"]


def test_pictures_that_choose_neither_learn_nor_judge(tmp_path, example):
    pictures, count = example("pictures"), 10_000
    numbers = np.zeros((count, 784), np.uint8)
    numbers[:, 0], numbers[:, 1] = np.divmod(np.arange(count), 256)
    for kind, dims, data in (("images", 3, numbers), ("labels", 1, np.arange(count) % 10)):
        path = tmp_path / f"t10k-{kind}-idx{dims}-ubyte.gz"
        path.write_bytes(gzip.compress(bytes(4 + 4 * dims) + data.astype(np.uint8).tobytes(), 1))

    def seen(seed, *parts):
        made = pictures.parts("none", tmp_path, seed)
        found = np.concatenate([made[f"x_{part}"].reshape(-1, 784) for part in parts]).astype(int)
        return 256 * found[:, 0] + found[:, 1]

    choose = seen(None, "train", "test")
    for seed in (0, 1):
        learn, judge = seen(seed, "train"), seen(seed, "test")
        each = np.concatenate([choose, learn, judge])
        assert len(np.unique(each)) == len(each) and len(judge) == pictures.JUDGE
    assert set(seen(0, "train")) != set(seen(1, "train"))
