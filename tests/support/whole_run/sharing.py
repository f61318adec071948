"""How the processes of a run share its tests: one in five takes what only computes, and the others the rest.

A test with real processes waits for two thirds of its time, and what only computes fills that: the one in five is less
urgent to the kernel than the daemons of the others. Once nothing with processes is left, all take what is.
"""

from __future__ import annotations

import os

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

PURE = ("tests/contract/", "tests/repo/", "tests/scenarios/", "tests/sim/", "tests/unit/")
"""Folders whose tests only compute."""
EVERY = 5
"""One process in so many takes these alone."""
LESS_URGENT = 5
"""Its niceness; with much more, a machine that others keep busy would let none of its tests end in time."""


def computes(worker: str) -> bool:
    """Whether a process, by its name (``gw4``), takes only what computes."""
    return int(worker.removeprefix("gw")) % EVERY == EVERY - 1


def yield_to_others() -> None:
    """To be called in each process of a run when it begins."""
    if computes(os.environ.get("PYTEST_XDIST_WORKER", "gw0")):
        os.setpriority(os.PRIO_PROCESS, 0, max(os.getpriority(os.PRIO_PROCESS, 0), LESS_URGENT))


class Sharing(LoadFileScheduling):
    """The scheduler. Each file is one process's."""

    def _next(self, node: WorkerController) -> str | None:
        """The file that a process would take, if there is one for it."""
        pure = (file for file in self.workqueue if file.startswith(PURE))
        if computes(node.gateway.id):
            return next(pure, None)
        return next((file for file in self.workqueue if not file.startswith(PURE)), None) or next(pure, None)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if (file := self._next(node)) is None:
            if not node.shutting_down:
                node.shutdown()
            return
        self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if node.shutting_down or (self.workqueue and self._next(node) is not None):
            super()._reschedule(node)
        else:
            node.shutdown()
