"""The plan of InstantFT counts what its programs read and keep."""

import dataclasses
import json

import pytest

from gradloom import boards
from gradloom.models.language import BUILT_IN
from gradloom.systems.text.operations.instant import InstantStep
from gradloom.systems.text.program.traffic import base_bytes

SMOLLM2 = BUILT_IN["smollm2-135m"]


def test_a_plan_says_what_the_programs_read(run):
    code, out, _ = run("plan", "smollm2-135m", "--method", "instantft", "--json")
    said, step = json.loads(out), InstantStep(SMOLLM2, 64, 8, range(30))
    assert code == 0 and said["cache"]["bytes_per_text"] == step.cache_bytes == 4 * 64 * 576 * 31
    later = base_bytes(step.operations())
    assert said["cache"]["base_bytes_later"] == later == 2 * 2 * 49152 * 576
    assert said["cache"]["base_bytes"] == later + base_bytes(step.fill())
    assert said["adapter_parameters"] == 2 * 8 * 576 * 30
    room = boards.find("genesys2").memory_bytes - sum(said["memory"].values())
    assert said["cache"]["texts"] == room // step.cache_bytes > 100 and said["fits"]
    assert said["first_step"]["seconds"] > said["step"]["seconds"] > 0
    assert said["step"]["bytes"] > later and "blocks forward" not in said["step"]["parts"]


def test_a_plan_is_printed(run):
    code, out, _ = run("plan", "smollm2-135m", "--method", "instantft")
    assert code == 0 and "later epochs" in out and "forward cache: 4,571,136 bytes a text" in " ".join(out.split())
    assert "proposal" not in out


def test_qloras_plan_stays(run, monkeypatch):
    monkeypatch.setitem(BUILT_IN, "smollm2-135m", dataclasses.replace(BUILT_IN["smollm2-135m"], layers=2))
    plain, named = (json.loads(run("plan", "smollm2-135m", "--json", *more)[1]) for more in ((), ("--method", "qlora")))
    assert plain == named and "cache" not in plain


@pytest.mark.parametrize(
    "options, named",
    [
        (("--method", "full"), "method=full: must be one of qlora, instantft"),
        (("--method", "instantft", "--axi-bits", "7"), "axi_bits=7"),
        (
            ("--method", "instantft", "--targets", "q"),
            "targets=q: adapters of InstantFT go from every block to the head",
        ),
        (("--method", "instantft", "--store", "int8"), "store=int8: must be words for InstantFT"),
    ],
)
def test_a_wrong_request_is_one_message(run, options, named):
    code, out, err = run("plan", "smollm2-135m", *options)
    assert code == 2 and out == "" and named in err
