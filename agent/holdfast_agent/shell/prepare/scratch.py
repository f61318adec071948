"""The directories in which workers run that name none of their own: one per job, gone with the job's last worker."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from holdfast_agent.shell.users import safe_paths


def set_aside(parent: Path, job: str) -> str:
    """Take a job's scratch directory out of its place, so that another can be made at once.

    Returns its new name; empty where there is none, or nothing was in it: then it is gone. Raises ``OSError``.
    """
    with contextlib.suppress(OSError):
        os.rmdir(parent / job)
        return ""
    name = f".gone-{job}-{os.urandom(4).hex()}"
    try:
        os.rename(parent / job, parent / name)
    except FileNotFoundError:
        return ""
    return name


def remove_aside(parent: Path, name: str) -> None:
    """Remove what was set aside, whatever its user has put there. Raises ``OSError``."""
    if name:
        safe_paths.remove_tree(parent, name)
