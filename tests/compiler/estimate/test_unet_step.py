"""Bounds of a UNet's step beside its program."""

from dataclasses import replace

from gradloom.compiler.estimate.bounds import UNITS, step_bounds, summed
from gradloom.models.digits_unet import shipped_unet
from gradloom.models.files.unet import SD_V1_5
from gradloom.preset import PRESETS
from gradloom.rtl.formats.tiles.norm import NormOpcode
from gradloom.rtl.formats.tiles.product import ProductOpcode
from gradloom.rtl.formats.tiles.records import record_of
from gradloom.rtl.shell.engines import LOAD, STORE
from gradloom.sim.time.forecast import forecast
from gradloom.sim.time.norm import norm_cycles
from gradloom.systems.diffusion.program.step import lowered
from gradloom.systems.diffusion.task import fresh_adapters
from gradloom.systems.diffusion.unet import PROMPT, network, operations

#: Every record goes through memory.
CONFIG = replace(PRESETS["cdm-qta-kv260"].config, forwards=0)


def planned(batch):
    """Bounds of the shipped UNet's step, and its program."""
    net, weights = shipped_unet()
    listed = operations(net, text=8, rank=8)
    learnt = fresh_adapters(listed, 0)
    step = lowered(CONFIG, network(listed, weights | learnt), learnt, images=batch, lr=1e-3)
    return step_bounds(listed, CONFIG, batch), step.program


def counted(program):
    """What its commands need of each unit."""
    found, by_row = dict.fromkeys(UNITS, 0), False
    for each in program.instructions:
        given = each.operands
        if each.engine == LOAD:
            found["read"] += given["beats"]
        elif each.engine == STORE:
            port, arg = given["source"].port, given["arg"]
            found["write"] += record_of(arg).steps(port.codes) if port.name == "o" else given["beats"]
        elif each.engine.name == "norm":
            by_row = bool(given.get("by_row")) if each.opcode == NormOpcode.SUMS else by_row
            found["norm"] += norm_cycles(each.opcode, given, by_row, CONFIG.norm_lanes)
        elif each.engine.name == "product" and each.opcode != ProductOpcode.SCAN:
            passes = given.get("columns", 0) // CONFIG.array_columns + 1
            bias = each.opcode == ProductOpcode.BIAS
            rows = given.get("rows", 0) + 1
            found["array"] += passes * (rows if bias else (given.get("tiles", 0) + 1) * max(rows, CONFIG.array_rows))
        elif each.engine.name == "element":
            found["element"] += (given.get("rows", 0) + 1) * -(-(given.get("features", 0) + 1) // 8)
    return found


def test_units_need_what_the_programs_commands_need():
    """Norms and writing to the cycle, reading and the array within 8 %; elements have their starts too."""
    bounds, program = planned(1)
    told, found = summed(bounds), counted(program)
    assert (told["norm"], told["write"]) == (found["norm"], found["write"])
    for unit in ("read", "array"):
        assert abs(told[unit] / found[unit] - 1) <= 0.08, unit
    assert found["element"] < told["element"] < 1.25 * found["element"]


def test_a_batchs_step_takes_what_was_planned():
    """Of eight images, whose operations overlap, a quarter less than one operation after another."""
    bounds, program = planned(8)
    assert 0.65 <= forecast(program).total / summed(bounds)["cycles"] <= 0.8


def test_an_operations_bound_is_the_most_of_its_units():
    bounds = step_bounds(operations(SD_V1_5, rank=8), CONFIG)
    total = summed(bounds)
    assert total["cycles"] >= max(total[unit] for unit in UNITS)
    assert all(each.cycles in [getattr(each, unit) for unit in UNITS] for each in bounds)
    assert total["array"] * CONFIG.array_rows * CONFIG.array_columns > 834e9
    # A known prompt's weights are not read, and twice the columns take half of the array's time at best.
    known = summed(step_bounds(operations(SD_V1_5, rank=8), CONFIG, known={PROMPT}))
    assert known["read"] < total["read"] and known["array"] < total["array"]
    wide = summed(step_bounds(operations(SD_V1_5, rank=8), CONFIG, array=(64, 64)))
    assert total["array"] / 2 <= wide["array"] < total["array"] and wide["read"] == total["read"]


def test_operands_are_read_again_where_slots_are_too_few():
    """The stream once where all weights have a slot; else what is kept again for each block of rows."""
    bounds = {(each.layer, each.way): each for each in step_bounds(operations(SD_V1_5, rank=8), CONFIG)}
    tile = 64 * 64 // 32 + 1
    at = "down_blocks.0.attentions.0.transformer_blocks.0"
    # 320 features are 5 tiles, 4096 pixels 64 rows of tiles, 25 tiles of weights.
    assert bounds[f"{at}.attn1.to_q", "forward"].read == (64 * 5 + 25) * tile
    # 200 tiles of weights: 6 rows of 5 tiles have a slot, so 11 blocks read less than 40 columns.
    assert bounds[f"{at}.ff.net.0.proj", "forward"].read == (64 * 5 + 11 * 200) * tile
