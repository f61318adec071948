"""Dev clusters of real daemons: one for each test that asks, or one for all tests of a module."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster import DevCluster, started


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., DevCluster]]:
    """Call it with ``hosts=2, gpus=2`` for a running cluster; it is stopped when the test ends."""
    with contextlib.ExitStack() as clusters:
        made = 0

        def make(hosts: int = 2, gpus: int = 2) -> DevCluster:
            nonlocal made
            made += 1
            return clusters.enter_context(started(tmp_path / f"c{made}", hosts=hosts, gpus=gpus))

        yield make


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """Two hosts with two GPUs each, shared by the tests of a module, which leave it whole and idle."""
    with started(tmp_path_factory.mktemp("shared") / "c", hosts=2, gpus=2) as shared:
        yield shared
