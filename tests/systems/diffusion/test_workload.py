"""The fine-tune of the shipped diffusion model, and the pictures that it makes."""

import json
import re
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import gradloom
from gradloom.models.adapters.diffusion_lora import FILE
from gradloom.models.datasets import mnist_test
from gradloom.models.digits_unet import STYLES, latents, pictures, plain, shipped_prompts, shipped_unet
from gradloom.preset import PRESETS
from gradloom.sim.reference.tiles.program import TileMachine
from gradloom.sim.run.builds.designs import Design
from gradloom.sim.run.counted import MismatchError
from gradloom.systems.diffusion import pictures as digits_pictures
from gradloom.systems.diffusion import task as digits_diffusion
from gradloom.systems.diffusion.noise import kept, noisy, sample, spread
from gradloom.systems.diffusion.pictures import frechet, read_digits
from gradloom.systems.diffusion.program import step as program

PRESET = "cdm-qta-kv260"
IMAGES, LABELS = mnist_test()


@pytest.fixture
def data(tmp_path):
    """A user's file: 12 images to learn from, 4 to judge by."""
    path = tmp_path / "mine.npz"
    np.savez(path, x_train=IMAGES[:12], y_train=LABELS[:12], x_test=IMAGES[12:16], y_test=LABELS[12:16])
    return path


def test_both_engines_learn_and_an_adapter_goes_on(data, tmp_path, monkeypatch):
    monkeypatch.setattr(digits_pictures, "STEPS", 2)
    made = {}
    for engine in ("float", "reference"):
        made[engine] = gradloom.finetune(
            PRESET, engine=engine, data=data, steps=2, batch=4, generate=0, output=tmp_path / engine
        )
    real, codes = made["float"], made["reference"]
    # Masters of 32 bits hold the first adapters not to the last bit.
    assert real["loss_after"] < real["loss_before"] == pytest.approx(codes["loss_before"], rel=1e-6)
    assert codes["loss_after"] == pytest.approx(real["loss_after"], rel=0.02)
    assert codes["own_loss_after"] == pytest.approx(real["loss_after"], rel=0.2)
    assert codes["saturated"] == 0 < codes["zeroed"] < codes["stored"] and "zeroed" not in real
    assert codes["memory_bytes"] < codes["memory_bytes_float32"] / 2
    assert not (tmp_path / "float" / "samples.png").exists()
    # From where it ended; all figures are repeated by the same request.
    once, twice = (
        gradloom.finetune(
            PRESET,
            engine="float",
            data=data,
            adapter=tmp_path / "float",
            steps=1,
            generate=0,
            output=tmp_path / f"more{n}",
        )
        for n in (1, 2)
    )
    assert once["loss_before"] == pytest.approx(real["loss_after"], rel=1e-6)
    assert (tmp_path / "more1" / FILE).read_bytes() == (tmp_path / "more2" / FILE).read_bytes()
    assert once == twice
    told = gradloom.infer(
        PRESET, prompt="a sks * .", adapter=tmp_path / "float", output=tmp_path / "grid.png", count=3, steps=1
    )
    assert told["count"] == 3 and (tmp_path / "grid.png").read_bytes()[:4] == b"\x89PNG"


class Models(TileMachine):
    """Models of the engines in place of the simulation; ``wrong``: what a step leaves otherwise."""

    wrong, task, told = None, None, []

    @classmethod
    def simulated(cls, config, files, *, progress, expected):
        made = cls(config, 64 << 20)
        made.cycles, made.number = expected // 2, 0
        return made

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def run(self, program):
        health = super().run(program)
        self.number += 1
        step = self.task.step
        if self.wrong == "word" and self.number == 2:
            offset = next(iter(step.learners.values())).words.words
            self.write(offset, bytes([self.read(offset, 1)[0] ^ 1]))
        if self.wrong == "loss":
            offset = step.shown["error"].offset + 32
            self.write(offset, bytes([self.read(offset, 1)[0] ^ 1]))
        counters = SimpleNamespace(**asdict(health), cycles=self.cycles, phases={"load": self.cycles})
        return SimpleNamespace(counters=counters, check=self.check)

    def check(self, *, told, **health):
        self.told.append(health)
        return {"commands": len(self.task.step.program)}


