"""The admin's own commands around a worker: a prolog before each start, an epilog after each end.

They run as the agent's user, in a session of their own, without the worker's environment. What they print goes
nowhere but for the last line of stderr, which says why one failed. One that fails or doesn't end in time is killed with
all that it has started; one that ends well may leave something behind, such as the daemon of a mount.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from holdfast._base.printable import one_line
from holdfast_agent.shell.base import programs
from holdfast_agent.shell.base.programs import How, Program

LINE_CHARACTERS = 500
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def run(phase: str, command: tuple[str, ...], about: Mapping[str, str], timeout_s: float) -> str:
    """Why a hook failed, as a sentence without its full stop; empty when it ended well. Blocks."""
    env = {"PATH": os.environ.get("PATH", _PATH), "LANG": "C.UTF-8", **about, "HOLDFAST_PHASE": phase}
    ran = programs.run(Program(command, timeout_s, env, may_gain=True, may_leave=True))
    if ran.how is How.NOT_STARTED:
        return f"the {phase} {command[0]} could not be started: {ran.problem}"
    if ran.code is None:
        return f"the {phase} {command[0]} {ran.problem} and was killed"
    if ran.code == 0:
        return ""
    said = _last_line(ran.errors)
    return f"the {phase} {command[0]} {ran.failure}" + (f": {said}" if said else "")


def _last_line(said: bytes) -> str:
    lines = said.decode("utf-8", "replace").split("\n")
    printed = (one_line(line, LINE_CHARACTERS) for line in reversed(lines))
    return next(filter(None, printed), "").rstrip(".")
