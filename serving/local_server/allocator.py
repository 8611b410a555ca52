"""Settings of the memory allocator for a process that decodes images in many threads."""

from __future__ import annotations

import ctypes

# Parameters of mallopt(3), by glibc's <malloc.h>.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8

_ARENAS = 2
_LARGE = 32 * 2**20  # bytes: the largest that glibc itself comes to keep in an arena


def return_freed_memory() -> None:
    """Makes glibc give freed memory back to the system; does nothing for another libc.

    glibc gives threads arenas of their own, up to eight per core, and once large blocks were freed
    it leaves as much as 64 MB free in each: a server's memory grows with every thread that happens
    to decode a large image. Here there are two arenas, trimmed at 32 MB.

    To be called before TensorFlow starts its threads, as arenas that exist stay.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(_ARENA_MAX, _ARENAS)
    mallopt(_MMAP_THRESHOLD, _LARGE)
    mallopt(_TRIM_THRESHOLD, _LARGE)
