"""Runs a module in a process that ends with its parent: ``python -m holdfast.guard.tied PARENT MODULE ARGUMENTS``.

Signals of the scheduler go to every process of a job; only the guard answers them, so they are blocked here.

``Forked`` is the same without a new interpreter: what both have loaded is in memory once, and loaded once.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Mapping
from typing import NoReturn

from holdfast._base.job_file import rank_variables
from holdfast.errors import Unavailable
from holdfast.guard.allocation import SEED_VARIABLE

PR_SET_PDEATHSIG = 1
SELDOM = "HOLDFAST_LOOKS_SELDOM"
"""That of ``holdfast._daemon.loop_watch``, which is slow to import."""
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
    env = {key: value for key, value in ours.items() if key not in strange} | {SELDOM: "1"}
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


class Forked:
    """A process that runs a module with its output in ``log``; as much of ``subprocess.Popen`` as is used of it.

    Only while this process has no other thread: what that holds would be held for ever.
    """

    def __init__(self, log: int, module: str, *arguments: str) -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        gc.freeze()  # what is looked at for garbage is written to, and then in memory twice
        self.returncode: int | None = None
        parent = os.getpid()
        self.pid = os.fork()
        if not self.pid:
            _run(parent, log, module, arguments)

    def poll(self) -> int | None:
        """Its exit code, once it has ended."""
        return self._reap(os.WNOHANG)

    def wait(self) -> int:
        """Return its exit code once it has ended."""
        code = self._reap(0)
        assert code is not None
        return code

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _reap(self, how: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, how)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def is_alone() -> bool:
    """Whether this process has one thread."""
    return len(os.listdir("/proc/self/task")) == 1


def _run(parent: int, log: int, module: str, arguments: tuple[str, ...]) -> NoReturn:
    """Do in a forked process what a new interpreter would do, and end it."""
    status = 1
    try:
        os.setsid()
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        sys.path[:] = [os.path.abspath(part) for part in sys.path]
        if not sys.flags.safe_path:
            sys.path[0] = "/"  # that of the guard may be the user's folder, whose modules are not meant
        os.chdir("/")
        env = environment(os.environ)
        os.environ.clear()
        os.environ.update(env)
        _show((sys.executable, "-m", module, *arguments))
        sys.argv = ["", str(parent), module, *arguments]
        main()
        status = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 all of this process ends here
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _show(words: tuple[str, ...]) -> None:
    """Have `ps` show these words as this process's command line, as far as they fit into the room of the old one."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        text = b"\0".join(map(os.fsencode, words))[: end - start - 1]
        ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


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
