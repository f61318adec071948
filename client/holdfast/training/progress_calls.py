"""``holdfast.progress(step=…)`` and ``holdfast.idle(reason)``: what a training loop may say, if it likes.

Nothing has to be said: hangs are found from the outside. A loop that does say how far it is gives the detector its
strongest signal, and lets a restart tell how many steps were lost. Outside Holdfast both do nothing. They never
raise because of Holdfast: a training must not fail over a report of it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from holdfast.training.progress_file import DIRECTORY, ProgressFile, path_for

_file: ProgressFile | None = None
_opened_by = 0
_lock = threading.Lock()


def progress(step: int) -> None:
    """Report that the training loop has reached ``step``, which should grow. Costs under a microsecond."""
    file = _file if _opened_by == os.getpid() else _open()
    if file is not None:
        file.report(step)


@contextlib.contextmanager
def idle(reason: str) -> Iterator[None]:
    """Declare a pause: inside the block no progress is expected and no hang is suspected.

    For waits that are meant, such as for a data set that others are still writing. Blocks may nest.
    """
    file = _file if _opened_by == os.getpid() else _open()
    if file is None:
        yield
        return
    file.pause(reason)
    try:
        yield
    finally:
        file.resume()


def _open() -> ProgressFile | None:
    """The file of this process; a forked child opens none of its own, since its rank's is taken."""
    global _file, _opened_by
    with _lock:
        if _opened_by == os.getpid():
            return _file
        forked = _opened_by != 0
        _file, _opened_by = None, os.getpid()
        directory = os.environ.get(DIRECTORY)
        if directory and not forked:
            # A folder that is missing or full must not end a training.
            with contextlib.suppress(OSError, ValueError):
                # Parameter servers and evaluators have no RANK, unless a launcher gives them one.
                rank = os.environ.get("RANK") or os.environ.get("HOLDFAST_RANK", "0")
                _file = ProgressFile(path_for(directory, rank))
        return _file
