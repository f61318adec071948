"""The directories in which workers run that name none of their own: one per job, gone with the job's last worker."""

from __future__ import annotations

from pathlib import Path

from holdfast_agent.shell.users import safe_paths


def remove_scratch(parent: Path, job: str) -> None:
    """Remove a job's scratch directory, if there is one, whatever its user has put there. Raises ``OSError``."""
    safe_paths.remove_tree(parent, job)
