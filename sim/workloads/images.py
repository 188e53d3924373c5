"""Fine-tunes and predictions as a user asks for them: in simulated RTL, in its reference, or in float."""
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.firmware.host import Accelerator, Counters
from gradloom.rtl.config import PARAMETER
from gradloom.rtl.models.datasets import Dataset, default_split, digits_split, load_images, load_npz, rotated
from gradloom.rtl.models.network import Network
from gradloom.rtl.models.onnx_import import load_onnx, load_pretrained
from gradloom.rtl.models.peft import load_adapters, save_adapters
from gradloom.rtl.output import check_file, check_folder, grouped, staged_file
from gradloom.rtl.plan.images.digits import workload_on
from gradloom.rtl.plan.images.lowering import Lowered, lower
from gradloom.rtl.plan.images.program import BEAT, Plan, Settings, plan_finetune
from gradloom.rtl.plan.images.schedule import batches, initial_adapters
from gradloom.rtl.plan.program.assembler import Instruction
from gradloom.rtl.presets import Preset
from gradloom.rtl.workloads import DIGITS, ImageWorkload

from ..reference.system import Cache, FineTune, fill_cache, fine_tune, logits, records
from ..run.counted import MismatchError, counted, differing
from ..run.designs import of_design, verilog_of
from ..run.device import MEMORY_BYTES, SimulatedDevice, build_device
from ..time.forecast import forecast
from .divergence import verdict
from .metrics import units

__all__ = ["MismatchError", "Result", "finetune", "predict", "run_plan", "run_rtl"]

Progress = Callable[[int, int, str], None]
Adapters = Sequence[tuple[np.ndarray, np.ndarray]]


@dataclass(eq=False)
class Result:
    """What the RTL left in memory, and its counters."""

    records: np.ndarray
    losses: list[int]
    counts: list[int]
    correct: list[int]
    a: list[np.ndarray]
    b: list[np.ndarray]
    counters: Counters
    instructions: Sequence[Instruction] = field(repr=False)
    trace: np.ndarray | None

    @property
    def metrics(self) -> dict[str, dict[str, int]]:
        """The counters as ``metrics.json`` has them."""
        return self.counters.metrics()


def _silent(done: int, total: int, text: str) -> None:
    pass


def _is_digits(workload: ImageWorkload) -> bool:
    return workload.network == DIGITS.network


def _workload(preset: Preset, wide: bool) -> ImageWorkload:
    """The preset's, as its design holds it."""
    return workload_on(preset.config, wide=wide) if _is_digits(preset.workload) else preset.workload


def _load(model: Path | None, data: Path | None, angle: float | None, limit: int | None,
          seed: int, workload: ImageWorkload) -> tuple[Network, Dataset]:
    network = _network(model, workload)
    if data is None:
        dataset = _shipped(workload, seed, angle)
    else:
        dataset = load_npz(data, classes=network.classes)
        if angle:
            dataset = dataset.rotated(angle)
    _check_shape("x_train", dataset.x_train, network)
    if limit is not None:
        if limit > len(dataset.x_train):
            raise ValueError(f"limit={limit}: there are {len(dataset.x_train)} training images")
        dataset = dataset.limited(train=limit)
    return network, dataset


def _network(model: Path | None, workload: ImageWorkload) -> Network:
    return load_pretrained(workload.network) if model is None else load_onnx(model)


def _shipped(workload: ImageWorkload, seed: int, angle: float | None) -> Dataset:
    degrees = workload.degrees if angle is None else angle
    return digits_split(workload.samples, workload.judged, degrees=degrees) if _is_digits(workload) else \
        default_split(seed, degrees=degrees)


def _check_shape(name: str, images: np.ndarray, network: Network) -> None:
    if images.shape[1:] != network.input_shape:
        raise ValueError(f"{name} has images of {images.shape[1:]}: {network.name} takes {network.input_shape}")


def run_rtl(plan: Plan, files: Sequence[Path], *, progress: Progress = _silent, trace: bool = False,
            timing: dict[str, int] | None = None, expected: int = 0, timeout: float = 36000.0) -> Result:
    """Runs a plan on simulated Verilog by the host's own driver.

    ``timing`` sets inputs of the bench (:meth:`SimulatedDevice.set`). ``expected``: cycles, for the progress.
    """
    if plan.size > MEMORY_BYTES:
        raise ValueError(f"samples={plan.settings.samples}: the fine-tune needs {plan.size} bytes of memory, "
                         f"the simulation has {MEMORY_BYTES}")
    program = build_device(files, tell=lambda text: progress(0, 0, text))
    device = SimulatedDevice(program, progress=lambda cycles: progress(cycles, max(expected, cycles), "cycles"))
    with device:
        for name, value in (timing or {}).items():
            device.set(name, value)
        return run_plan(plan, device, trace=trace, timeout=timeout)


