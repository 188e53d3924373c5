"""Work on several processes."""

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

__all__ = ["processes"]

#: Items for each worker that are sent before they can begin.
_AHEAD = 2

#: Results of a function of each item, with the item, in the order in which they come.
Run = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[tuple[Any, Any]]]


def _quiet() -> None:
    # An interrupt is for who started the workers, who ends them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    starter = multiprocessing.parent_process()
    assert starter is not None

    def follow() -> None:
        # Who was killed ends nobody.
        multiprocessing.connection.wait([starter.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Processes that start within have one thread for matrix products.

    Threads of several processes would wait for each other on the same cores. A number that the user has set stays.
    """
    name = "OPENBLAS_NUM_THREADS"
    if name in os.environ:
        yield
        return
    os.environ[name] = "1"
    try:
        yield
    finally:
        os.environ.pop(name, None)


@contextmanager
def processes(jobs: int) -> Iterator[Run]:
    """Runs a function of each of some items on ``jobs`` processes.

    They end with the block, also by an interrupt. Each has one thread.
    """
    with _one_thread():
        yield from _pool(jobs)


def _pool(jobs: int) -> Iterator[Run]:
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_quiet)

    def run(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        waiting = iter(items)
        running: dict[Any, Any] = {}
        while True:
            while len(running) < _AHEAD * jobs and (item := next(waiting, None)) is not None:
                running[pool.submit(function, item)] = item
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()

    try:
        yield run
        pool.shutdown()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            child.terminate()
        raise
