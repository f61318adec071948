"""A real Slurm for the tests of a module."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import slurm_cluster
from tests.support.slurm_cluster import Slurm


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    # Slurm's sockets lie there, whose names can't be as long as a test's folder.
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    try:
        with slurm_cluster.running(folder) as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)
