from collections.abc import AsyncIterator

import pytest
from tests.integration.client.fake_controller import FakeController, Pki


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki.make(tmp_path_factory.mktemp("pki"))


@pytest.fixture
async def controller(pki: Pki) -> AsyncIterator[FakeController]:
    fake = FakeController(pki)  # type: ignore[abstract]  # the client makes no other calls here
    await fake.start()
    yield fake
    await fake.stop()
