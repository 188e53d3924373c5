"""A plan counts what is packed, keeps to the board's bandwidth, and says no where something does not fit."""

import dataclasses
import json

import pytest

from gradloom import boards
from gradloom.models.language import BUILT_IN, LanguageModel
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.systems.text.costs.budget import memory, multipliers, plan
from gradloom.systems.text.costs.fit import machine_misfits, planned
from gradloom.systems.text.costs.request import TARGETS, BudgetRequest, parse_targets

TINYLLAMA, SMOLLM2 = BUILT_IN["tinyllama-1.1b"], BUILT_IN["smollm2-135m"]
GENESYS2, KV260 = boards.find("genesys2"), boards.find("kv260")


@pytest.mark.parametrize(
    "bits, megabytes, board", [(4, 499.8, "zcu104"), (3, 378.7, "genesys2"), (2, 257.6, "genesys2")]
)
def test_tinyllamas_frozen_bytes(run, bits, megabytes, board):
    """None has a job to lay out: codes of 4 bits have one on boards with a preset, which takes half a minute."""
    code, out, _ = run("plan", "tinyllama-1.1b", "--board", board, "--seq", "16", "--bits", bits, "--json")
    said = json.loads(out)
    assert code == 0 and said["fits"]
    assert round(said["frozen_bytes"] / 1e6, 1) == megabytes
    assert said["frozen_bytes"] == said["memory"]["codes"] + said["memory"]["scales"]
    assert said["total_bytes"] == sum(said["memory"].values())


@pytest.mark.parametrize("head", ["float16", "nf"])
@pytest.mark.parametrize("bits", [4, 3])
def test_a_plan_counts_what_a_pack_holds(tmp_path, bits, head):
    """A small model of odd sizes, packed, beside its plan."""
    import numpy as np

    from gradloom.models.pack import write_pack

    class Made:
        model = LanguageModel(
            name="odd",
            hidden=128,
            inter=192,
            layers=3,
            heads=3,
            kv_heads=1,
            head_dim=64,
            vocab=100,
            context=64,
            rope_theta=1e4,
            norm_eps=1e-5,
            tied=False,
        )
        path = tmp_path

        def tensor(self, name):
            return np.random.default_rng(0).normal(size=self.model.tensors[name]).astype(np.float32)

    manifest = write_pack(Made(), tmp_path, bits=bits, head=head)
    held = memory(BudgetRequest(model=Made.model, bits=bits, head=head))
    sizes = {entry["name"]: entry["bytes"] for entry in manifest["linears"] + manifest["tensors"]}
    assert held["codes"] + held["scales"] == manifest["frozen_bytes"]
    linears = sum(size for name, size in sizes.items() if name.endswith("_proj"))
    assert held["codes"] + held["scales"] + held["padding"] == linears
    assert held["head"] == sizes["lm_head" if head == "nf" else "lm_head.weight"]
    assert held["embedding"] == sizes["model.embed_tokens.weight"]
    assert held["norms"] == sum(size for name, size in sizes.items() if "norm" in name)
    tables = sizes["table.levels"] + sizes["table.dynamic_map"]
    assert held["tables"] == tables + 64 * 4 * 64  # and the angles of 64 positions


def test_a_token_reads_the_weights_once_at_the_ports_rate():
    said = plan(BudgetRequest(model=TINYLLAMA, head="nf"), GENESYS2)
    streams = said["token"]["parts"]["linears"]["bytes"] + said["token"]["parts"]["head"]["bytes"]
    assert streams == pytest.approx(533.6e6, rel=1e-3)
    assert said["bandwidth"] == 6.4e9 and said["token"]["limit"].startswith("AXI port, 256 bits at 200 MHz")
    assert said["token"]["seconds"] == pytest.approx(said["token"]["bytes"] / 6.4e9)
    half = plan(BudgetRequest(model=TINYLLAMA, head="nf"), GENESYS2, port_bits=128)
    assert half["token"]["seconds"] == pytest.approx(2 * said["token"]["seconds"])
    wide = plan(BudgetRequest(model=TINYLLAMA, head="nf"), GENESYS2, port_bits=512)
    assert wide["bandwidth"] == 7.2e9 and wide["token"]["limit"] == "memory of genesys2, 7.2 GB/s peak"