@pytest.fixture
def on_models(monkeypatch, data, tmp_path):
    """A fine-tune by ``--engine rtl`` on models; cycles are not compared."""
    told = []
    lowered = digits_diffusion.DiffusionTask._lowered

    def kept(task):
        monkeypatch.setattr(Models, "task", task)
        return lowered(task)

    monkeypatch.setattr("gradloom.sim.run.machine.MachineRunner", Models)
    monkeypatch.setattr(digits_diffusion.DiffusionTask, "_lowered", kept)
    monkeypatch.setattr(Models, "told", told)
    monkeypatch.setattr(Design, "files", lambda design, tell: [])

    def finetune(wrong=None):
        monkeypatch.setattr(Models, "wrong", wrong)
        made = gradloom.finetune(
            PRESET, engine="rtl", data=data, steps=2, batch=1, generate=0, output=tmp_path / f"rtl{wrong}"
        )
        return made, told

    return finetune


def test_steps_on_the_machine_are_those_of_the_reference(on_models, data, tmp_path):
    made, told = on_models()
    wanted = gradloom.finetune(
        PRESET, engine="reference", data=data, steps=2, batch=1, generate=0, output=tmp_path / "reference"
    )
    for name in ("loss", "loss_after", "own_loss_after", "saturated", "zeroed", "stored"):
        assert made[name] == wanted[name]
    assert made["equal_to_reference"]["losses"] == 2 and made["cycles"]["total"] == made["forecast"]["total"]
    assert made["clock_mhz"] == PRESETS[PRESET].config.clock_mhz
    assert len(told) == 2 and sum(each["underflowed"] for each in told) == made["zeroed"] > 0
    assert (tmp_path / "rtlNone" / FILE).read_bytes() == (tmp_path / "reference" / FILE).read_bytes()


@pytest.mark.parametrize(
    ("wrong", "says"), [("word", r"lora_A.weight\[0, 0\] is"), ("loss", r"loss of each step\[0\] is")]
)
def test_a_step_that_differs_is_found(on_models, wrong, says):
    with pytest.raises(MismatchError, match=says):
        on_models(wrong)


class Passes(TileMachine):
    """Models of the engines for passes; counters are compared, cycles are not."""

    @classmethod
    def simulated(cls, config, files, *, progress):
        return cls(config, 64 << 20)

    def close(self):
        pass

    def run(self, program):
        health = super().run(program)

        def check(**wanted):
            assert wanted == {name: getattr(health, name) for name in wanted}

        return SimpleNamespace(counters=SimpleNamespace(cycles=1), forecast=SimpleNamespace(total=1), check=check)


def test_pictures_by_the_machine_are_those_of_the_reference(data, tmp_path, monkeypatch):
    """With an adapter that has learnt; floating point makes others."""
    gradloom.finetune(PRESET, engine="float", data=data, steps=2, batch=4, lr=0.1, generate=0, output=tmp_path / "run")
    asked = {"prompt": "a sks 3 .", "adapter": tmp_path / "run", "count": 1, "steps": 2}
    monkeypatch.setattr("gradloom.systems.forward.MachineRunner", Passes)
    told = {
        engine: gradloom.infer(PRESET, **asked, engine=engine, output=tmp_path / f"{engine}.png")
        for engine in ("rtl", "reference", "float")
    }
    assert told["rtl"]["cycles"] == told["rtl"]["forecast"] == 2 and "cycles" not in told["reference"]
    made = {engine: (tmp_path / f"{engine}.png").read_bytes() for engine in told}
    assert made["rtl"] == made["reference"] != made["float"]


def test_generated_digits_are_judged(data, tmp_path, monkeypatch):
    """With the least number of pictures, and one step of the sampler in place of 25."""
    usual = digits_pictures.generated.__kwdefaults__
    monkeypatch.setattr(digits_pictures.generated, "__kwdefaults__", usual | {"steps": 1})
    metrics = gradloom.finetune(
        PRESET, engine="float", data=data, steps=1, batch=4, generate=128, output=tmp_path / "run"
    )
    assert set(metrics["frechet"]) == {"before", "after"} and metrics["frechet"]["after"] > 0
    assert 0 <= metrics["accuracy_generated"]["after"] <= 1 and metrics["accuracy_images"] == 1
    assert (tmp_path / "run" / "samples.png").stat().st_size > 1000
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["units"]["frechet"]


