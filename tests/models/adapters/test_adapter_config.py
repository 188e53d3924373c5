"""Configs of adapters: every key that PEFT has is listed, and what is not understood whole is refused."""

import dataclasses
import json
from pathlib import Path

import pytest

from gradloom.models.adapters.config import DIRECT, KINDS, check_config, kind_of, rank_of, scale_of, targeted

#: Written by ``python tests/tools/peft_witness.py keys``, of PEFT 0.21.2.
KEYS = json.loads((Path(__file__).parents[2] / "golden" / "peft_keys.json").read_text())
LORA = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}


@pytest.mark.parametrize("kind", KEYS)
def test_each_of_pefts_keys_is_listed_and_its_default_is_taken(kind):
    assert not KEYS[kind].keys() - KINDS[kind].handled - KINDS[kind].harmless.keys()
    assert check_config(KEYS[kind]) is KINDS[kind]


@pytest.mark.parametrize("kind", KEYS)
def test_the_installed_peft_has_no_further_key(kind):
    peft = pytest.importorskip("peft")
    config = {"LORA": peft.LoraConfig, "LN_TUNING": peft.LNTuningConfig, "IA3": peft.IA3Config}[kind]
    assert not {each.name for each in dataclasses.fields(config)} - KEYS[kind].keys()


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_no_kind_knows_is_refused(kind):
    config = {"peft_type": kind, "r": 2, "lora_alpha": 2} if KINDS[kind].ranked else {"peft_type": kind}
    assert check_config(config | {"use_magic": False}) is KINDS[kind]
    with pytest.raises(ValueError, match="use_magic=true: this key is not known"):
        check_config(config | {"use_magic": True})


@pytest.mark.parametrize("start", ["pissa", "pissa_niter_16", "OLoRA", "corda", "lora_ga"])
def test_a_start_that_changed_the_base_says_how_to_convert_it(start):
    with pytest.raises(ValueError, match=f'init_lora_weights="{start}".*path_initial_model_for_weight_conversion'):
        check_config(LORA | {"init_lora_weights": start})
    with pytest.raises(ValueError, match='init_lora_weights="loftq".*merge the adapter into that base'):
        check_config(LORA | {"init_lora_weights": "loftq"})


def test_patterns_and_rslora_scale_as_peft_does():
    config = LORA | {
        "use_rslora": True,
        "rank_pattern": {"v_proj": 16, "^model.layers.1.*": 9},
        "alpha_pattern": {"k": 3},
    }
    check_config(config)
    assert (rank_of(config), scale_of(config)) == (4, 4.0)
    names = ("model.layers.0.self_attn.v_proj", "model.layers.1.mlp.v_proj", "model.layers.1.mlp.up", "a.k", "ak")
    assert [rank_of(config, name) for name in names] == [16, 16, 9, 4, 4]
    assert [scale_of(config, name) for name in names] == [2, 2, pytest.approx(8 / 3), 1.5, 4]


NAMES = [f"model.layers.{n}.{end}" for n in range(3) for end in ("self_attn.q_proj", "mlp.up_proj")]


@pytest.mark.parametrize(
    "asked, numbers",
    [
        ({"target_modules": ["q_proj"]}, [0, 2, 4]),
        ({"target_modules": ["attn.q_proj", NAMES[1]]}, [1]),
        ({"target_modules": r".*\.[02]\..*"}, [0, 1, 4, 5]),
        ({"target_modules": "All-Linear", "exclude_modules": ["up_proj", NAMES[0]]}, [2, 4]),
        ({"target_modules": ["q_proj", NAMES[1]], "layers_to_transform": 2}, [1, 4]),
        ({"target_modules": ["q_proj"], "layers_to_transform": [0, 2], "layers_pattern": "layers"}, [0, 4]),
        ({"target_modules": ["q_proj"], "layers_to_transform": [0, 2], "layers_pattern": ["h"]}, []),
        ({"target_modules": ["q_proj", "up_proj"], "exclude_modules": r".*\.1\..*"}, [0, 1, 4, 5]),
    ],
)
def test_modules_are_found_as_peft_finds_them(asked, numbers):
    check_config(LORA | asked)
    if numbers:
        assert targeted(LORA | asked, NAMES, NAMES) == [NAMES[n] for n in numbers]
    else:
        with pytest.raises(ValueError, match="names none"):
            targeted(LORA | asked, NAMES, NAMES)