def test_a_block_of_smollm2_takes_the_cycles_of_its_products():
    said = plan(BudgetRequest(model=SMOLLM2), GENESYS2)
    assert multipliers(GENESYS2) == said["multipliers"] == 512
    assert said["step"]["parts"]["linears forward"]["macs"] / 512 / 30 == 442_368
    assert said["step"]["limit"].startswith("array of 512 multipliers")


def test_nothing_is_multiplied_upstream_of_the_first_adapter():
    part = {
        names: plan(BudgetRequest(model=SMOLLM2, targets=names), GENESYS2)["step"]["parts"]
        for names in (("q_proj",), ("o_proj",), ("down_proj",))
    }
    layer = 64 * SMOLLM2.linear_parameters // 30

    def of(*projections):
        shapes = [SMOLLM2.shape(name) for name in projections]
        return 64 * sum(n * k for n, k in shapes)

    missing = {names: 30 * layer - each["linears backward"]["macs"] for names, each in part.items()}
    assert missing[("q_proj",)] == of("q_proj", "k_proj", "v_proj")
    assert missing[("o_proj",)] == of("q_proj", "k_proj", "v_proj", "o_proj")
    assert missing[("down_proj",)] == layer


def test_a_long_text_reads_the_weights_in_lots():
    parts = [plan(BudgetRequest(model=TINYLLAMA, seq=seq), GENESYS2)["step"]["parts"] for seq in (16, 64, 256)]
    once = parts[0]["linears forward"]["bytes"]
    assert once == 499_822_400
    assert once < parts[1]["linears forward"]["bytes"] < parts[2]["linears forward"]["bytes"]


def test_the_optimiser_counts():
    sgd, adamw = (plan(BudgetRequest(model=SMOLLM2, optimizer=name), GENESYS2) for name in ("sgd", "adamw"))
    assert sgd["memory"]["optimizer"] == 0
    assert adamw["memory"]["optimizer"] == 8 * adamw["adapter_parameters"]
    assert sgd["step"]["bytes"] < adamw["step"]["bytes"]
    assert adamw["adapter_parameters"] == 30 * 8 * ((576 + 576) + (192 + 576)) == 460_800


@pytest.mark.parametrize("store, bits", [("int8", 8.25), ("nf4", 4.25)])
def test_what_is_stored_as_codes_and_the_words_that_a_step_makes_of_them(store, bits):
    """A record of 32 bytes for 16 blocks; q and v of a layer share a place for moments."""
    held, words = (memory(BudgetRequest(model=SMOLLM2, store=each)) for each in (store, "words"))
    parameters = 460_800
    assert 8 * held["optimizer"] / (2 * parameters) == pytest.approx(bits, rel=0.01)
    assert 8 * held["adapters"] / (2 * parameters) == pytest.approx(bits, rel=0.02)
    assert held["working"] == 4 * parameters + 8 * 8 * (576 + 576) and words["working"] == 0
    assert sum(held.values()) < sum(words.values())
    with pytest.raises(ValueError, match="store=half: must be one of words, int8, nf4"):
        BudgetRequest(model=SMOLLM2, store="half")


def test_what_does_not_fit_prints_its_figures_and_a_line_for_each_bound(run):
    arguments = ("plan", "tinyllama-1.1b", "--seq", "512", "--targets", "all", "--rank", "18")
    code, out, err = run(*arguments)
    words = " ".join(out.split())
    assert code == 2 and "together 2,439,353,216" in words and "does not fit edge-qlora-genesys2; memory:" in words
    assert "the nearest that does: --rank 8 --seq 64 (1,011,651,456 bytes)" in words
    assert err.splitlines() == [
        "gradloom: rank=18: must be from 1 to 16, a machine's most; --engine float takes more (q_proj on the preset's "
        "machine); give --rank 8",
        "gradloom: memory=2439353216: genesys2 has 1073741824 bytes; give --rank 8 --seq 64",
    ]
    code, out, said_so = run(*arguments, "--json")
    said = json.loads(out)
    assert code == 2 and said_so == err and not said["fits"] and said["preset"] == "edge-qlora-genesys2"
    assert [each["field"] for each in said["misfits"]] == ["rank", "memory"]
    change = said["nearest"]["change"]
    near = BudgetRequest(model=TINYLLAMA, **{"targets": TARGETS["all"], "seq": 512, "rank": 18} | change)
    assert sum(memory(near).values()) == said["nearest"]["total_bytes"] <= GENESYS2.memory_bytes
    assert planned(near, GENESYS2, LanguageConfig())["fits"]


