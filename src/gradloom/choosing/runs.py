"""Short runs of finalists, on several cores."""

from collections.abc import Sequence

from gradloom.sim.run.threads import Threads
from gradloom.systems.text.reference.llama import FloatModel

from .candidates import METHODS
from .finalists import Offer
from .quality import Tell, Tensors, held_out, learns
from .state import ChoiceState
from .texts import Split
from .trunk import FloatTrunk

__all__ = ["short_runs"]

#: In the state: the held-out loss before.
_BEFORE = "before"


def short_runs(
    llama: FloatModel,
    tensor: Tensors,
    split: Split,
    planned: Sequence[tuple[Offer, int]],
    *,
    seed: int,
    state: ChoiceState,
    tell: Tell,
    threads: Threads,
) -> tuple[float, list[float]]:
    """The held-out loss before, and after each finalist's updates.

    Finalists run side by side, from what the layers below them made of each text once for all. ``planned``: finalists
    with their numbers of updates; those that ``state`` knows are not run again.
    """
    left = [(each, count) for each, count in planned if str(each.candidate) not in state.losses]
    trunk = FloatTrunk(llama)
    if left:
        _keep(trunk, split, left, tell, threads)
    if _BEFORE not in state.losses:
        # Before any finalist. What is fresh changes nothing, so the layers below it need not run again.
        highest = max((each.candidate for each, _ in left), key=lambda each: each.from_layer)
        fresh = METHODS[highest.method].fresh(llama.model, tensor, highest, seed)
        state.keep_loss(_BEFORE, held_out(trunk, split, fresh))
    made = dict.fromkeys(range(len(left)), 0)

    def run(number: int) -> float:
        each, count = left[number]

        def progress(done: int, total: int, text: str) -> None:
            threads.check()
            made[number] = done
            tell(sum(made.values()), sum(count for _, count in left), text)

        text = f"updates of {len(left)} finalists"
        loss = learns(trunk, tensor, split, each.candidate, count, seed=seed, tell=progress, text=text)[0]
        made[number] = count
        return loss

    # The longest first, so that no core waits for another's last.
    order = sorted(range(len(left)), key=lambda at: -left[at][0].cost.cycles(left[at][1], 0))
    for number, loss in threads.run(run, order):
        state.keep_loss(str(left[number][0].candidate), loss)
    return state.losses[_BEFORE], [state.losses[str(each.candidate)] for each, _ in planned]


def _keep(trunk: FloatTrunk, split: Split, left: Sequence[tuple[Offer, int]], tell: Tell, threads: Threads) -> None:
    """Runs the layers below what learns, once a text."""
    wanted: dict[tuple[int, ...], set[int]] = {}
    for each, count in left:
        one = each.candidate
        texts = split.windows(one.seq)[: count * one.accumulate]
        for text in (*texts, *split.judged):
            wanted.setdefault(tuple(text), set()).add(one.from_layer)
    below = [text for text, layers in wanted.items() if any(layers)]
    for number, _ in enumerate(threads.run(lambda text: trunk.keep(text, wanted[text]), below)):
        tell(number, len(below), "layers below the finalists")
