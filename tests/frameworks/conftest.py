"""A dev cluster of two hosts, and the environments in which ``make frameworks`` has installed what programs import."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cli_cluster import DevCluster, started

BUILT = Path(__file__).parents[2] / "build/frameworks"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    with started(tmp_path_factory.mktemp("frameworks") / "c", hosts=2, gpus=0) as shared:
        yield shared


@pytest.fixture
def path_of() -> object:
    """PATH with the programs of one of the environments first; skips where it was not installed.

    The environment ``torch`` is the tests' own.
    """

    def path(environment: str) -> str:
        own = Path(__file__).parents[2] / ".venv/bin"
        if environment == "torch":
            return f"{own}:{os.environ['PATH']}"
        programs = BUILT / environment / "bin"
        if not (programs / "python").exists():
            pytest.skip(f"no {programs}: run make frameworks, with ALL=1 for TensorFlow and DeepSpeed")
        return f"{programs}:{own}:{os.environ['PATH']}"

    return path
