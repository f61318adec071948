"""Stack dumps of one process: py-spy for Python's frames, pystack for those of C as well."""

from __future__ import annotations

import contextlib
import itertools
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePosixPath

from holdfast._daemon import log
from holdfast.hang.evidence.evidence import Dump, clipped
from holdfast_agent.core.proc import stack_dumps
from holdfast_agent.shell.evidence import processes
from holdfast_agent.shell.evidence.blocking import Blocking
from holdfast_agent.shell.evidence.tools import Ran, Tools
from holdfast_agent.shim.processes import Process

TRIES = 3
"""Memory that changes while it is read gives a bad dump now and then."""
SETTLE_S = 0.1
MAPPINGS_MOST = 65_536
"""Of a process that are looked through for an interpreter: as many as the kernel allows by default."""
_REFUSED = ("permission denied", "operation not permitted", "os error 13", "os error 1)")
_NO_PYTHON = ("failed to find python version", "could not determine python version", "not a python")
# pystack walks the frames of its target recursively, and at 5,000 of them overflows the usual stack of 8 MiB.
_WITH_STACK = ("/bin/sh", "-c", 'ulimit -S -s 131072 2>/dev/null; exec "$@"', "sh")
ENDED = "the process has ended"


class Dumper:
    """Never raises for what a rank or a tool does: a dump that failed says why."""

    def __init__(self, tools: Tools, blocking: Blocking) -> None:
        self._tools = tools
        self._blocking = blocking

    async def python(self, process: Process) -> Dump:
        """Read the Python frames from the process's memory without stopping it."""
        began = time.monotonic()
        dump = await self._py_spy(process)
        if dump.problem and dump.problem != ENDED and await self._blocking.read(_may_be_python, process):
            # Another reader, which knows deeper stacks and other interpreters; not stopping the process either.
            other = await self._pystack(process, "--no-block")
            dump = other if other.threads else dump
        return replace(dump, took_s=round(time.monotonic() - began, 3))

    async def native(self, process: Process, state: str) -> Dump:
        """The frames of C and Python together. Stops the process while it is read (50–300 ms)."""
        began = time.monotonic()
        if state == "D":
            # It would be left stopped once it comes out of the kernel.
            return Dump("pystack", problem="in state D, where it can't be stopped for a native dump")
        stopped = state in ("T", "t")
        dump = await self._pystack(process, "--native", None if stopped else lambda: _wake(process))
        return replace(dump, took_s=round(time.monotonic() - began, 3))

    async def _py_spy(self, process: Process) -> Dump:
        path = self._tools.find("py-spy")
        if path is None:
            return Dump("py-spy", problem="py-spy is not installed beside the agent")
        problem = ""
        for _ in range(TRIES):
            ran = await self._tools.run([path, "dump", "--json", "--nonblocking", "--pid", str(process.pid)])
            dump, final = self._judged(process, ran, "py-spy")
            if dump.threads or final:
                return dump
            problem = dump.problem
        return Dump("py-spy", problem=problem)

    async def _pystack(self, process: Process, mode: str, after_kill: Callable[[], None] | None = None) -> Dump:
        path = self._tools.find("pystack")
        if path is None:
            return Dump("pystack", problem="pystack is not installed beside the agent")
        command = [*_WITH_STACK, path, "remote", "--no-color", mode, str(process.pid)]
        stops = process.pid if mode == "--native" else 0
        ran = await self._tools.run(command, after_kill, name="pystack", stops=stops)
        return self._judged(process, ran, "pystack")[0]

    def _judged(self, process: Process, ran: Ran, tool: str) -> tuple[Dump, bool]:
        """The dump, and whether there is no use in trying again."""
        if processes.gone(process):
            return Dump(tool, problem=ENDED), True
        if ran.problem:
            return Dump(tool, problem=clipped(ran.problem)), True
        if ran.code == 0:
            try:
                read = stack_dumps.py_spy if tool == "py-spy" else stack_dumps.pystack
                return read(ran.output, process.pid), True
            except ValueError as error:
                return Dump(tool, problem=clipped(str(error))), False
        why = stack_dumps.complaint(ran.errors) or f"{tool} ended with {ran.code} and said nothing"
        told = why.lower()
        if any(word in told for word in _NO_PYTHON):
            return Dump(tool, problem="not a Python program, or one that can't be recognised"), True
        if any(word in ran.errors.lower() for word in _REFUSED):
            return Dump(tool, problem=clipped(f"{tool} may not read the process: {why}")), True
        # It also says so of a stack that is too deep for it; a search of all memory is not worth a second try.
        return Dump(tool, problem=clipped(f"{tool}: {why}")), "find a python interpreter" in told


def _wake(process: Process) -> None:
    """A tool that is killed while it attaches can leave its target stopped; that must not be."""
    time.sleep(SETTLE_S)
    found = processes.find(process.pid)
    if found is not None and found.state == "T" and found.start_ticks == process.start_ticks:
        log.warning("evidence.process_left_stopped", pid=process.pid)
        process.send(signal.SIGCONT)


def _may_be_python(process: Process) -> bool:
    """Whether the process has an interpreter loaded, as far as may be known."""
    with contextlib.suppress(OSError), open(f"/proc/{process.pid}/maps", errors="replace") as maps:
        for line in itertools.islice(maps, MAPPINGS_MOST):
            if PurePosixPath(line[73:].strip()).name.startswith(("python", "libpython")):
                return True
    return False
