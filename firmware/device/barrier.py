"""A full memory barrier of the CPU, for memory that a device reads."""

import ctypes
import functools
import mmap
import os
import platform
from collections.abc import Callable

__all__ = ["CODE", "memory_barrier"]

#: Machine code of a barrier and a return, by machine: ``dsb sy; ret`` as in ``GL_BARRIER`` of the C driver, and
#: ``mfence; ret`` for hosts that test.
CODE = {"aarch64": bytes.fromhex("9f3f03d5c0035fd6"), "x86_64": bytes.fromhex("0faef0c3")}


@functools.cache
def memory_barrier() -> Callable[[], object]:
    """A function that waits until earlier writes have left the CPU.

    It covers all writes to memory, also those to write-combining memory, and lets no later read come before it.

    Python has no such thing, nor has the C library: a few bytes of machine code are put into a page. They lie in a
    file in memory, so that the kernel makes them visible to instruction fetch. :class:`OSError` if it forbids that.
    """
    machine = platform.machine()
    if machine not in CODE:
        raise ValueError(f"no memory barrier is known for {machine}: use a board with {' or '.join(CODE)}")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    file = os.memfd_create("gradloom-barrier")
    try:
        os.write(file, CODE[machine])
        page = libc.mmap(None, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC, mmap.MAP_PRIVATE, file, 0)
    finally:
        os.close(file)
    if page == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "the memory barrier's page cannot be mapped")
    return ctypes.CFUNCTYPE(None)(page)
