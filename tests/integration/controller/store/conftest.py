"""A PostgreSQL of a module's own, for tests that stop it, break it or change its settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.controller.store.places import InPostgres
from tests.support.postgres import Server, running


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of this module's own."""
    with running() as made:
        yield made


@pytest.fixture
def made(server: Server, tmp_path: Path) -> Iterator[InPostgres]:
    """A new store on it."""
    server.sql("CREATE DATABASE holdfast")
    yield InPostgres(tmp_path / "state/postgresql", server, "holdfast")
    server.sql("DROP DATABASE holdfast WITH (FORCE)")
