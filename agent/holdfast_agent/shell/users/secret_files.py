"""Whether a job's secret files can be read, found out before anything is promised, and only by who may read them.

The agent is root, and what it said of a file that the worker's account can't see would tell a user of it. So a
program that runs as that account is asked. It learns no more than that; each rank reads the files itself, at its
start (``shim/secret_files.py``).
"""

from __future__ import annotations

import subprocess

from holdfast._session.assignment import Launch
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser

ANSWER_S = 20.0
"""For all files together; a file server may hang."""
_PROGRAM = 'for f; do [ -f "$f" ] && [ -r "$f" ] || { echo "$f"; exit 1; }; done'


def unreadable(launch: Launch, facts: HostFacts) -> str:
    """Which of the launch's secret files its ranks couldn't read, naming the host; empty where they could."""
    files = {each.file: each.name for each in launch.task.secrets if each.file}
    if not files:
        return ""
    try:
        done = _ask(list(files), facts.user)
    except subprocess.TimeoutExpired:
        return f"{facts.name}: reading secret files takes longer than {ANSWER_S:g} s; a file server may hang."
    except (OSError, PermissionError) as error:
        return f"{facts.name}: can't look at secret files as {facts.user.name}: {error.strerror}."
    if done.returncode == 0:
        return ""
    found = done.stdout.decode("utf-8", "replace").rstrip("\n")
    return f"{facts.name}: {files.get(found, 'a secret')}: {found} is no file that {facts.user.name} can read."


def _ask(files: list[str], user: WorkerUser) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["/bin/sh", "-c", _PROGRAM, "sh", *files],
        user=user.uid,
        group=user.gid,
        extra_groups=None if user.uid is None else user.groups or (),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={},
        cwd="/",
        timeout=ANSWER_S,
        check=False,
    )
