"""Memory and speed of reading conversations.

``python docs/examples/programs/read_records.py [--megabytes 100] [--model smollm2-135m]``

It writes conversations of many lengths to a file, reads them as ``gradloom finetune --data`` does, and prints tokens a
second of processor time and the largest resident memory that reading adds. Tokens lie on disk. It needs ``make llm``.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from gradloom.models.files.language.checkpoint import find_weights
from gradloom.models.files.language.tokenizer import open_tokenizer
from gradloom.models.texts.reader import read_records
from gradloom.models.texts.template import open_texts

WORDS = "the warp is strung once and stays while the weft is thrown across it again and again until cloth grows".split()


def write(path: Path, size: int) -> None:
    """Conversations of 20 to 400 words, together ``size`` bytes or a little more."""
    random = np.random.default_rng(5)
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < size:
            asked, said = (" ".join(random.choice(WORDS, random.integers(10, 200))) for _ in range(2))
            messages = [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]
            file.write(json.dumps({"messages": messages}) + "\n")


def memory(which: str) -> int:
    """Resident memory in bytes, now (``VmRSS``) or the largest since :func:`forget` (``VmHWM``)."""
    told = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(told.partition(f"{which}:")[2].split()[0])


def forget() -> None:
    """Linux begins again to look for the largest."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def main() -> None:
    """Prints what was read, memory and speed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--model", default="smollm2-135m")
    asked = parser.parse_args()
    weights = find_weights(asked.model)
    tokenizer, texts = open_tokenizer(weights), open_texts(weights)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chat.jsonl"
        write(path, asked.megabytes * 1_000_000)
        forget()
        before, begun = memory("VmRSS"), time.process_time()
        read = read_records(path, tokenizer, texts, 64)
        seconds = time.process_time() - begun
        print(
            f"{path.stat().st_size:,} bytes, {read.counts.examples:,} examples, {read.counts.tokens:,} tokens in "
            f"{len(read.windows):,} windows of 64: {read.counts.tokens / seconds:,.0f} tokens a second of "
            f"processor time, "
            f"{(memory('VmHWM') - before) / 1e6:.0f} MB more memory than before"
        )


if __name__ == "__main__":
    main()
