"""Prints by how many MB a process has grown once its threads have freed large blocks.

In a process of its own, as the settings of the allocator cannot be taken back. All threads run
before the first block: what the interpreter allocates for a thread would lie above the blocks and
keep an arena from shrinking. Each has a block at the same time as the others, so that none takes
over another's arena; the second block of a size is the one that glibc keeps by its own settings.
"""

import ctypes
import threading

from serving.process import return_freed_memory
from tests.serving.processes import resident_megabytes

THREADS, BYTES = 8, 20_000_000


def use_memory(libc: ctypes.CDLL, together: threading.Barrier) -> None:
    """Takes and frees two blocks, in step with the others."""
    together.wait()
    for _ in range(2):
        block = libc.malloc(BYTES)
        libc.memset(ctypes.c_void_p(block), 1, BYTES)
        together.wait()
        libc.free(ctypes.c_void_p(block))
    together.wait()
    together.wait()  # a thread that ends leaves its arena to others


if __name__ == "__main__":
    return_freed_memory()
    libc = ctypes.CDLL(None)
    libc.malloc.restype = libc.memset.restype = ctypes.c_void_p
    together = threading.Barrier(THREADS + 1)
    threads = [threading.Thread(target=use_memory, args=(libc, together)) for _ in range(THREADS)]
    before = resident_megabytes("self")
    for thread in threads:
        thread.start()
    for _ in range(4):
        together.wait()
    print(resident_megabytes("self") - before)
    together.wait()