def run_plan(plan: Plan, device: SimulatedDevice, *, trace: bool = False, timeout: float = 36000.0) -> Result:
    """Runs a plan on a simulation that is there, whose memory is large enough."""
    lowered = plan.lowered
    host = Accelerator(device)
    for offset, content in plan.segments:
        host.store(offset, content)
    if trace:
        device.set("trace", 1)
    counters = host.run(plan.program_offset, plan.commands, timeout=timeout)
    events = device.take_trace() if trace else None
    kept = host.fetch_array(plan.records, (plan.slots, 16 * lowered.record_beats), np.uint8) if plan.slots else \
        np.zeros((0, 16 * lowered.record_beats), np.uint8)
    steps = sum(step.last for step in plan.steps)
    beats = host.fetch_array(plan.losses, (steps, 16), np.uint8)
    words = host.fetch_array(plan.lanes, (lowered.lane_words, 16), np.int16).astype(np.int64)
    head = host.fetch_array(plan.b, (lowered.k, 16), np.int16).astype(np.int64)
    a, b = [], []
    wide = lowered.parts * lowered.config.rank
    for index, tap in enumerate(lowered.taps):
        addresses = -(-tap.elements // lowered.config.panels)
        part = words[tap.lanes_at[0]:tap.lanes_at[0] + lowered.parts * addresses, :lowered.config.columns]
        a.append(lowered.adapter_of(index, part.reshape(lowered.parts, addresses, -1)))
        b.append(head[index * wide:index * wide + lowered.rank, :lowered.classes].T.copy())
    whole = np.ascontiguousarray(beats)
    return Result(
        records=kept, a=a, b=b, counters=counters, instructions=plan.assembler.instructions, trace=events,
        losses=[int(v) for v in whole[:, :8].copy().view("<u8").ravel()],
        counts=[int(v) for v in whole[:, 8:12].copy().view("<u4").ravel()],
        correct=[int(v) for v in whole[:, 12:].copy().view("<u4").ravel()])


def compare(result: Result, reference: FineTune, cache: Cache) -> dict[str, int]:
    """Counts what was found equal; raises :class:`MismatchError` at the first thing that differs.

    ``result`` is of a run that began with an empty cache; of its counters, all are compared but cycles.
    """
    lowered = reference.lowered
    expected = records(lowered, cache)[:len(result.records)]
    if not np.array_equal(result.records, expected):
        sample, byte = np.argwhere(result.records != expected)[0]
        raise MismatchError(f"RTL and reference differ: cached byte {byte} of sample {sample} is "
                            f"{result.records[sample, byte]}, not {expected[sample, byte]}")
    for what, found, wanted in (("loss", result.losses, reference.losses),
                                ("correct", result.correct, reference.correct)):
        for step, (one, other) in enumerate(zip(found, wanted)):
            if one != other:
                raise MismatchError(f"RTL and reference differ: {what} of step {step} is {one}, not {other}")
    words = 0
    for tap, a, b, (ref_a, ref_b) in zip(lowered.taps, result.a, result.b, reference.adapters()):
        for name, ours, theirs in (("A", a, ref_a), ("B", b, ref_b)):
            words += ours.size
            if not np.array_equal(ours, theirs):
                at = tuple(int(n) for n in np.argwhere(ours != theirs)[0])
                raise MismatchError(f"RTL and reference differ: {name}{list(at)} of {tap.name} is {ours[at]}, "
                                    f"not {theirs[at]}")
    told = counted(result.instructions, beat_bytes=BEAT) | asdict(reference.health)
    wrong = differing(result.counters, told)
    if wrong:
        raise MismatchError(f"RTL and reference differ: the counter {wrong}")
    return {"losses": len(result.losses), "adapter_words": words, "cached_bytes": int(result.records.size),
            "counters": len(told)}


def _share(lowered: Lowered, cache: Cache, labels: np.ndarray, adapters: Adapters | None) -> float:
    if adapters is None:
        z = cache.logits
    else:
        z = logits(lowered, cache, [a[:, tap.order] for tap, (a, _) in zip(lowered.taps, adapters)],
                   [b for _, b in adapters])
    return float((z.argmax(axis=1) == labels).mean())


def finetune(preset: Preset, *, output: Path, progress: Progress | None = None, model: Path | None = None,
             data: Path | None = None, angle: float | None = None, rank: int | None = None, lr: float | None = None,
             batch: int | None = None, epochs: int | None = None, limit: int | None = None, seed: int = 0,
             cache: str = "nf4", engine: str = "rtl", rtl: Path | None = None,
             momentum: float | None = None) -> dict[str, Any]:
    """Fine-tunes and writes ``metrics.json``, the adapter and ``loss.png`` to ``output``; returns the metrics.

    ``diverged`` in them has the reasons if the fine-tune diverged, see :mod:`~gradloom.sim.workloads.divergence`.

    What is None is the preset's (:class:`~gradloom.rtl.workloads.ImageWorkload`). ``rtl``: the design of an earlier
    ``generate``, whose configuration every engine takes, and whose Verilog is simulated.
    ``cache="none"`` keeps no activations: they are computed, encoded and decoded anew each time, so that the adapters
    learn the same words. ``int8`` keeps codes of 8 bits, in the same design as ``nf4``.
    """
    tell = progress or _silent
    check_folder(output)
    if cache not in ("nf4", "int8", "none"):
        raise ValueError(f"cache={cache}: must be nf4, int8 or none")
    if engine not in ("rtl", "reference", "float"):
        raise ValueError(f"engine={engine}: must be rtl, reference or float")
    preset = of_design(preset, rtl)
    workload = preset.workload if model or data else _workload(preset, cache == "int8" and engine != "float")
    network, dataset = _load(Path(model) if model else None, Path(data) if data else None, angle, limit, seed,
                             workload)
    rank = workload.rank if rank is None else rank
    settings = Settings(
        samples=len(dataset.x_train), epochs=workload.epochs if epochs is None else epochs,
        batch=workload.batch if batch is None else batch, rate=workload.lr if lr is None else lr,
        momentum=workload.momentum if momentum is None else momentum, seed=seed,
        # Nobody knows in which order somebody's own data lie.
        shuffled=workload.shuffled or data is not None, slots=0 if cache == "none" else 1 << 30)
    if engine == "float":
        metrics, adapters = _float(network, dataset, rank, settings, cache, tell)
    else:
        metrics, adapters = _integer(preset, network, dataset, rank, settings, cache, engine, rtl, tell)
    metrics = {"preset": preset.name, "engine": engine, "cache_format": cache, "model": network.name,
               "samples": settings.samples, "rank": rank, "lr": settings.rate, "momentum": settings.momentum,
               "batch": settings.batch, "epochs": settings.epochs, "seed": seed,
               "clock_mhz": preset.config.clock_mhz} | metrics
    metrics["units"] = units(metrics)
    # The machine encodes what it does not keep, too.
    codes = "nf4" if cache == "none" and engine != "float" else cache
    _write(Path(output), network, adapters, codes, metrics)
    return metrics


def _float(network: Network, dataset: Dataset, rank: int, settings: Settings, cache: str,
           tell: Progress) -> tuple[dict[str, Any], Adapters]:
    from .mathematics import finetune_float
    tell(0, 0, "fine-tuning in float")
    result = finetune_float(network, dataset, rank=rank, lr=settings.rate, batch=settings.batch,
                            epochs=settings.epochs, seed=settings.seed, shuffled=settings.shuffled, cache=cache,
                            momentum=settings.momentum)
    return {"loss": result.loss, "accuracy_before": result.accuracy_before,
            "accuracy_after": result.accuracy_after, "cycles": None, "cache": None, "health": None,
            **_verdict(settings, result.loss)}, result.adapters


def _integer(preset: Preset, network: Network, dataset: Dataset, rank: int, settings: Settings, cache: str,
             engine: str, rtl: Path | None, tell: Progress) -> tuple[dict[str, Any], Adapters]:
    config = preset.config
    lowered = lower(network, config, rank, wide=cache == "int8")
    start = initial_adapters(network.taps, network.classes, rank, settings.seed)
    a, b = [PARAMETER.encode(m) for m, _ in start], [PARAMETER.encode(m) for _, m in start]
    images = network.pixel_map.words(dataset.x_train, config.activation)
    # Refused before the long part, too.
    judged = network.pixel_map.words(dataset.x_test, config.activation)
    plan = plan_finetune(lowered, settings, images, dataset.y_train, a, b)

    metrics: dict[str, Any] = {}
    result = None
    tell(0, 0, "forecast")
    expected = forecast(plan)
    if engine == "rtl":
        _, files = verilog_of(preset, rtl, lambda text: tell(0, 0, text))
        result = run_rtl(plan, files, progress=tell, expected=expected.total)
    tell(0, 0, "reference")
    kept = fill_cache(lowered, images)
    reference = fine_tune(lowered, settings, kept, dataset.y_train, a, b,
                          progress=lambda done, total: tell(done, total, "reference steps"))
    if result is not None:
        metrics = result.metrics | {"equal_to_reference": compare(result, reference, kept)}
    else:
        metrics = {"cycles": None, "cache": None, "health": asdict(reference.health)}
    metrics["forecast"] = {"total": expected.total} | dict(expected.phases)
    tell(0, 0, "judging on other images")
    test = fill_cache(lowered, judged)
    words = reference.adapters()
    adapters = [(PARAMETER.decode(m), PARAMETER.decode(n)) for m, n in words]
    return {"loss": reference.mean_losses,
            "accuracy_before": _share(lowered, test, dataset.y_test, None),
            "accuracy_after": _share(lowered, test, dataset.y_test, words),
            **_verdict(settings, reference.mean_losses, reference)} | metrics, adapters


def _verdict(settings: Settings, losses: Sequence[float], reference: FineTune | None = None) -> dict[str, Any]:
    counts = [len(each) for each in batches(range(settings.samples), settings.batch)]
    return verdict(losses, len(counts), counts=counts, steps=settings.epochs * len(counts),
                   clipped=reference.clipped if reference else None, words=reference.words if reference else None)


def _write(output: Path, network: Network, adapters: Adapters, codes: str, metrics: dict[str, Any]) -> None:
    from .plots import plot_loss
    with grouped(output, last="metrics.json") as stage:
        save_adapters(stage, network, adapters, codes=codes)
        plot_loss(stage / "loss.png", metrics)
        (stage / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")


def predict(preset: Preset, *, data: Path | None = None, model: Path | None = None, adapter: Path | None = None,
            angle: float | None = None, limit: int | None = None, engine: str = "reference", rtl: Path | None = None,
            output: Path | None = None) -> dict[str, Any]:
    """Labels images by the base network and an adapter, in the integers of the hardware or in float. ``rtl``: the
    hardware is the design of an earlier ``generate``.

    ``data``: a file with ``x_test`` or ``x``, by default the shipped images to judge by. Returns ``labels``, and where
    there are labels to compare with, ``accuracy``. ``output`` gets ``labels`` and ``logits``.

    Activations go through the codes that the adapter learnt from. The hardware has no way around them: an adapter of
    a float fine-tune without codes meets NF4 there.
    """
    if output is not None:
        check_file(output, suffix=".npz")
    preset = of_design(preset, rtl)
    network = _network(Path(model) if model else None, preset.workload)
    given: np.ndarray | None
    if data is None:
        shipped = _shipped(preset.workload if model else _workload(preset, False), 0, angle)
        images, given = shipped.x_test, shipped.y_test
    else:
        images, given = load_images(data, classes=network.classes)
        images = rotated(images, angle) if angle else images
    _check_shape("x_test" if data is None else f"data={data}:", images, network)
    if limit is not None:
        if not 1 <= limit <= len(images):
            raise ValueError(f"limit={limit}: must be from 1 to {len(images)}, the images that there are")
        images = images[:limit]
    adapters, codes = load_adapters(Path(adapter), network) if adapter is not None else (None, "nf4")
    if engine == "float":
        from .mathematics import Cache as FloatCache
        from .mathematics import adapter_logits
        kept = FloatCache.of(network, images, cache=codes)
        z = kept.logits if adapters is None else adapter_logits(adapters, kept.taps, kept.logits)
    elif engine == "reference":
        lowered = lower(network, preset.config, len(adapters[0][0]) if adapters else 1, wide=codes == "int8")
        fmt = preset.config.activation
        held = fill_cache(lowered, network.pixel_map.words(images, fmt))
        words = None if adapters is None else [(PARAMETER.encode(m), PARAMETER.encode(n)) for m, n in adapters]
        z = fmt.decode(held.logits) if words is None else logits(
            lowered, held, [m[:, tap.order] for tap, (m, _) in zip(lowered.taps, words)], [n for _, n in words]) / 65536
    else:
        raise ValueError(f"engine={engine}: labels come from reference or float")
    labels = z.argmax(axis=1)
    if output is not None:
        with staged_file(output) as file:
            np.savez(file, labels=labels, logits=z)
    told: dict[str, Any] = {"labels": labels.tolist()}
    if given is not None:
        told["accuracy"] = float((labels == given[:len(labels)]).mean())
    return told
