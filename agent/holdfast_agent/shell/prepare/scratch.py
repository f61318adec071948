"""The directories in which workers run that name none of their own: one per job, gone with the job's last worker."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from holdfast_agent.shell.users import safe_paths

_ASIDE = ".gone-"


def set_aside(parent: Path, job: str) -> None:
    """Take a job's scratch directory out of its place, if there is one, so that another can be made at once.

    Raises ``OSError``.
    """
    with contextlib.suppress(FileNotFoundError):
        os.rename(parent / job, parent / f"{_ASIDE}{job}-{os.urandom(4).hex()}")


def remove_aside(parent: Path) -> None:
    """Remove what was set aside, whatever its user has put there. Raises ``OSError``."""
    for path in parent.glob(f"{_ASIDE}*"):
        safe_paths.remove_tree(parent, path.name)
