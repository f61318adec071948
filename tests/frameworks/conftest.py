"""A dev cluster of two hosts, for all programs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.e2e.cli_cluster import DevCluster, started


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    with started(tmp_path_factory.mktemp("frameworks") / "c", hosts=2, gpus=0) as shared:
        yield shared