@pytest.mark.parametrize(
    "options, line",
    [
        (
            ("--rank", "18"),
            "rank=18: must be from 1 to 16, a machine's most; --engine float takes more (q_proj on the preset's "
            "machine); give --rank 16",
        ),
        (
            ("--seq", "23", "--rank", "17"),
            "rank=17: must be from 1 to 16, a machine's most; --engine float takes more (q_proj on the preset's "
            "machine); give --rank 16",
        ),
        (("--seq", "1"), "seq=1: must be from 2 to 2048 (the model's context); give --seq 2"),
    ],
)
def test_what_to_change_is_enough(run, options, line, monkeypatch):
    """A plan with the value that a refusal names fits; one layer's job is soon laid out."""
    monkeypatch.setitem(BUILT_IN, "tinyllama-1.1b", dataclasses.replace(TINYLLAMA, layers=1))
    code, _, err = run("plan", "tinyllama-1.1b", *options)
    assert (code, err) == (2, f"gradloom: {line}\n")
    changed = dict(zip(options[::2], options[1::2])) | dict([line.split("give ")[1].split()])
    code, out, err = run("plan", "tinyllama-1.1b", *(word for pair in changed.items() for word in pair))
    assert (
        code == 0
        and err.startswith("tinyllama-1.1b: preset edge-qlora-genesys2 ")
        and "fits edge-qlora-genesys2: " in " ".join(out.split())
    )


@pytest.mark.parametrize(
    "change, give", [({"depth": 512}, [{"seq": 56}]), ({"columns": 4, "rank": 16}, []), ({"rank": 16}, [{"rank": 8}])]
)
def test_inputs_pass_through_with_room_and_an_h_that_is_soon_complete(change, give):
    """Nine tiles of inputs need room, and an adapter that passes through too one panel of outputs."""
    config = dataclasses.replace(LanguageConfig(), lane_depth=2048, **change)
    found = machine_misfits(config, TINYLLAMA, seq=64, rank=config.rank, targets=("down_proj",))
    assert [each.give for each in found] == give


def test_rows_and_lanes_of_the_machine_are_bounds():
    wide = dataclasses.replace(TINYLLAMA, hidden=4096, vocab=300_000)
    found = machine_misfits(LanguageConfig(), wide, seq=8, rank=8, targets=("up_proj",))
    assert list(map(str, found)) == [
        "hidden=4096: the machine normalises rows of at most 2048; use another model",
        "vocab=300000: the machine's softmax takes at most 262144; use another model",
        "outputs=5632: with inputs=4096 there are 1408 second-level scales, the machine holds 1024 (gate_proj on the "
        "preset's machine); use another model",
        "rank=8: adapters of 152 tiles need 1216 words of adapter memory, there are 1024 (up_proj on the preset's "
        "machine); give --rank 6",
    ]


def test_a_board_without_a_preset_is_asked_for_memory_alone(run):
    code, out, _ = run("plan", "tinyllama-1.1b", "--board", "zcu104", "--seq", "64")
    assert code == 0 and "fits memory; no preset has a machine for it on zcu104" in " ".join(out.split())
    code, out, err = run("plan", "smollm2-135m", "--board", "ulx3s")
    assert code == 2 and "does not fit; memory: 180,110,848 of 131,072 bytes" in " ".join(out.split())
    assert err == "gradloom: memory=180110848: ulx3s has 131072 bytes; use another model\n"


@pytest.mark.parametrize("options", [("--bits", "2"), ("--head", "nf")])
def test_what_no_preset_runs_is_said_to_be_counted_only(run, options):
    code, out, _ = run("plan", "smollm2-135m", *options)
    assert code == 0
    assert "fits memory; edge-qlora-genesys2 runs 4-bit codes and a float16 head only" in " ".join(out.split())


