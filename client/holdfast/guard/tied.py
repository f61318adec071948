"""Runs a module in a process that ends with its parent: ``python -m holdfast.guard.tied PARENT MODULE ARGUMENTS``.

Signals of the scheduler go to every process of a job; only the guard answers them, so they are blocked here.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1
LEFT_TO_GUARD = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}


def end_with_parent(number: signal.Signals) -> None:
    """Have the kernel send this process the signal when its parent is gone."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def main() -> None:
    """Become the module, unless the parent is gone already."""
    end_with_parent(signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("its guard is gone")
    signal.pthread_sigmask(signal.SIG_BLOCK, LEFT_TO_GUARD)
    del sys.argv[:2]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
