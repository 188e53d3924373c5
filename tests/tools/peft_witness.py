"""Holds what the fuzzing says of adapters against PEFT itself.

Run ``python tests/tools/peft_witness.py COUNT`` where torch, transformers and PEFT are installed (2.13, 5.24 and 0.21.2
when this was written). Each adapter without a fault is loaded by PEFT and its changes of the weights are compared.
``vectors COUNT`` in place of COUNT does so for norms and (IA)³, ``unets COUNT`` with diffusers (0.42.1)
for the LoRA of a UNet.
``python tests/tools/peft_witness.py keys > tests/golden/peft_keys.json`` writes the keys of PEFT's configs, with their
defaults.
"""

import dataclasses
import json
import re
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
from peft import IA3Config, LNTuningConfig, LoraConfig, PeftModel
from peft.tuners.ia3 import IA3Layer
from peft.tuners.ln_tuning.layer import LNTuningLayer
from peft.tuners.lora import LoraLayer
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))
from adapters import SHAPE, drawn, drawn_unet, drawn_vectors, meaning, write  # noqa: E402

CONFIG = LlamaConfig(
    hidden_size=SHAPE["hidden"],
    intermediate_size=SHAPE["inter"],
    num_hidden_layers=SHAPE["layers"],
    num_attention_heads=SHAPE["heads"],
    num_key_value_heads=SHAPE["kv_heads"],
    head_dim=SHAPE["head_dim"],
    vocab_size=SHAPE["vocab"],
)


def pefts(made, folder):
    """Changes of the weights by module, as PEFT loads the adapter."""
    # PEFT reads only its own names of a file, those of its adapter "default" or of none.
    tensors = {re.sub(r"\.mine\.weight$", ".weight", name): each for name, each in made.tensors.items()}
    made.tensors = {"base_model.model." + name.removeprefix("base_model.model."): t for name, t in tensors.items()}
    # The start is overwritten, and some starts need an even rank, or the model's activations.
    made.config = {**made.config, "task_type": None, "init_lora_weights": True}
    base = (LlamaForCausalLM if made.start else LlamaModel)(CONFIG).to(torch.float64)
    model = PeftModel.from_pretrained(base, write(folder, made), autocast_adapter_dtype=False).to(torch.float64)
    changes = {
        name.removeprefix("base_model.model."): each.get_delta_weight("default").detach().numpy()
        for name, each in model.named_modules()
        if isinstance(each, LoraLayer)
    }
    held = {name.replace(".default.", "."): each for name, each in model.state_dict().items() if "lora_" in name}
    for name, each in made.tensors.items():
        assert np.array_equal(held[name.replace(".default.", ".")].numpy(), each.astype(np.float64)), name
    return changes


def keys():
    """Keys of the configs of the kinds that are read, with their defaults."""
    kinds = {"LORA": LoraConfig, "LN_TUNING": LNTuningConfig, "IA3": IA3Config}
    return {
        name: {
            **kind().to_dict(),
            **{each.name: None for each in dataclasses.fields(kind) if each.name not in kind().to_dict()},
            "peft_type": name,
        }
        for name, kind in kinds.items()
    }


def vectors(count):
    """Compares the first norms and factors of (IA)³ without a fault."""
    seed = compared = 0
    while compared < count:
        made, expected = drawn_vectors(seed)
        seed += 1
        if made.fault:
            continue
        made.tensors = {"base_model.model." + n.removeprefix("base_model.model."): t for n, t in made.tensors.items()}
        made.config = {**made.config, "task_type": None}
        with tempfile.TemporaryDirectory() as folder:
            base = (LlamaForCausalLM if made.start else LlamaModel)(CONFIG)
            model = PeftModel.from_pretrained(base, write(Path(folder), made))
        found = {}
        for name, each in model.named_modules():
            name = name.removeprefix("base_model.model.")
            if isinstance(each, IA3Layer):
                assert each.is_feedforward == name.endswith("down_proj")
                found[name] = each.ia3_l["default"].detach().numpy().reshape(-1)
            elif isinstance(each, LNTuningLayer):
                found[name] = each.ln_tuning_layers["default"].weight.detach().numpy()
        assert found.keys() == expected.keys(), (seed - 1, made.config)
        for name, each in expected.items():
            np.testing.assert_array_equal(found[name], each)
        compared += 1
    print(f"{compared} norms and (IA)³ of {seed} drawn are to PEFT what the fuzzing says")


def unets(count):
    """Compares the first LoRAs of a UNet without a fault, as diffusers loads them."""
    from diffusers import UNet2DConditionModel
    from diffusers.loaders import StableDiffusionLoraLoaderMixin

    def unet():
        return UNet2DConditionModel(
            sample_size=8,
            block_out_channels=(8, 16),
            layers_per_block=1,
            norm_num_groups=4,
            cross_attention_dim=12,
            attention_head_dim=4,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        )

    ends = (".attn2.to_q", ".attn2.to_k", ".attn2.to_v", ".attn2.to_out.0")
    linears = {name: each for name, each in unet().named_modules() if name.endswith(ends)}
    layers = {name: (each.in_features, each.out_features) for name, each in linears.items()}
    seed = compared = 0
    while compared < count:
        made, expected = drawn_unet(seed, layers)
        seed += 1
        if made.fault or any(name.startswith("base_model") for name in made.tensors):  # PEFT's own names
            continue
        model = unet()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "pytorch_lora_weights.safetensors"
            file.write_bytes(made.bytes())
            if next(iter(made.tensors)).startswith(("unet.", "lora_unet_")):
                held, alphas, told = StableDiffusionLoraLoaderMixin.lora_state_dict(
                    folder, weight_name=file.name, unet_config=model.config, return_lora_metadata=True
                )
                model.load_lora_adapter(held, prefix="unet", network_alphas=alphas, metadata=told)
            else:
                model.load_lora_adapter(folder, weight_name=file.name, prefix=None)
        found = {name: each for name, each in model.named_modules() if isinstance(each, LoraLayer)}
        assert found.keys() == expected.keys(), seed - 1
        for name, each in expected.items():
            change = found[name].get_delta_weight(next(iter(found[name].r))).detach().numpy()
            np.testing.assert_allclose(change, each, rtol=1e-4, atol=1e-5, err_msg=f"{seed - 1} {name} {made.config}")
        compared += 1
    print(f"{compared} LoRAs of a UNet of {seed} drawn mean to diffusers what the fuzzing says")


def main(count):
    """Compares the first adapters without a fault."""
    warnings.simplefilter("ignore")
    seed = compared = 0
    while compared < count:
        made = drawn(seed)
        seed += 1
        if made.fault:
            continue
        expected = meaning(made)
        with tempfile.TemporaryDirectory() as folder:
            found = pefts(made, Path(folder))
        assert found.keys() == expected.keys(), (seed - 1, made.config, found.keys() ^ expected.keys())
        for name, each in expected.items():
            np.testing.assert_allclose(found[name], each, rtol=1e-6, atol=1e-9, err_msg=f"{seed - 1} {name}")
        compared += 1
    print(f"{compared} adapters of {seed} drawn mean to PEFT what the fuzzing says")


if __name__ == "__main__":
    if sys.argv[1:2] == ["vectors"]:
        vectors(int(sys.argv[2]))
    elif sys.argv[1:2] == ["unets"]:
        unets(int(sys.argv[2]))
    elif sys.argv[1:] == ["keys"]:
        print(json.dumps(keys(), indent=1, sort_keys=True, default=list))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
