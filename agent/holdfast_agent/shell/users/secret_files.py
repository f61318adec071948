"""Whether a job's secret files can be read, found out before anything is promised, and only by who may read them.

The agent is root, and what it said of a file that the worker's account can't see would tell a user of it. So a
program that runs as that account is asked. It learns no more than that; each rank reads the files itself, at its
start (``shim/secret_files.py``).
"""

from __future__ import annotations

import errno

from holdfast._session.assignment import Launch
from holdfast_agent.core.launch.environment import HostFacts
from holdfast_agent.shell.base import host_errors, programs
from holdfast_agent.shell.base.programs import How, Program

ANSWER_S = 20.0
"""For all files together; a file server may hang."""
_PROGRAM = 'for f; do [ -f "$f" ] && [ -r "$f" ] || { echo "$f"; stat -L -- "$f" >/dev/null; exit 1; }; done'


def unreadable(launch: Launch, facts: HostFacts) -> str:
    """Which of the launch's secret files its ranks couldn't read, naming the host; empty where they could.

    Raises ``OSError`` where that can't be found out.
    """
    files = {each.file: each.name for each in launch.task.secrets if each.file}
    if not files:
        return ""
    ran = programs.run(Program(["/bin/sh", "-c", _PROGRAM, "sh", *files], ANSWER_S, {}, user=facts.user))
    if ran.how is How.LATE:
        problem = f"reading secret files takes longer than {ANSWER_S:g} s; a file server may hang"
        raise TimeoutError(errno.ETIMEDOUT, problem)
    if ran.code is None:
        problem = f"can't look at secret files as {facts.user.name}: {ran.problem}"
        raise ChildProcessError(errno.ECHILD, problem)
    if ran.code == 0:
        return ""
    found = ran.output.decode("utf-8", "replace").rstrip("\n")
    if host_errors.told(ran.errors.decode("utf-8", "replace")):
        return ""  # as of any path of the job's, the shim will tell
    return f"{facts.name}: {files.get(found, 'a secret')}: {found} is no file that {facts.user.name} can read."
