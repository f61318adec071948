"""Holds hosts to their rates: what they may have stored (``core.model.hosts.throttling``), and how fast they are read.

Whatever a host sends faster than it is read stays in its own buffers: gRPC's flow control lets it write no more.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from holdfast._daemon.metrics.series import Series
from holdfast.v1 import agent_pb2, host_pb2
from holdfast_controller.core.model.accounts.token_buckets import Buckets
from holdfast_controller.core.model.clock import Mono
from holdfast_controller.core.model.hosts.throttling import HOSTS_MOST, PER_HOUR, Allowances, MessageKind
from holdfast_controller.core.step.commands import HostOverRate
from holdfast_controller.core.views import metric_families as fam
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.store.records import Record

MESSAGES_BURST = 10_000
MESSAGES_PER_S = 500
BYTES_BURST = 8 << 20
BYTES_PER_S = 1 << 20
"""Read of one host; the burst is for a host that comes back with thousands of workers and their exits."""
HELLO_MESSAGES = 50
"""A session costs as much as so many messages."""
HELD_S = 5.0
"""A message of a kind that its host owes for waits so long, no longer: the host's heartbeats come behind it."""

_KINDS = {
    "hello": MessageKind.HELLO,
    "heartbeat": MessageKind.INVENTORY,
    "worker_report": MessageKind.WORKER,
    "going_down": MessageKind.WORKER,
    "agent_stopping": MessageKind.WORKER,
    "check_report": MessageKind.HELLO,
    "exit_report": MessageKind.EXIT,
    "exit_reports": MessageKind.EXIT,
    "features": MessageKind.PROGRESS,
    "archive": MessageKind.ARCHIVE,
}


def kind_of(message: agent_pb2.SessionRequest) -> MessageKind:
    """The kind that a message of a session counts as; an unknown one counts as a report of a worker."""
    return _KINDS.get(message.WhichOneof("message") or "", MessageKind.WORKER)


def _messages_in(message: agent_pb2.SessionRequest) -> int:
    """Messages that it counts as: of exits that come together each is one."""
    if message.HasField("hello"):
        return HELLO_MESSAGES
    return max(len(message.exit_reports.reports), 1)


@dataclass
class HostPacing:
    """The rates of all hosts of one controller."""

    driver: Driver

    def __post_init__(self) -> None:
        self._allowances = Allowances()
        self._messages = Buckets(MESSAGES_BURST, MESSAGES_PER_S, HOSTS_MOST)
        self._bytes = Buckets(BYTES_BURST, BYTES_PER_S, HOSTS_MOST)
        self.series = Series()
        """Messages that were held back, by kind."""
        for kind in MessageKind:
            self.series.declare(fam.HOST_THROTTLED, kind.value)

    async def read(self, host: str, message: agent_pb2.SessionRequest) -> None:
        """Return when the host's next message may be handled."""
        now = time.monotonic()
        wait_s = self._messages.charge(host, _messages_in(message), now)
        if wait_s := max(wait_s, self._bytes.charge(host, message.ByteSize(), now)):
            await asyncio.sleep(wait_s)

    def charge(self, host: str, kind: MessageKind, stored: list[Record]) -> None:
        """Take what a message has added to the log from its host's allowance.

        A host that joins or gets well may set off any number of waiting jobs, which is no doing of its own.
        """
        if kind in (MessageKind.HELLO, MessageKind.INVENTORY):
            stored = [record for record in stored if record.entity == f"host/{host}"]
        self.charge_bytes(host, kind, sum(len(record.payload) + len(record.message) for record in stored))

    def charge_bytes(self, host: str, kind: MessageKind, stored_bytes: int) -> None:
        """Take bytes that were stored beside the log from a host's allowance."""
        self._allowances.charge(host, kind, stored_bytes, Mono(time.monotonic()))

    def owed_s(self, host: str, kind: MessageKind) -> float:
        """Seconds for which a message of this kind is held back; 0: it is taken in now. Held back is counted."""
        owed_s = self._allowances.owed_s(host, kind, Mono(time.monotonic()))
        if owed_s:
            self.series.add(fam.HOST_THROTTLED, kind.value)
            self.driver.feed(HostOverRate(host, kind.value, PER_HOUR[kind]))
        return owed_s

    async def take_turn(self, host: str, kind: MessageKind) -> None:
        """Return when a message that must not be lost may be handled: ``HELD_S`` later while its host owes."""
        await asyncio.sleep(min(self.owed_s(host, kind), HELD_S))


class HeldInventory:
    """Keeps the newest inventory of a session back for as long as its host owes for earlier ones."""

    def __init__(self, pacing: HostPacing, host: str) -> None:
        self._pacing = pacing
        self._host = host
        self._newest: host_pb2.Inventory | None = None

    def admit(self, beat: agent_pb2.Heartbeat) -> None:
        """Leave or put into a heartbeat the inventory that is to be taken in now, if any."""
        if beat.HasField("inventory"):
            self._newest = host_pb2.Inventory()
            self._newest.CopyFrom(beat.inventory)
        if self._newest is None:
            return
        if self._pacing.owed_s(self._host, MessageKind.INVENTORY):
            beat.ClearField("inventory")
        else:
            beat.inventory.CopyFrom(self._newest)
            self._newest = None
