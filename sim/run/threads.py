"""Products on several cores, a thread each, on one copy of the data."""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

from threadpoolctl import threadpool_limits

__all__ = ["Stopped", "Threads", "threads"]


class Stopped(Exception):
    """Another thread failed, or the user interrupted."""


class Threads:
    """Threads that run functions of items; :func:`threads` makes them."""

    def __init__(self, pool: ThreadPoolExecutor | None) -> None:
        self._pool, self._stopped = pool, threading.Event()

    def run(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """Each item with the function's result, in the order in which they come."""
        if self._pool is None:
            for item in items:
                yield item, function(item)
            return
        running = {self._pool.submit(function, item): item for item in items}
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()

    def check(self) -> None:
        """Ends a long function when the others end; it calls this now and then."""
        if self._stopped.is_set():
            raise Stopped

    def stop(self) -> None:
        """Lets every function end at its next check."""
        self._stopped.set()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


@contextmanager
def threads(jobs: int) -> Iterator[Threads]:
    """Makes ``jobs`` threads for products of NumPy or PyTorch.

    They compute outside of Python's lock. A product then has one core: two that share all cores wait for each other.
    One job stays in the caller's thread, and its products have all cores.
    """
    if jobs == 1:
        yield Threads(None)
        return
    with threadpool_limits(1), _torch_on_one_core(), ThreadPoolExecutor(jobs) as pool:
        made = Threads(pool)
        try:
            yield made
        except BaseException:
            made.stop()
            raise


@contextmanager
def _torch_on_one_core() -> Iterator[None]:
    """Where PyTorch is in use: it counts threads by itself."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