def test_a_model_that_is_too_large_has_nothing_near():
    large = LanguageModel(
        name="large",
        hidden=8192,
        inter=28672,
        layers=80,
        heads=64,
        kv_heads=8,
        head_dim=128,
        vocab=128256,
        context=8192,
        rope_theta=5e5,
        norm_eps=1e-5,
        tied=False,
    )
    said = planned(BudgetRequest(model=large), GENESYS2, None)
    assert not said["fits"] and said["nearest"] is None
    assert [(each["field"], each["give"]) for each in said["misfits"]] == [("memory", {})]


def test_figures_of_a_plan():
    said = plan(BudgetRequest(model=TINYLLAMA), GENESYS2)
    assert (said["frozen_bytes"], said["learning_bytes"], said["total_bytes"]) == (
        499_818_088,
        145_687_616,
        908_022_656,
    )
    assert plan(BudgetRequest(model=TINYLLAMA, bits=2), GENESYS2)["frozen_bytes"] == pytest.approx(257.6e6, abs=5e4)
    assert plan(BudgetRequest(model=TINYLLAMA, head="nf"), GENESYS2)["token"]["seconds"] == pytest.approx(
        0.0844, abs=5e-5
    )


def test_what_fills_whole_tiles_is_counted():
    odd = LanguageModel(
        name="odd",
        hidden=100,
        inter=200,
        layers=1,
        heads=2,
        kv_heads=2,
        head_dim=50,
        vocab=10,
        context=64,
        rope_theta=1e4,
        norm_eps=1e-5,
        tied=True,
    )
    request = BudgetRequest(model=odd, rank=3)
    whole = dataclasses.replace(odd, hidden=128, inter=256, head_dim=64)
    said, other = plan(request, GENESYS2), plan(dataclasses.replace(request, model=whole, rank=4), GENESYS2)
    fill = said.pop("fill")
    assert fill["shapes"] == {"hidden": [100, 128], "inter": [200, 256], "head_dim": [50, 64], "rank": [3, 4]}
    own = 4 * 100 * 100 + 3 * 100 * 200
    assert fill["share"] == pytest.approx(1 - own / (4 * 128 * 128 + 3 * 128 * 256), abs=0.02)
    # What is said of the model and its adapter is of the files, all else of the machine.
    files = {"rank", "parameters", "linear_parameters", "adapter_parameters"}
    assert {name for name, value in said.items() if other[name] != value} == files
    assert (said["linear_parameters"], said["adapter_parameters"]) == (own, 3 * 2 * (100 + 100))
    assert "fill" not in other
    half = planned(request, GENESYS2, LanguageConfig(), method="instantft")
    assert half["fill"]["shapes"].keys() == {"hidden", "inter", "head_dim"} and 0 < half["fill"]["share"] < 1
    assert half["fits"] and half["adapter_parameters"] == 2 * 3 * 100


@pytest.mark.parametrize("board", [GENESYS2, KV260], ids=lambda board: board.name)
def test_a_plan_is_plain_json(board):
    said = plan(BudgetRequest(model=SMOLLM2, targets=TARGETS["all"]), board)
    assert json.loads(json.dumps(said)) == said


def test_targets_by_name():
    assert parse_targets("q,v") == ("q_proj", "v_proj") == parse_targets("v_proj,q")
    assert len(parse_targets("all")) == 7


def test_help_says_every_default(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    said = run("plan", "smollm2-135m", "--help")[1]
    assert "[default: (q,v, or all of a method)]" in said and "[default: (the machine's)]" in said


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("llama-9",), "model=llama-9: is no file"),
        (("smollm2-135m", "--board", "zx81"), "zx81"),
        (("smollm2-135m", "--rank", "0"), "rank=0: must be from 1 to 64"),
        (
            ("smollm2-135m", "--seq", "8193"),
            "seq=8193: must be from 2 to 4096 (tokens of the preset's machine); give --seq 4096",
        ),
        (("smollm2-135m", "--bits", "8"), "bits=8: must be one of 4, 3, 2"),
        (("smollm2-135m", "--optimizer", "adagrad"), "optimizer=adagrad: must be one of adamw, lion, sgd"),
        (("smollm2-135m", "--head", "int8"), "head=int8"),
        (("smollm2-135m", "--targets", "q,w"), "targets=q,w: must be all, or some of q, k"),
        (("smollm2-135m", "--axi-bits", "100"), "axi_bits=100"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(run, arguments, message):
    code, out, err = run("plan", *arguments)
    assert code == 2 and message in err and not out
