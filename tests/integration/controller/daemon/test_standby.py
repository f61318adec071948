"""A controller that stands by, at the moment when it leads."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast._daemon.sd_notify import Supervisor
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.shell.main import http_listeners
from holdfast_controller.shell.main.cycles import Cycles
from holdfast_controller.shell.main.standby import Standby
from holdfast_controller.shell.rest import listener
from holdfast_controller.shell.web import page_listener

pytestmark = pytest.mark.anyio


async def test_a_takeover_while_the_page_is_being_opened_leaves_http_port_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opens, closed = asyncio.Event(), asyncio.Event()

    async def close(grace_s: float) -> None:
        closed.set()

    async def at_once(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(port=1, close=close)

    async def never(*_: Any) -> Any:
        opens.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(http_listeners, "server_context", lambda _: None)
    monkeypatch.setattr(listener, "listen", at_once)
    monkeypatch.setattr(page_listener, "listen", never)
    config: Any = SimpleNamespace(http_port=1, host="", tls=None, web=SimpleNamespace(listen="127.0.0.1:2"))
    opening: Future[Cluster] = Future()
    store: Any = SimpleNamespace(open=None, call=lambda _: opening, give_up=lambda: None)
    standby = Standby(config, Supervisor())
    opened = asyncio.get_running_loop().create_task(standby.opened(store))
    standby.on_stand_by("other")
    async with asyncio.timeout(60):
        await opens.wait()
        opening.set_result(Cluster())
        await opened
    assert closed.is_set()


@pytest.fixture
def as_at_a_start() -> Iterator[None]:
    """Cycles are not looked for while a controller loads."""
    thresholds = gc.get_threshold()
    gc.disable()
    yield
    gc.set_threshold(*thresholds)
    gc.enable()


@pytest.mark.usefixtures("as_at_a_start")
async def test_one_that_waits_for_months_looks_for_cycles_meanwhile() -> None:
    config: Any = SimpleNamespace(
        http_port=None,
        web=SimpleNamespace(listen=""),
        ca_directory=None,
        enrolment_listen="",
        oidc=SimpleNamespace(issuer=""),
        metrics_listen="",
    )
    calls: list[bool] = []

    cycles = Cycles()

    def first() -> None:
        calls.append(gc.isenabled())
        cycles.begin()

    opening: Future[Cluster] = Future()
    store: Any = SimpleNamespace(open=None, call=lambda _: opening, give_up=lambda: None)
    standby = Standby(config, Supervisor(), first)
    opened = asyncio.get_running_loop().create_task(standby.opened(store))
    for leader in ("one", "another"):
        standby.on_stand_by(leader)
        await asyncio.sleep(0.01)
    assert calls == [False] and gc.isenabled()
    opening.set_result(Cluster())
    await opened
