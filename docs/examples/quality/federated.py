"""Rounds of federated learning over simulated clients.

``python docs/examples/quality/federated.py --data A.jsonl B.jsonl C.jsonl --held-out H.jsonl [--model M] [--rounds N]``

Each round every client fine-tunes the adapter of the round before on its own data, in floating point, and the average
of their changes is the next one. A stays as it starts (LoRA-FA), so that all clients share it and the average is exact.
It is weighted by the samples of each, and a change above ``--clip`` is cut down. Data stay with their client. Clients
run side by side where Dask is installed, else one after the other.
"""

import argparse
import functools
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gradloom


def rounds(
    model: str, data: Sequence[Path], held_out: Path, folder: Path, *, count: int, clip: float, **options: Any
) -> list[dict[str, Any]]:
    """The average after each round, and its score."""
    found, start = [], None
    for number in range(count):
        begun = functools.partial(_client, model, folder, number, start, options)
        clients = _side_by_side(begun, list(data))
        average = folder / f"round{number}" / "average"
        found.append(
            gradloom.package.average(
                clients, average, weights="samples", clip=clip, start=start, held_out=held_out, model=model
            )
        )
        start = average
    return found


def _client(model: str, folder: Path, number: int, start: Path | None, options: dict[str, Any], data: Path) -> Path:
    """A client's fine-tune; its folder."""
    own = folder / f"round{number}" / data.stem
    gradloom.finetune(model, data=data, adapter=start, output=own, engine="float", lora_fa=True, **options)
    return own


def _side_by_side(run: Callable[[Path], Path], data: list[Path]) -> list[Path]:
    if importlib.util.find_spec("distributed") is None:
        return [run(each) for each in data]
    from distributed import Client

    with Client(n_workers=2, threads_per_worker=1) as cluster:
        return list(cluster.gather(cluster.map(run, data)))


def main() -> None:
    """Prints a row a round."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="A file a client.")
    parser.add_argument("--held-out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--epochs", type=float, default=1)
    parser.add_argument("--seq", type=int, default=64)
    parser.add_argument("--output", type=Path, default=Path("federated"))
    asked = parser.parse_args()
    made = rounds(
        asked.model,
        asked.data,
        asked.held_out,
        asked.output,
        count=asked.rounds,
        clip=asked.clip,
        epochs=asked.epochs,
        seq=asked.seq,
    )
    for number, each in enumerate(made):
        cut = sum(share < 1 for share in each["kept"].values())
        print(f"round {number}: held-out loss {each['held_out']['loss']:.4f}, {cut} of {each['clients']} changes cut")


if __name__ == "__main__":
    main()
