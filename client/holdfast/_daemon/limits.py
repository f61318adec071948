"""The limits of a daemon's process, looked at before anything that would abort or hang for want of them.

gRPC ends the process where it can't start a thread, and a limit on address space is used up by what threads reserve
long before memory is short: which thread fails then is chance.
"""

from __future__ import annotations

import _thread
import errno
import os
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import ConfigError, HoldfastError

MIB = 1 << 20
THREADS = 32
"""About twice as many as a daemon has at rest."""
GONE_S = 1.0
"""For their ends to be the kernel's, too: a few of its moments."""
ARENA_BYTES = 64 * MIB
"""Address space that glibc's malloc reserves for a thread."""
USUAL_STACK_BYTES = 8 * MIB
OWN_BYTES = 512 * MIB
"""Address space of a small daemon without its threads."""
DATA_BYTES = 1024 * MIB
FILES = 128
FILE_BYTES = 1024 * MIB
_MEMORY = "MemoryMax= bounds memory without that."
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)


def check(daemon: str) -> None:
    """Raise ``HoldfastError``, with the limit's name and value, where one is too low for the daemon to start.

    ``ConfigError`` where that doesn't pass by itself.
    """
    needs = (
        (resource.RLIMIT_NOFILE, FILES, "", "open files", "ulimit -n, or LimitNOFILE= of its unit."),
        (
            resource.RLIMIT_AS,
            address_space(),
            " bytes",
            "address space",
            f"ulimit -v, or LimitAS= of its unit. {_MEMORY}",
        ),
        (resource.RLIMIT_DATA, DATA_BYTES, " bytes", "data", f"ulimit -d, or LimitDATA= of its unit. {_MEMORY}"),
        (resource.RLIMIT_FSIZE, FILE_BYTES, " bytes", "a file's size", "ulimit -f, or LimitFSIZE= of its unit."),
    )
    for number, least, unit, what, where in needs:
        limit = resource.getrlimit(number)[0]
        if limit != resource.RLIM_INFINITY and limit < least:
            problem = f"The limit on {what} is {limit:,}{unit}; {daemon} needs {least:,}."
            raise ConfigError(problem, fix=f"Raise it: {where}")
    _check_threads(daemon)


@contextmanager
def named(daemon: str) -> Iterator[None]:
    """Whatever ends the daemon for want of memory, threads or descriptors, as an error that names the limits."""
    try:
        yield
    except (MemoryError, OSError, RuntimeError) as error:
        ran_out = isinstance(error, MemoryError) or getattr(error, "errno", None) in _EXHAUSTED
        if not ran_out and "start new thread" not in str(error):
            raise
        fix = f"It has {_limits()}. Raise what is too low."
        raise HoldfastError(f"{daemon} has run out of something: {str(error) or 'memory'}.", fix=fix) from error


def address_space() -> int:
    """Bytes that a daemon with all its threads reserves."""
    stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
    each = ARENA_BYTES + (USUAL_STACK_BYTES if stack == resource.RLIM_INFINITY else stack)
    return OWN_BYTES + THREADS * each


def _check_threads(daemon: str) -> None:
    """Start as many threads as it may need, all at once.

    Without ``threading``, which waits for each one to begin and to end: at a start that takes 40 ms and more.
    """
    over, ended = _thread.allocate_lock(), threading.Semaphore(0)

    def stay() -> None:
        with over:
            pass
        ended.release()

    before, started = _threads(), 0
    over.acquire()
    try:
        while started < THREADS:
            _thread.start_new_thread(stay, ())
            started += 1
    except (RuntimeError, MemoryError) as error:
        raise HoldfastError(
            f"{daemon} can start {started} threads; it needs {THREADS}. It has {_limits()}.",
            fix="Raise what is too low: ulimit -u, LimitNPROC= or TasksMax= of its unit, pids.max of its cgroup.",
        ) from error
    finally:
        over.release()
        for _ in range(started):
            ended.acquire()
        # Those that the daemon starts next come in their place.
        until = time.monotonic() + GONE_S
        while _threads() > before and time.monotonic() < until:
            time.sleep(0.0005)


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _limits() -> str:
    numbers = {
        "ulimit -u": (resource.RLIMIT_NPROC, 1),
        "ulimit -n": (resource.RLIMIT_NOFILE, 1),
        "ulimit -v": (resource.RLIMIT_AS, 1024),
        "ulimit -d": (resource.RLIMIT_DATA, 1024),
    }
    shown = []
    for name, (number, unit) in numbers.items():
        limit = resource.getrlimit(number)[0]
        shown.append(f"{name} {'unlimited' if limit == resource.RLIM_INFINITY else limit // unit}")
    return ", ".join(shown)
