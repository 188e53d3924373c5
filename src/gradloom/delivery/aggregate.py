"""The average of adapters that several clients have trained on one base."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradloom.models.adapters.config import AdapterKind, check_config, scale_of
from gradloom.models.files.keys import is_empty

from .content import Content

__all__ = ["Average", "average"]


@dataclass(frozen=True)
class Average:
    """An adapter that changes the base as the clients do on average.

    ``errors``: of each linear the Frobenius norm of what a rank cannot hold, over that of the average. All are 0 where
    the average is exact. ``norms``: of each client's change, where they are clipped; ``kept``: the share of it that is
    in the average.
    """

    content: Content
    errors: Mapping[str, float]
    norms: Mapping[str, float]
    kept: Mapping[str, float]

    @property
    def exact(self) -> bool:
        """Whether nothing is left out."""
        return not any(self.errors.values())


def average(
    clients: Mapping[str, Content],
    *,
    weights: Sequence[float] = (),
    rank: int | None = None,
    clip: float | None = None,
    start: Content | None = None,
) -> Average:
    """The average of clients by their names.

    ``weights`` are equal unless given. ``clip``: bound of the Frobenius norm of a client's change, over all linears; a
    larger one is scaled down to it. The change is that from ``start``, with which all clients began, or else from the
    base. The average of products B A is taken, not of A and of B. It has the rank of all
    clients together, unless they share A or B; the largest ``rank`` singular values of each linear are kept, by default
    as many as a client has.

    :class:`ValueError` names the client that does not fit.
    """
    if len(clients) < 2:
        raise ValueError(f"clients: at least 2 are needed, not {len(clients)}")
    share = _shares(len(clients), weights)
    first_name, first = next(iter(clients.items()))
    kind = check_config(first.config)
    for name, each in clients.items():
        _check(kind, first_name, first, name, each)
    config, tensors, errors = dict(first.config), {}, {}
    own, (end_a, end_b) = config.get("r", 0), kind.product or (None, None)
    if rank is not None and (
        end_a is None or any(config.get(key) for key in ("use_rslora", "rank_pattern", "alpha_pattern"))
    ):
        raise ValueError(f"rank={rank}: must be left out, these adapters have no rank or another scale for each")
    most = own * (len(clients) + (start is not None))
    if rank is not None and not 1 <= rank <= most:
        raise ValueError(f"rank={rank}: must be from 1 to {most}, the rank of all clients together")
    norms: dict[str, float] = {}
    kept = dict.fromkeys(clients, 1.0)
    if clip is not None:
        if not 0 < clip < float("inf"):
            raise ValueError(f"clip={clip:g}: must be a number above 0")
        if start is not None:
            _check(kind, first_name, first, "start", start)
        norms = {name: _change(kind, each, start) for name, each in clients.items()}
        kept = {name: min(1.0, clip / norm) if norm else 1.0 for name, norm in norms.items()}
        share = [each * kept[name] for each, name in zip(share, clients)]
        if start is not None:
            # What is cut of a change leaves the start.
            share.append(1.0 - sum(share))
            clients = {**clients, "": start}
    elif start is not None:
        raise ValueError("start: must be left out without clip, whose changes begin there")
    for name in first.tensors:
        parts = [each.tensors[name].astype(np.float64) for each in clients.values()]
        if end_a is not None and name.endswith(f".{end_a}"):
            module = name.removesuffix(f".{end_a}")
            other = f"{module}.{end_b}"
            others = [each.tensors[other].astype(np.float64) for each in clients.values()]
            a, b, errors[module] = _product(parts, others, share, rank or len(parts[0]))
            tensors[name], tensors[other] = a.astype(np.float32), b.astype(np.float32)
        elif end_b is None or not name.endswith(f".{end_b}"):
            tensors[name] = sum(w * part for w, part in zip(share, parts)).astype(np.float32)  # type: ignore[union-attr]
    if rank is not None:
        alpha = config["lora_alpha"] * rank / own
        config |= {"r": rank, "lora_alpha": int(alpha) if float(alpha).is_integer() else alpha}
    return Average(Content(config, tensors), errors, norms, kept)


def _shares(count: int, weights: Sequence[float]) -> list[float]:
    if not weights:
        return [1 / count] * count
    if len(weights) != count or not all(0 < weight < float("inf") for weight in weights):
        raise ValueError(
            f"weights={','.join(f'{w:g}' for w in weights)}: must be {count} numbers above 0, one a client"
        )
    return [weight / sum(weights) for weight in weights]


def _change(kind: AdapterKind, client: Content, start: Content | None) -> float:
    """Frobenius norm of a client's change of all linears."""
    if kind.product is None and not kind.ranked and start is None:
        raise ValueError(f"clip: needs start, {client.config['peft_type']} is no change by itself")
    total, ends = 0.0, kind.product
    for name in client.tensors:
        parts = [client, *([] if start is None else [start])]
        if ends is None:
            first, *rest = (each.tensors[name].astype(np.float64) for each in parts)
            total += float(((first - rest[0] if rest else first) ** 2).sum())
        elif name.endswith(f".{ends[0]}"):
            module = name.removesuffix(f".{ends[0]}")
            scale = scale_of(client.config, module.removeprefix(kind.prefix))
            a = np.vstack([each.tensors[name].astype(np.float64) for each in parts])
            signs = (1.0, -1.0)
            b = np.hstack([s * each.tensors[f"{module}.{ends[1]}"].astype(np.float64) for s, each in zip(signs, parts)])
            total += scale**2 * float(((b.T @ b) * (a @ a.T)).sum())
    # Of nothing, rounding may leave less than nothing.
    return math.sqrt(max(total, 0.0))


