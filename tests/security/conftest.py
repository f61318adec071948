"""A real agent before a controller of the tests, as in ``tests.integration.agent``."""

from __future__ import annotations

from tests.integration.agent.conftest import agent, controller, settings

__all__ = ["agent", "controller", "settings"]
