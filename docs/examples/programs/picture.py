"""Draws the picture of README.

``python docs/examples/programs/picture.py RUN/metrics.json -o docs/images/instantft-kv260.svg``

Left the loss of every step, right the forecast cycles by phase. ``gradloom finetune instantft-kv260 -o RUN`` makes the
file.
"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402


def main() -> None:
    """Draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("metrics", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    asked = parser.parse_args()
    metrics = json.loads(asked.metrics.read_text(encoding="utf-8"))
    plt.rcParams.update(
        {"svg.hashsalt": "gradloom", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    )
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.8), width_ratios=(3, 2))
    left.plot(metrics["loss"], color="#bbb", linewidth=0.7, label="a step")
    length = 26
    smooth = [sum(metrics["loss"][at - length : at]) / length for at in range(length, len(metrics["loss"]) + 1)]
    left.plot(range(length, len(metrics["loss"]) + 1), smooth, color="#3f51b5", label=f"mean of {length} steps")
    left.set(
        xlabel="step",
        ylabel="loss, nats an image",
        ylim=(0, None),
        title=f"accuracy {metrics['accuracy_before']:.1%} \N{RIGHTWARDS ARROW} {metrics['accuracy_after']:.1%}",
    )
    left.legend(frameon=False)
    phases = {name: value for name, value in metrics["forecast"].items() if name != "total"}
    names = sorted(phases, key=lambda name: phases[name])
    right.barh(names, [phases[name] / 1e6 for name in names], color="#3f51b5")
    right.set(xlabel="million cycles counted under a phase", title=f"{metrics['forecast']['total']:,} cycles in all")
    figure.tight_layout()
    options = {"metadata": {"Date": None}} if asked.output.suffix == ".svg" else {"dpi": 120}
    figure.savefig(asked.output, **options)


if __name__ == "__main__":
    main()