def _check(kind: AdapterKind, first_name: str, first: Content, name: str, each: Content) -> None:
    # What is read of a config, and the base, must be one for all clients.
    told = ("base_model_name_or_path", "peft_type", "r", "lora_alpha")
    for field in (*told, *sorted(kind.handled - {"init_lora_weights", *told})):
        ours, theirs = (_plain(content.config.get(field)) for content in (first, each))
        if ours != theirs:
            raise ValueError(
                f"{name}: has {field}={theirs}, {first_name} has {ours}: clients must be of one base and rank"
            )
    shapes, others = ({key: array.shape for key, array in content.tensors.items()} for content in (first, each))
    if shapes != others:
        wrong = sorted(key for key in shapes.keys() | others.keys() if shapes.get(key) != others.get(key))[0]
        raise ValueError(
            f"{name}: {wrong} differs in shape from that of {first_name}: clients must have the same layers"
        )


def _plain(value: Any) -> Any:
    if is_empty(value):
        return None
    return sorted(value, key=str) if isinstance(value, list) else value


def _product(
    a: Sequence[np.ndarray], b: Sequence[np.ndarray], share: Sequence[float], rank: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """A and B of the average of the products, and what they leave out."""
    own = len(a[0])
    if rank == own and all(np.array_equal(each, a[0]) for each in a):
        return a[0], sum(w * each for w, each in zip(share, b)), 0.0  # type: ignore[return-value]
    if rank == own and all(np.array_equal(each, b[0]) for each in b):
        return sum(w * each for w, each in zip(share, a)), b[0], 0.0  # type: ignore[return-value]
    tall, wide = np.hstack([w * each for w, each in zip(share, b)]), np.vstack(a)
    q_b, r_b = np.linalg.qr(tall)
    q_a, r_a = np.linalg.qr(wide.T)
    u, s, v = np.linalg.svd(r_b @ r_a.T)
    kept = min(rank, len(s))
    root = np.sqrt(s[:kept])
    left = float(np.sqrt((s[kept:] ** 2).sum() / (s**2).sum())) if s.any() else 0.0
    made_b, made_a = q_b @ u[:, :kept] * root, root[:, None] * (v[:kept] @ q_a.T)
    pad = rank - kept
    made_a, made_b = np.pad(made_a, ((0, pad), (0, 0))), np.pad(made_b, ((0, 0), (0, pad)))
    # What float64 leaves of an exact average is rounding.
    return made_a, made_b, left if left > 1e-12 else 0.0
