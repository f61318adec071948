import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fake_controller import FakeController, Pki


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki.make(tmp_path_factory.mktemp("pki"))


@pytest.fixture
async def controller(pki: Pki) -> AsyncIterator[FakeController]:
    fake = FakeController(pki)
    await fake.start()
    yield fake
    await fake.stop()