NUMBER = "must be a number from 1e-09 to 1e+09"
RANK = "must be an integer of at least 1 and at most 65535"
START = "must be true, false or one of gaussian, eva, orthogonal, mica; others are not supported"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"peft_type": "LOHA"}, 'peft_type="LOHA": must be one of LORA, LN_TUNING, IA3, LORA_XS, GRADLOOM_INSTANTFT'),
        ({"peft_type": ["LORA"]}, 'peft_type=["LORA"]: must be one of LORA'),
        ({"r": 0}, f"r=0: {RANK}"),
        ({"r": 65536}, f"r=65536: {RANK}"),
        ({"r": True}, f"r=true: {RANK}"),
        ({"r": 2.0}, f"r=2.0: {RANK}"),
        ({"lora_alpha": 0}, f"lora_alpha=0: {NUMBER}"),
        ({"lora_alpha": 9e-10}, f"lora_alpha=9e-10: {NUMBER}"),
        ({"lora_alpha": 1.1e9}, f"lora_alpha=1100000000.0: {NUMBER}"),
        ({"lora_alpha": True}, f"lora_alpha=true: {NUMBER}"),
        ({"lora_alpha": "8"}, f'lora_alpha="8": {NUMBER}'),
        ({"lora_alpha": float("nan")}, "lora_alpha=NaN: must be a finite number; NaN and Infinity are no JSON"),
        ({"lora_dropout": float("inf")}, "lora_dropout=Infinity: must be a finite number; NaN"),
        ({"init_lora_weights": 1}, f"init_lora_weights=1: {START}"),
        ({"init_lora_weights": "other"}, f'init_lora_weights="other": {START}'),
        ({"use_rslora": 1}, "use_rslora=1: must be true or false"),
        ({"rank_pattern": [1]}, "rank_pattern=[1]: must be an object of numbers by patterns of names"),
        ({"alpha_pattern": "x"}, 'alpha_pattern="x": must be an object of numbers by patterns of names'),
        ({"rank_pattern": {"v": 0}}, f'rank_pattern: "v"=0: {RANK}'),
        ({"alpha_pattern": {"v": 0}}, f'alpha_pattern: "v"=0: {NUMBER}'),
        ({"rank_pattern": {"(": 2}}, 'rank_pattern="(.*\\\\.)?(()$": is no pattern (missing ), '),
        ({"layers_to_transform": [1, True]}, "layers_to_transform=[1, true]: must be numbers of layers"),
        ({"layers_to_transform": "1"}, 'layers_to_transform="1": must be numbers of layers'),
        ({"layers_to_transform": [0], "layers_pattern": 3}, "layers_pattern=3: must be names of lists of layers"),
        ({"layers_to_transform": [0], "layers_pattern": ["("]}, "layers_pattern="),
        ({"layers_pattern": "h"}, 'layers_pattern="h": needs layers_to_transform; remove it, or add that'),
        (
            {"target_modules": "q", "layers_to_transform": [0]},
            "layers_to_transform=[0]: must be null where target_modules is a pattern",
        ),
        ({"modules_to_save": ["lm_head"]}, 'modules_to_save=["lm_head"]: must be null'),
        ({"use_dora": True}, "use_dora=true: must be false"),
    ],
)
def test_what_is_not_understood_is_refused_by_its_key(change, says):
    with pytest.raises(ValueError) as refused:
        check_config(LORA | change)
    assert str(refused.value).startswith(says)


@pytest.mark.parametrize(
    "change",
    [
        {"r": 1, "lora_alpha": 1e-9},
        {"r": 65535, "lora_alpha": 1e9},
        {"init_lora_weights": "Gaussian"},
        {"init_lora_weights": False, "use_rslora": None, "rank_pattern": None},
        {"layers_to_transform": 3},
        {"layers_to_transform": [], "layers_pattern": None},
        {"layers_to_transform": [0], "layers_pattern": ["h", "layers"]},
        {"target_modules": "q", "layers_pattern": ""},
    ],
)
def test_bounds_are_taken(change):
    assert check_config(LORA | change) is KINDS["LORA"]


def test_a_config_must_be_of_the_kind_that_is_asked_for():
    direct = LORA | {"gradloom_topology": "direct-to-output", "gradloom_codes": "nf4", "bias": "none"}
    assert kind_of(direct) is DIRECT is check_config(direct) and kind_of(LORA) is KINDS["LORA"]
    with pytest.raises(ValueError, match=r"^rank_pattern=\{\"a\": 2\}: must be null"):
        check_config(direct | {"rank_pattern": {"a": 2}})
    assert DIRECT.product == ("lora_A.weight", "lora_B.weight") and KINDS["IA3"].product is None


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"target_modules": None}, "target_modules=null: must be names or a pattern"),
        ({"target_modules": [1]}, "target_modules=[1]: must be names or a pattern"),
        ({"target_modules": "("}, 'target_modules="(": is no pattern ('),
        (
            {"target_modules": ["qkv_proj"]},
            'target_modules=["qkv_proj"]: names none of the modules that can learn, which are q_proj, up_proj; name '
            "the model that it is for",
        ),
        ({"target_modules": ["q_proj"], "exclude_modules": ["q_proj"]}, 'target_modules=["q_proj"]: names none'),
        ({"target_modules": ["q_proj"], "exclude_modules": 3}, "exclude_modules=3: must be names or a pattern"),
        ({"target_modules": ["proj"]}, 'target_modules=["proj"]: names none'),
    ],
)
def test_modules_that_are_not_there_are_one_line(asked, says):
    with pytest.raises(ValueError) as refused:
        targeted(LORA | asked, NAMES, NAMES)
    assert str(refused.value).startswith(says)


def test_a_list_of_no_layers_names_all():
    assert targeted(LORA | {"layers_to_transform": []}, NAMES, NAMES) == NAMES[::2]
    assert targeted(LORA | {"layers_to_transform": 0}, NAMES, NAMES) == NAMES[:1]
