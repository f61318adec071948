"""The directories in which workers run that name none of their own: one per job, gone with the job's last place."""

from __future__ import annotations

import shutil
from pathlib import Path


def remove_scratch(parent: Path, job: str) -> None:
    """Remove a job's scratch directory, if there is one. Follows no links. Raises ``OSError``."""
    directory = parent / job
    if directory.is_dir() and not directory.is_symlink():
        # Resistant to links that a worker plants meanwhile: shutil works on directory descriptors here.
        shutil.rmtree(directory)
