"""Writes the programs of a small run of every preset, as the checkout makes them that the script lies in.

``python tests/tools/same_programs.py DIR`` writes them and the memory contents before them; ``python
tests/tools/same_verilog.py compare BEFORE AFTER`` says which of two checkouts' differ.
"""

import hashlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.graph.onnx.load import load_network
from gradloom.models.adapters.lora import Adapter
from gradloom.models.onnx_import import shipped_networks
from gradloom.models.recurrent.stored import load_network as load_recurrent
from gradloom.models.sequences import FOLDS, spar_model, spar_windows
from gradloom.preset import PRESETS, Preset
from gradloom.program.descent import AdamW
from gradloom.sim.run.builds.designs import Design
from gradloom.systems.diffusion.program.step import lowered
from gradloom.systems.diffusion.small import SmallDiffusion, small_unet
from gradloom.systems.job import Job
from gradloom.systems.networks.program.prepared import Prepared, learning_of
from gradloom.systems.sequences.program.image import CellImage
from gradloom.systems.sequences.program.onchip import HIDDEN
from gradloom.systems.sequences.program.program import CellProgram, CellSetup
from gradloom.systems.text.program.layout import Layout
from gradloom.systems.text.program.step import lower
from gradloom.systems.text.run.instant import InstantTrainer, arranged
from gradloom.systems.text.run.step import place_frozen
from gradloom.systems.text.run.training import Training, largest
from gradloom.systems.text.small import SmallLanguage

#: Of a program: its name, its bytes, and memory contents by offset.
Program = tuple[str, bytes, Iterable[tuple[int, bytes]]]


def _finetune(preset: Preset) -> Iterator[Program]:
    """Fine-tunes of images and sequences, with each kind of cache."""
    kinds: dict[str, dict[str, Any]] = {"nf4": {}, "none": {}, "momentum": {"momentum": 0.5, "batch": 3}}
    for name, more in kinds.items():
        small = {"limit": 8, "epochs": 2, "engine": "rtl", "batch": 4} | more
        if name == "none" and preset.workload.label == "images":
            small["cache"] = "none"
        options = preset.workload.options(preset.name, small).check()
        design = Design(preset, None)
        job = Job(preset=preset, options=options, design=design, output=Path("none"), tell=lambda *_: None)
        plan = preset.workload.function("finetune")(job).plan
        yield f"finetune-{name}", plan.assembler.code, plan.segments


def _answers(preset: Preset) -> Iterator[Program]:
    x, _ = spar_windows(FOLDS[0])
    network = load_recurrent(spar_model(0, 64 if preset.config.hidden >= 64 else HIDDEN))
    image = CellImage(network, preset.config)
    rows = image.windows(network.input.codes(x[:2]))
    for name, made in (
        ("setup", CellSetup(image, preset.config)),
        ("answers", CellProgram(image, rows, preset.config)),
    ):
        yield name, made.code, made.contents()


def _text(preset: Preset) -> Iterator[Program]:
    small = SmallLanguage(preset.config, 1 << 24, rank=4)
    text, layers = small.tokens[:16], range(small.model.layers)
    for name, more in {"adamw": {"rule": AdamW(lr=1e-2)}, "sgd": {"rule": 0.05, "texts": 2}, "forward": {}}.items():
        training = Training(small.frozen, text, small.adapters, layers, **more)  # type: ignore[arg-type]
        frac, layout = training.fracs(largest(training.exact()), headroom=1), Layout()
        place_frozen(training, layout)
        for every in (None, 4000):
            where = layout.copy()
            program = lower(training.operations, frac, where, preset.config, yield_every=every)
            yield f"{name}-{every}", program.code, training.memory(frac, where).items()
    hidden = small.model.hidden
    random = np.random.default_rng(1)
    blocks = {
        each: Adapter(random.normal(0, 0.1, (4, hidden)), random.normal(0, 0.1, (hidden, 4)), 2.0) for each in layers
    }
    trainer = InstantTrainer(small.frozen, blocks, layers, AdamW(lr=1e-2))
    layout, _, _ = arranged(trainer, [text], preset.config)
    fill = trainer.filling(text)
    frac = fill.fracs(largest(fill.exact()), headroom=1)
    layout.offsets.update(trainer.places[text])
    program = lower(fill.operations, frac, layout, preset.config)
    yield "instant", program.code, fill.memory(frac, layout).items()


def _diffusion(preset: Preset) -> Iterator[Program]:
    net = small_unet(size=4, channels=(16, 16), text=8, groups=4, heads=1)
    small = SmallDiffusion.drawn(net, text=4, rank=2, targets="all")
    step = lowered(preset.config, small.network, small.learnt, images=1, lr=1e-3)
    for number in (1, 2):
        yield f"step-{number}", step.written(number).code, step.program.contents()


def _network(preset: Preset) -> Iterator[Program]:
    network = load_network(str(shipped_networks()["digits"]))
    for method in ("lora", "head"):
        prepared = Prepared(learning_of(network, "classes", method), "classes")
        made = prepared.programs(preset.config, 2, prepared.rules(1e-3))
        for name, step in (("trunk", made.trunk), ("step", made.step)):
            if step is not None:
                yield f"{method}-{name}", step.written(2).code, step.program.contents()


PROGRAMS = {
    "images": (_finetune,),
    "sequences": (_finetune, _answers),
    "answers": (_answers,),
    "text": (_text,),
    "diffusion": (_diffusion,),
    "networks": (_network,),
}


def write(folder: Path) -> None:
    """Writes the programs of every preset, a folder each."""
    for preset in PRESETS.values():
        print(f"programs of {preset.name}", file=sys.stderr)
        (folder / preset.name).mkdir(parents=True)
        for make in PROGRAMS[preset.workload.label]:
            for name, code, contents in make(preset):
                (folder / preset.name / f"{name}.hex").write_text(code.hex("\n", 32), encoding="utf-8")
                lines = [f"{offset:#x} {len(data)} {hashlib.sha256(data).hexdigest()}\n" for offset, data in contents]
                (folder / preset.name / f"{name}.mem").write_text("".join(sorted(lines)), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
