"""``/health``, as a load balancer asks it."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from holdfast_controller.shell.rest import health
from holdfast_controller.shell.rest.printed import Json


async def elsewhere(scope: Any, receive: Any, send: Any) -> None:
    await Json({"path": scope["path"]})(scope, receive, send)


def asking(app: health.WithHealth) -> httpx.AsyncClient:
    """A client that reaches ``app`` without a listener between."""

    async def connected(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "state": {"abort": lambda: None}}, receive, send)

    return httpx.AsyncClient(transport=httpx.ASGITransport(connected), base_url="http://192.0.2.1")


async def test_a_controller_whose_store_confirms_that_it_leads_is_well() -> None:
    asked: list[str] = []

    async def confirmed() -> None:
        asked.append("confirmed")

    async with asking(health.WithHealth(elsewhere, confirmed)) as client:
        found = await client.get("/health")
        assert (found.status_code, found.json(), asked) == (200, {}, ["confirmed"])
        assert (await client.get("/v1/jobs")).json() == {"path": "/v1/jobs"}
    assert asked == ["confirmed"]


async def test_a_controller_whose_store_is_stuck_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "CONFIRM_S", 0.05)

    async def confirmed() -> None:
        await asyncio.Event().wait()

    async with asking(health.WithHealth(elsewhere, confirmed)) as client:
        found = await client.get("/health")
    assert (found.status_code, found.headers["Retry-After"]) == (503, "1")
    assert found.json()["error"]["message"] == "The controller's store does not answer."
