"""One machine and one report for the whole pack."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.gpu.machine import Machine, Report, found
from tests.support import machine_parts


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    from tests.gpu.machine import own_gpus

    if not own_gpus() and not machine_parts.has("cc"):
        pytest.skip("no NVIDIA driver, and no C compiler to build the scripted one")
    with found(tmp_path_factory.mktemp("gpu")) as made:
        yield made


@pytest.fixture(scope="session")
def report(machine: Machine) -> Report:
    return Report(machine)
