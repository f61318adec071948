"""Runs a module in a process that ends with its parent: ``python -m holdfast.guard.tied PARENT MODULE ARGUMENTS``.

Signals of the scheduler go to every process of a job; only the guard answers them, so they are blocked here.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
from collections.abc import Mapping

from holdfast._base import rank_variables
from holdfast.errors import Unavailable
from holdfast.guard.allocation import SEED_VARIABLE

PR_SET_PDEATHSIG = 1
LEFT_TO_GUARD = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}


def end_with_parent(number: signal.Signals) -> None:
    """Have the kernel send this process the signal when its parent is gone."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def command(module: str, *arguments: str) -> list[str]:
    """The command line of a module that ends with this process."""
    return [sys.executable, "-m", "holdfast.guard.tied", str(os.getpid()), module, *arguments]


def environment(ours: Mapping[str, str]) -> dict[str, str]:
    """The environment without what is a rank's or a secret; for a process that starts in another folder."""
    strange = (*rank_variables.MARKS, "HOLDFAST_CONFIG", SEED_VARIABLE)
    env = {key: value for key, value in ours.items() if key not in strange}
    if given := env.get("PYTHONPATH"):
        # An empty part is the current folder, whose modules are the user's.
        env["PYTHONPATH"] = os.pathsep.join(os.path.abspath(part) for part in given.split(os.pathsep) if part)
    return env


def unloadable(words: str) -> Unavailable | None:
    """An error where these last words of a module say that this Python can't load it; None for others."""
    lines = words.strip().splitlines()
    last = lines[-1].strip() if lines else ""
    if not last.startswith(("ImportError", "ModuleNotFoundError")):
        return None
    python = f"{sys.executable}, Python {sys.version.split()[0]}"
    return Unavailable(
        f"Holdfast's packages can't be loaded by {python}: {last}.",
        fix="Run it by the Python that it was installed with, on all hosts.",
    )


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
