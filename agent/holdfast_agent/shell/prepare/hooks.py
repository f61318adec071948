"""The admin's own commands around a worker: a prolog before each start, an epilog after each end.

They run as the agent's user, in a session of their own, without the worker's environment. What they print goes
nowhere but for the last line of stderr, which says why one failed. One that doesn't end in time is killed with its
process group.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from typing import IO

TAIL_BYTES, LINE_CHARACTERS = 4096, 500
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def run(phase: str, command: tuple[str, ...], about: Mapping[str, str], timeout_s: float) -> str:
    """Why a hook failed, as a sentence without its full stop; empty when it ended well. Blocks."""
    env = {"PATH": os.environ.get("PATH", _PATH), "LANG": "C.UTF-8", **about, "HOLDFAST_PHASE": phase}
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                cwd="/",
                env=env,
                start_new_session=True,
            )
        except OSError as error:
            return f"the {phase} {command[0]} could not be started: {error.strerror}"
        if not _ends(process.pid, timeout_s):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"the {phase} {command[0]} did not end within {timeout_s:g} s and was killed"
        code = process.wait()
        said = _last_line(errors)
    if code == 0:
        return ""
    ended = f"was killed by signal {-code}" if code < 0 else f"failed with code {code}"
    return f"the {phase} {command[0]} {ended}" + (f": {said}" if said else "")


def _ends(pid: int, timeout_s: float) -> bool:
    """Wait for a child, without reaping it. Whether it has ended in time."""
    pidfd = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
    finally:
        os.close(pidfd)


def _last_line(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - TAIL_BYTES))
    lines = file.read().decode("utf-8", "replace").split("\n")
    printed = ("".join(c for c in line if c.isprintable()).strip() for line in reversed(lines))
    return next((line[:LINE_CHARACTERS] for line in printed if line), "").rstrip(".")