BAD = {
    "rank 0": (("--rank", "0"), "rank=0: must be one of 1, 2, 4, 8, 16, 32"),
    "rank 3": (("--rank", "3"), "rank=3: must be one of 1, 2, 4, 8, 16, 32"),
    "rank 33": (("--rank", "33"), "rank=33: must be one of"),
    "a long prompt": (("--prompt", " ".join(["a"] * 78)), "has 78 words, must have at most 8"),
    "a word": (("--prompt", "a cat ."), "word 'cat' must be one of a . 0 1"),
    "an empty prompt": (("--prompt", " "), "must have a word"),
    "digit and star": (("--prompt", "a * 3"), "must have a digit or *, not both"),
    "style and data": (("--style", "invert", "--data", "DATA"), "style=invert: must be left out"),
    "a style": (("--style", "blue"), "style=blue: must be one of rot90, invert, shear"),
    "few pictures": (("--generate", "5"), "generate=5: must be 0, or at least 128"),
    "alpha 0": (("--alpha", "0", "--adapter", "ADAPTER"), "alpha=0.0: must be above 0"),
    "alpha alone": (("--alpha", "4"), "alpha=4: must be left out"),
    "an engine": (("--engine", "gpu"), "engine=gpu: must be one of rtl, reference, float"),
    "a design": (("--design", "."), "design"),
    "another rank": (("--adapter", "ADAPTER", "--rank", "4"), "rank=4: ADAPTER has adapters of rank 2"),
    "more layers": (("--adapter", "ADAPTER", "--targets", "all"), "has no adapter, or half of one"),
    "another size": (("--data", "SMALL"), "x_train has images of 1x20x20: must be 1x28x28"),
    "no such digit": (("--data", "DATA", "--prompt", "a sks 5 ."), "has no image of 5"),
    "a truncated file": (("--data", "BROKEN"), "is a ZIP archive that is cut short"),
    "no such adapter": (("--adapter", "nothing"), "nothing: no such file"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_requests_are_one_line(run, tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    ones = np.flatnonzero(LABELS != 5)[:20]
    np.savez("DATA.npz", x_train=IMAGES[ones], y_train=LABELS[ones], x_test=IMAGES[ones], y_test=LABELS[ones])
    small = np.zeros((4, 20, 20), np.uint8)
    np.savez("SMALL.npz", x_train=small, y_train=LABELS[:4], x_test=small, y_test=LABELS[:4])
    (tmp_path / "BROKEN.npz").write_bytes((tmp_path / "DATA.npz").read_bytes()[:500])
    (tmp_path / "ADAPTER").mkdir()
    _, weights = shipped_unet()
    tensors = {}
    for name, value in weights.items():
        layer, _, last = name.rpartition(".")
        if ".attn2.to_" in name and last == "weight":
            tensors[f"unet.{layer}.lora.down.weight"] = np.ones((2, value.shape[1]), np.float32)
            tensors[f"unet.{layer}.lora.up.weight"] = np.zeros((value.shape[0], 2), np.float32)
    save_file(tensors, tmp_path / "ADAPTER" / FILE)
    arguments, says = BAD[case]
    given = [f"{each}.npz" if each in ("DATA", "SMALL", "BROKEN") else each for each in arguments]
    code, out, err = run("finetune", PRESET, *given, "-o", "out")
    assert code == 2 and not out and says in err and err.count("\n") == 1, err
    assert not (tmp_path / "out").exists()


def test_a_step_beyond_the_memory_is_one_line(run, tmp_path, monkeypatch, data):
    monkeypatch.setattr(program, "MEMORY_BYTES", 1 << 20)
    code, out, err = run("finetune", PRESET, "--engine", "rtl", "--data", str(data), "--batch", "1", "-o", "out")
    says = r"batch=1: a step needs [\d,]+ bytes of memory, the simulation has 1,048,576; give fewer images\n"
    assert code == 2 and not out and re.search(says, err) and err.count("\n") == 1, err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--count", "0"), "count=0: must be from 1 to 400"),
        (("--steps", "1001"), "steps=1001: must be from 1 to 1000"),
        (("--prompt", "a cat"), "word 'cat'"),
        (("--seed", "-1"), "seed=-1"),
        (("--alpha", "2"), "alpha=2: must be left out"),
        (("-o", "grid.jpg"), "must name a file that ends in .png"),
    ],
)
def test_bad_pictures_are_one_line(run, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    code, _, err = run("infer", PRESET, "--prompt", "a sks 3 .", "-o", "grid.png", *arguments)
    assert code == 2 and says in err and err.count("\n") == 1, err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("style", [None, *STYLES])
def test_a_style_is_turned_back_and_lenet_reads_the_digit(style):
    images = pictures(latents(IMAGES[:200], style))
    assert (read_digits(plain(images, style))[1] == LABELS[:200]).mean() > 0.9
    if style is not None:
        # LeNet reads sheared digits too.
        assert style == "shear" or (read_digits(images)[1] == LABELS[:200]).mean() < 0.8
        assert np.abs(images - pictures(latents(IMAGES[:200]))).mean() > 0.05
        again = plain(images, style)
        there = pictures(latents(IMAGES[:200]))
        # A shear by half pixels of the small picture moves whole ones.
        assert np.abs(again - there).mean() < (0.06 if style == "shear" else 1e-6)


def test_latents_are_pixels_of_squares():
    """As torch's avg_pool2d and pixel_unshuffle: channel 2 dy + dx of a square."""
    image = np.zeros((1, 28, 28), np.uint8)
    # Pixels 4, 5 of the digit are 6, 7 of the padded one and 3 of the small one: square 1, place 1.
    image[0, 4:6, 4:6] = 255
    made = latents(image).reshape(8, 8, 4)
    assert made[1, 1, 3] == 1 and (made == -1).sum() == 255


def test_the_schedule_is_diffusers():
    """Values of DDPMScheduler(1000, beta_schedule="squaredcos_cap_v2").alphas_cumprod, diffusers 0.42.1."""
    made = kept(np.array([0, 1, 500, 998, 999]))
    np.testing.assert_allclose(made, PUBLISHED, rtol=1e-4)
    for wrong in (-1, 1000):
        with pytest.raises(ValueError, match="timestep=.*: must be from 0 to 999"):
            kept(np.array([wrong]))


PUBLISHED = (0.99995869, 0.99991256, 0.492285, 2.4287663e-06, 2.428735e-09)


def test_timesteps_are_spread():
    made = spread(np.random.default_rng(0), 10)
    assert sorted(made // 100) == list(range(10))


def test_the_sampler_finds_the_image_of_which_it_is_told_the_noise():
    rng = np.random.default_rng(1)
    clean, noise = np.clip(rng.standard_normal((2, 64, 4)), -1, 1), rng.standard_normal((2, 64, 4))

    def told(x, steps):
        share = kept(steps)[:, None, None]
        return (x - np.sqrt(share) * clean) / np.sqrt(1 - share)

    made = sample(told, noisy(clean, noise, np.array([999, 999])), steps=25)
    np.testing.assert_allclose(made, clean, atol=1e-6)


def test_frechet_is_that_of_normal_distributions():
    """Of distributions whose distance is known: means 3 apart, deviations 1 and 2 in each of 4 directions."""
    rng = np.random.default_rng(2)
    one, other = rng.standard_normal((20_000, 4)), 2 * rng.standard_normal((20_000, 4)) + [3, 0, 0, 0]
    assert frechet(one, one) == pytest.approx(0, abs=1e-9)
    assert frechet(one, other) == pytest.approx(9 + 4 * (2 - 1) ** 2, rel=0.03)


def test_prompts_are_those_of_the_golden_steps():
    """Words and places were taken apart from these; together they are the same."""
    from pathlib import Path

    prompts = np.load(Path(__file__).parents[2] / "golden" / "diffusion" / "steps.npz")["prompt"].reshape(-1, 8, 64)
    words = shipped_prompts()
    mine = np.stack([words(f"a sks {digit} .") for digit in range(10)])
    for each in prompts[:40]:
        assert np.abs(mine - each).max((1, 2)).min() < 1e-6
    assert load_file(shipped_file())["conv_in.bias"].dtype == np.float16


def shipped_file():
    from gradloom.models.datasets import DATA

    path = DATA / "digits_unet.safetensors"
    assert path.stat().st_size < 4_000_000
    return path
