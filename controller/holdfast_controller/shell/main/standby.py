"""A controller while another one leads: its words to the service manager, and to callers over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast._daemon import log
from holdfast._daemon.sd_notify import Supervisor
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.main import http_listeners
from holdfast_controller.shell.main.preload import preload
from holdfast_controller.shell.store.store import Store

if TYPE_CHECKING:
    from holdfast_controller.shell.rest.listener import Listener


class Standby:
    """One controller, until it leads. Make it in the event loop."""

    def __init__(
        self, config: ControllerConfig, supervisor: Supervisor, on_first: Callable[[], None] | None = None
    ) -> None:
        """``on_first`` is called once, when another one is first known to lead."""
        self._config = config
        self._supervisor = supervisor
        self._on_first = on_first
        self._loop = asyncio.get_running_loop()
        self._told = asyncio.Event()
        self._leader = ""

    def on_stand_by(self, leader: str) -> None:
        """The controller on the machine ``leader`` leads. May be called on any thread."""
        self._loop.call_soon_threadsafe(self._tell, leader)

    async def opened(self, store: Store) -> Cluster:
        """Open the store, however long that takes: a start that reads a long log is alive, and so is one that waits.

        Raises ``ConfigError`` where HTTP can't be served meanwhile.
        """
        opening = asyncio.wrap_future(store.call(store.open))
        try:
            async with asyncio.TaskGroup() as tasks:
                answering = tasks.create_task(self._answer())
                while not (await asyncio.wait({opening}, timeout=self._supervisor.beat_s))[0]:
                    self._supervisor.tell(WATCHDOG=1)
                answering.cancel()
        finally:
            store.give_up()
        cluster: Cluster = opening.result()
        return cluster

    def _tell(self, leader: str) -> None:
        """A controller that waits for another one is as it should be."""
        self._supervisor.tell(READY=1, STATUS=f"stands by: the controller on {leader} leads")
        self._leader = leader
        if self._on_first is not None and not self._told.is_set():
            self._on_first()
        self._told.set()

    async def _answer(self) -> None:
        """Once another one leads, say so at the addresses of HTTP, and load what leading takes, until cancelled."""
        await self._told.wait()
        listeners: dict[str, Listener] = {}
        try:
            await http_listeners.listen_as_standby(self._config, lambda: self._leader, listeners)
            if listeners:
                log.info("controller.refers", **{key: listener.port for key, listener in listeners.items()})
            await asyncio.to_thread(preload, self._config)
            await asyncio.Event().wait()
        finally:
            for listener in listeners.values():
                await listener.close(0.0)
