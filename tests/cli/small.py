"""A small language model, a tokenizer of one letter a token, and requests for them."""

import json

from gradloom.models.language import LanguageModel

PRESET = "edge-qlora-genesys2"
MODEL = LanguageModel(
    name="small",
    hidden=128,
    inter=128,
    layers=2,
    heads=2,
    kv_heads=1,
    head_dim=64,
    vocab=96,
    context=128,
    rope_theta=10000.0,
    norm_eps=1e-5,
    tied=True,
)
TEXT = "the warp is strung once and stays; the weft is thrown across it, a little at a time."


class Letters:
    """A token a character of ASCII, from the blank on; the last one ends a text."""

    size, control = 96, frozenset({95})

    def encode(self, text):
        return [ord(letter) - 32 for letter in text]

    def decode(self, tokens):
        return "".join(chr(token + 32) for token in tokens)


def tuned(run, *options, output="out"):
    code, out, err = run("finetune", "small", "--data", "text.txt", "-o", output, "--json", *options)
    assert (code, err) == (0, ""), err
    return json.loads(out)


TUNE = ("finetune", "small", "--data", "text.txt", "-o", "out")
SAY = ("infer", "small", "--prompt", "the")
