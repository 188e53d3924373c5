"""Configs of adapters: every key that PEFT has is listed, and what is not understood whole is refused."""

import dataclasses
import json
from pathlib import Path

import pytest

from gradloom.models.adapters.config import KINDS, check_config, rank_of, scale_of, targeted

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
