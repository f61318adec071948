"""Keeps other users from writing to what a program makes, whatever umask it was started with.

A mode that is given to ``mkdir`` counts for the last directory alone: missing parents are made with all rights that the
umask leaves. Under a umask of 000 anyone could replace what lies below them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

OF_OTHERS = 0o022


def close_to_others() -> int:
    """Take the write permission of group and others from what this process makes; returns the umask before."""
    before = os.umask(OF_OTHERS)
    os.umask(before | OF_OTHERS)
    return before


def current() -> int:
    """The umask of this process; to set it and set it back would show another one to other threads."""
    with open("/proc/self/status") as file:
        return next((int(line.split()[1], 8) for line in file if line.startswith("Umask:")), OF_OTHERS)


@contextmanager
def closed_to_others() -> Iterator[None]:
    """Do the same for the time of a block only, since a library's caller keeps its own umask."""
    before = close_to_others()
    try:
        yield
    finally:
        os.umask(before)
