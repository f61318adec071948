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
def slurm(request: pytest.FixtureRequest) -> Iterator[Slurm]:
    """Knows the processes of a step by ``cgroups``, as most sites do, where that can be here; or by ``parents``."""
    asked, why_not = getattr(request, "param", ""), slurm_cluster.no_cgroups()
    if asked == "cgroups" and why_not:
        pytest.skip(why_not)
    by_cgroups = asked != "parents" and not why_not
    # Slurm's sockets lie there, whose names can't be as long as a test's folder.
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    try:
        with slurm_cluster.running(folder, by_cgroups=by_cgroups) as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)
