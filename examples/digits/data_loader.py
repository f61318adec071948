"""Prepares batches ahead of the training, in a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable

from network import Floats, Labels

Batch = tuple[Floats, Labels]
_AHEAD = 2


class DataLoader:
    """Makes one batch for each of `steps` (counted from 0) by `make`, in order."""

    def __init__(self, steps: Iterable[int], make: Callable[[int], Batch], deadlock_at: int | None = None) -> None:
        self._batches: queue.Queue[Batch | Exception] = queue.Queue(maxsize=_AHEAD)
        self._lock = threading.Lock()
        self._deadlock_at = deadlock_at
        threading.Thread(target=self._run, args=(steps, make), name="loader", daemon=True).start()

    def next_batch(self) -> Batch:
        """The next batch, waited for as long as it takes. Raises what making it raised."""
        batch = self._batches.get()
        if isinstance(batch, Exception):
            raise batch
        return batch

    def _run(self, steps: Iterable[int], make: Callable[[int], Batch]) -> None:
        try:
            for step in steps:
                with self._lock:
                    if step == self._deadlock_at:
                        self._refresh()
                    batch = make(step)
                self._batches.put(batch)
        except (ArithmeticError, LookupError, ValueError, MemoryError) as error:
            self._batches.put(error)

    def _refresh(self) -> None:
        """Takes the lock that its caller holds: an honest deadlock, for those who order one."""
        with self._lock:
            pass
