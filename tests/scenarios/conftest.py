"""The program of most stories of hangs."""

from __future__ import annotations

import pytest
from tests.scenarios.training import Training, training


@pytest.fixture
def program() -> Training:
    """Two workers that have trained for five minutes."""
    return training()
