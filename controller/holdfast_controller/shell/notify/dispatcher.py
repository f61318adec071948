"""The postman: turns what the log says into letters, keeps them durably, and delivers them.

It reads behind the writer and holds nobody up: what it has read of the log, and the letters made of it, are kept in
one transaction, so that a restart finds each piece of news either in the log still to be read or as a letter. A
letter is forgotten once it is delivered or given up. A death in between delivers it again, with the same id.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any

from holdfast.errors import StoreError
from holdfast_controller.core.messages.notice import TELLING, notice_of
from holdfast_controller.core.outbox import Letter, Mailboxes
from holdfast_controller.core.step.commands import NotificationFailed
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.notify.channels import Channels
from holdfast_controller.shell.notify.outbox_store import Letters
from holdfast_controller.shell.notify.render import body_of
from holdfast_controller.shell.notify.sender import NotDelivered, Sender
from holdfast_controller.shell.store import codec
from holdfast_controller.shell.store.store import Record

log = logging.getLogger(__name__)

_BATCH = 500
_CURSOR_EVERY = 1_000
"""Events without news after which it is noted that they were read."""
_TYPES = tuple(kind.__name__ for kind in TELLING)


class Postman:
    """Delivers the notifications of one controller. Make it before the driver runs; ``run`` it beside."""

    def __init__(self, driver: Driver, channels: Channels, cluster_name: str, retry_for_s: float) -> None:
        self._driver = driver
        self._channels = channels
        self._name = cluster_name
        self._letters = Letters(driver.store)
        self._boxes = Mailboxes(retry_for_s)
        self._sender = Sender()
        self._fresh: list[Record] = []
        self._bell = asyncio.Event()
        self._read = 0
        """Sequence up to which the log was read."""
        self._kept = 0
        """The same, as it is kept."""
        self._seen = 0
        """Newest event that was published."""
        self.delivered = 0
        """Since the start."""

    @property
    def waiting(self) -> int:
        """Notifications that are not delivered yet."""
        return len(self._boxes)

    @property
    def failing(self) -> int:
        """Receivers whose last delivery failed."""
        return self._boxes.failing

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as deliveries:
                await self._catch_up()
                while True:
                    self._bell.clear()
                    await self._read_fresh()
                    now = time.monotonic()
                    for letter in self._boxes.take(now):
                        deliveries.create_task(self._deliver(letter))
                    due = self._boxes.next_due(now)
                    try:
                        async with asyncio.timeout(None if due is None else max(due - now, 0.0)):
                            await self._bell.wait()
                    except TimeoutError:
                        pass
        finally:
            await self._sender.close()
            # So that a channel that is new at the next start is not told of what is over. Lost, it costs only that.
            with contextlib.suppress(StoreError):
                await self._call(self._letters.keep, self._read, [])

    def on_published(self, records: list[Record]) -> None:
        """Queue what receivers may want of a commit's records."""
        if records:
            self._seen = records[-1].sequence
        self._fresh += [record for record in records if record.type in _TYPES]
        if self._fresh or (records and records[-1].sequence - self._kept >= _CURSOR_EVERY):
            self._bell.set()

    async def _catch_up(self) -> None:
        """What was not delivered when the last controller ended, and what it had not read."""
        self._read, waiting = await self._call(self._letters.open)
        self._kept = self._read
        await self._post(waiting)
        while records := await self._call(self._driver.store.read_types, _TYPES, self._read, _BATCH):
            await self._take_in(records, records[-1].sequence)

    async def _read_fresh(self) -> None:
        records, self._fresh = self._fresh, []
        await self._take_in([record for record in records if record.sequence > self._read], self._seen)

    async def _take_in(self, records: list[Record], until: int) -> None:
        new = [letter for record in records for letter in self._written(record)]
        read = max(self._read, until)
        if new or read - self._kept >= _CURSOR_EVERY:
            await self._call(self._letters.keep, read, new)
            self._kept = read
        self._read = read
        await self._post(new)

    def _written(self, record: Record) -> list[Letter]:
        job = self._driver.cluster.jobs.get(record.entity.removeprefix("job/"))
        if job is None or not self._channels.listens(job):
            return []
        notice = notice_of(codec.load_event(record.type, record.version, record.payload), job)
        sinks = self._channels.sinks(notice, job) if notice is not None else []
        if notice is None or not sinks:
            return []
        body = body_of(record, notice, job, self._name)
        return [Letter(record.sequence, sink, job.id, notice.name, body) for sink in sinks]

    async def _post(self, letters: list[Letter]) -> None:
        now = time.monotonic()
        refused = [letter for letter in letters if not self._boxes.put(letter, now)]
        await self._give_up(refused, "too many notifications wait")

    async def _deliver(self, letter: Letter) -> None:
        target = self._channels.target(letter.sink, self._driver.cluster.jobs.get(letter.job_id))
        try:
            if target is None:
                raise NotDelivered("the cluster's settings no longer allow it")
            await self._sender.send(target, letter)
        except NotDelivered as error:
            to = target.shown if target is not None else letter.sink
            fields = {"job": letter.job_id, "notice": letter.kind, "to": to, "problem": str(error)}
            log.warning("notification_failed", extra={"fields": fields})
            given_up = self._boxes.failed(letter, time.monotonic(), for_good=target is None)
            await self._give_up(given_up, str(error))
        else:
            self._boxes.delivered(letter)
            self.delivered += 1
            await self._call(self._letters.drop, [letter])
        self._bell.set()

    async def _give_up(self, letters: list[Letter], reason: str) -> None:
        if not letters:
            return
        await self._call(self._letters.drop, letters)
        for letter in letters:
            target = self._channels.target(letter.sink, self._driver.cluster.jobs.get(letter.job_id))
            to = target.shown if target is not None else letter.sink.partition(":")[2]
            self._driver.feed(NotificationFailed(letter.job_id, letter.kind, to, reason))

    async def _call(self, work: Any, *args: Any) -> Any:
        return await asyncio.wrap_future(self._driver.store.call(work, *args))
