"""The plan of a diffusion model has the products and the weights that diffusers' network has."""

import json
from types import SimpleNamespace

import pytest

from gradloom.compiler.estimate.bounds import step_bounds, summed
from gradloom.models.files.unet import SD_V1_5, find_unet, is_unet
from gradloom.preset import PRESETS
from gradloom.program import progress
from gradloom.program.progress import check_progress
from gradloom.program.tiles import pieces
from gradloom.sim.time.forecast import forecast
from gradloom.systems.diffusion.plan import planned
from gradloom.systems.diffusion.program.pieces import step_pieces
from gradloom.systems.diffusion.unet import RESULT, operations, part_named

SMALL = {
    "sample_size": 8,
    "block_out_channels": [16, 32],
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
    "layers_per_block": 1,
    "attention_head_dim": 2,
    "cross_attention_dim": 24,
    "norm_num_groups": 8,
}


@pytest.mark.parametrize("only", ["all", "cross-attention"])
def test_sums_are_those_of_the_products(only):
    plan = planned(SD_V1_5, only=only)
    for total, part in (("step_macs", "macs"), ("cycles", "cycles"), ("bytes", "bytes")):
        assert plan[total] == sum(row[part] for row in plan["products"])
    assert plan["adapter_parameters"] == 8 * (6 * (5 * 320 + 5 * 640 + 6 * 1280) + 16 * 2 * 768)
    if only == "cross-attention":
        assert {row["layer"].split(".")[-2 if "to_out" in row["layer"] else -1] for row in plan["products"]} == {
            "to_q", "to_k", "to_v", "to_out",
        }  # fmt: skip


def test_a_known_prompts_products_are_kept():
    """Their weights are not needed; adapters of these layers learn as before."""
    whole, known = (planned(SD_V1_5, known_prompt=kept) for kept in (False, True))
    gone = [row for row in whole["products"] if row["layer"].endswith(("attn2.to_k", "attn2.to_v"))]
    base = [row for row in gone if row["part"] == "base"]
    widths = 2 * (5 * 320 + 5 * 640 + 6 * 1280)
    assert len(base) == 32 and whole["step_macs"] - known["step_macs"] == 77 * 768 * widths
    assert whole["cycles"] - known["cycles"] == sum(row["cycles"] for row in base)
    # Of each, input, weights and codes go; two bytes of what adapters are added to are read, and the codes stored.
    stored = 77 * widths
    assert whole["bytes"] - known["bytes"] == sum(row["bytes"] for row in base) - 3 * stored
    assert known["memory"]["known_prompt"] == 2 * stored and whole["memory"]["known_prompt"] == 0
    assert whole["memory"]["frozen_codes"] - known["memory"]["frozen_codes"] == 768 * widths
    assert whole["adapter_parameters"] == known["adapter_parameters"]


def test_products_are_counted_on_the_presets_array(run):
    config = PRESETS["cdm-qta-kv260"].config
    assert planned(SD_V1_5)["array"] == [config.array_rows, config.array_columns]
    code, out, _ = run("plan", "sd-v1.5", "--array", "64x64", "--only", "cross-attention", "--known-prompt", "--json")
    known = planned(SD_V1_5, only="cross-attention", array=(64, 64), known_prompt=True)
    found = json.loads(out)
    assert found.pop("step")["array"] > known["cycles"] and code == 0 and found == known
    assert known["cycles"] < planned(SD_V1_5, only="cross-attention", known_prompt=True)["cycles"]


def test_any_configuration_of_a_file(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMALL))
    assert is_unet(path) and is_unet(tmp_path)
    net = find_unet(tmp_path)
    assert (net.channels, net.attends, net.rises, net.text) == ((16, 32), (True, False), (False, True), 24)
    ops = operations(net, text=5)
    assert ops[-1].o.name == RESULT and ops[-1].o.rows == 64
    # Every tensor is made before it is read.
    made = {"latents", "timestep", "prompt"}
    for each in ops:
        assert {t.name for t in each.i} <= made
        made.add(each.o.name)
    assert len(made) == len(ops) + 3


def test_the_verb_prints_what_the_plan_counts(run):
    code, out, _ = run("plan", "sd-v1.5", "--board", "kv260", "--only", "cross-attention", "--json")
    found = json.loads(out)
    assert found.pop("step") == summed(step_bounds(operations(SD_V1_5, rank=8), PRESETS["cdm-qta-kv260"].config))
    assert code == 0 and found == planned(SD_V1_5, only="cross-attention")
    code, out, _ = run("plan", "sd-v1.5")
    assert code == 0 and "859,520,964 parameters" in out and "cycles are of the products" in out


@pytest.mark.parametrize(
    "name", ["mid_block.attentions.0.transformer_blocks.0.attn2", "up_blocks.0.resnets.1", "down_blocks.0.resnets.0"]
)
def test_a_part_has_the_forecast_of_its_program(run, tmp_path, name):
    """Of 48 and 80 channels, whose norms have 6, 10 and 16 features a group; the first block learns nothing."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMALL | {"block_out_channels": [48, 80], "sample_size": 32}))
    code, out, err = run("plan", str(path), "--only", name, "--seq", "5", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert {each["layer"].startswith(name) for each in found["products"]} == {True}
    config, listed = PRESETS["cdm-qta-kv260"].config, operations(find_unet(path), text=5, rank=8)
    some, made = part_named(listed, name), []
    step = step_pieces(config, listed, some, batch=1, lr=1e-3, tell=lambda piece, count: made.append(piece))
    (piece,) = made
    check_progress(piece.instructions, config.machine.engines, depth=config.queue_depth)
    made = forecast(piece.program)
    assert (found["forecast"]["cycles"], found["forecast"]["commands"]) == (made.total, len(piece.instructions))
    # The gradients of what it reads go to memory, but of what nothing in front of has learnt.
    inputs = {each.removesuffix(".gradient") for each in step.shown if each.endswith(".gradient")}
    reads = {t.name for each in part_named(listed, name) for t in each.i} - {
        each.o.name for each in part_named(listed, name)
    }
    assert inputs == {"down_blocks.0.resnets.0": set()}.get(name, {n for n in reads if "block" in n})
    assert made.total > found["cycles"] > 0


def test_the_forecast_of_a_step_is_that_of_its_pieces(run, tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "_LEAST", 60)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMALL))
    code, out, err = run("plan", str(path), "--forecast", "--seq", "5", "--json")
    assert code == 0, err
    found, cycles = json.loads(out)["forecast"], []
    config, listed = PRESETS["cdm-qta-kv260"].config, operations(find_unet(path), text=5, rank=8)

    def take(piece, count):
        cycles.append(forecast(piece.instructions, config=config, program_offset=piece.program.offset))

    step_pieces(config, listed, listed, batch=1, lr=1e-3, tell=take)
    assert found["pieces"] == len(cycles) >= found["programs"] > 5
    assert found["cycles"] == sum(each.total for each in cycles)
    assert found["phases"] == {name: sum(each.phases[name] for each in cycles) for name in found["phases"]}


def test_a_step_that_memory_does_not_hold_is_refused_before_its_programs(run, tmp_path, monkeypatch):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMALL))
    code, out, err = run("plan", str(path), "--forecast", "--seq", "5", "--json")
    assert code == 0, err
    needs = json.loads(out)["forecast"]["window_bytes"]
    monkeypatch.setattr(pieces.Pieces, "write", None)
    monkeypatch.setattr("gradloom.boards.find", lambda name: SimpleNamespace(memory_bytes=needs - 1))
    code, out, err = run("plan", str(path), "--forecast", "--seq", "5")
    told = " ".join(err.split())
    assert code == 2 and out == "" and f"forecast=True: the step needs {needs:,} bytes besides its commands" in told
    assert f"the board's memory has {needs - 1:,}; take fewer samples at once, or a part of the network" in told


def test_a_part_that_would_not_end_is_refused(run, tmp_path, monkeypatch):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMALL))
    monkeypatch.setattr(progress, "MOST", 0)
    code, out, err = run("plan", str(path), "--only", "mid_block.resnets.0.norm1")
    assert code == 2 and out == "" and "mid_block.resnets.0.norm1: a program of its step would not end: token" in err


def test_a_part_without_products_says_its_forecast(run, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMALL))
    code, out, err = run("plan", str(path), "--only", "mid_block.resnets.0.norm1")
    assert code == 0, err
    assert "the program of mid_block.resnets.0.norm1" in " ".join(out.split()) and "the part, every record" in out


#: Options of language models with their defaults, which are refused all the same.
USUAL = {"bits": "4", "optimizer": "adamw", "store": "words", "head": "float16", "method": "qlora"}
USUAL |= {"axi-bits": "64", "from-layer": "0", "texts": "1", "steps": "1"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("sd-v1.5", "--seq", "78"), "seq=78"),
        (("sd-v1.5", "--rank", "0"), "rank=0"),
        (("sd-v1.5", "--rank", "3"), "rank=3"),
        (("sd-v1.5", "--rank", "33"), "rank=33"),
        (("sd-v1.5", "--only", "convolutions"), "only=convolutions: must be all, cross-attention, or how names"),
        (("sd-v1.5", "--only", "mid_block", "--array", "64x64"), "array=64x64: must be left out with only=mid_block"),
        (("sd-v1.5", "--only", "mid_block", "--known-prompt"), "known_prompt=True: must be left out"),
        (("sd-v1.5", "--forecast", "--only", "cross-attention"), "only=cross-attention: has no program"),
        (
            ("sd-v1.5", "--only", "down_blocks.1.attentions.0.transformer_blocks.0.ff"),
            "only=down_blocks.1.attentions.0.transformer_blocks.0.ff: down_blocks.1.attentions.0.transformer_blocks.0."
            "ff.net.0.proj does not lead to",
        ),
        (("sd-v1.5", "--forecast", "--known-prompt"), "known_prompt=True: must be left out with forecast=True"),
        (("sd-v1.5", "--bits", "3"), "bits=3"),
        (("sd-v1.5", "--batch", "0"), "batch=0"),
        (("smollm2-135m", "--batch", "1"), "batch=1"),
        (("sd-v1.5", "--array", "64"), "array=64: must be rows and columns"),
        (("sd-v1.5", "--array", "0x64"), "rows=0"),
        (("sd-v1.5", "--array", "64x257"), "columns=257"),
        (("smollm2-135m", "--array", "64x64"), "array=64x64"),
        (("smollm2-135m", "--known-prompt"), "known_prompt=True"),
        (("nowhere.json",), "model=nowhere.json: is no file, none of the presets"),
        ((__file__,), "test_plan.py: is a file of a kind that is not known, which no preset plans for"),
        (("sd-v1.5", "--board", "ulx3s"), "board=ulx3s: no preset fine-tunes diffusion models on it; must be kv260"),
        *(
            (("sd-v1.5", f"--{name}", value), f"{name.replace('-', '_')}={value}: must be left out")
            for name, value in USUAL.items()
        ),
        (("smollm2-135m", "--only", "all"), "only=all"),
    ],
)
def test_what_the_plan_refuses_is_one_line(run, options, says):
    code, out, err = run("plan", *options)
    assert code == 2 and out == "" and says in err and err.count("\n") == 1
