"""Turns events of the log into notifications, keeps them in a durable outbox, and delivers them.

The dispatcher reads behind the log's writer and never delays it. Its position in the log and the entries made up to
there are stored in one transaction, so after a crash each notification is either still to be read from the log or
in the outbox. An entry is dropped once delivered or given up; a crash in between delivers it again, with the same id.
Entries about the cluster are gathered (see ``core.digest``) and sent as one message, for which they stay stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Any

from holdfast._daemon import log
from holdfast.errors import StoreError
from holdfast_controller.core.digest import Batch, Digest
from holdfast_controller.core.lifecycle.other_hosts import schedulable_hosts
from holdfast_controller.core.messages.cluster import CLUSTER_TELLING, news_of
from holdfast_controller.core.messages.notice import TELLING, notice_of
from holdfast_controller.core.outbox import Outbox, OutboxEntry
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView
from holdfast_controller.core.step.commands import NotificationFailed
from holdfast_controller.core.views.job_summary import summary_of
from holdfast_controller.shell.driver import Driver, now
from holdfast_controller.shell.notify.channels import CLUSTER_SINK, Channels
from holdfast_controller.shell.notify.outbox_store import OutboxStore
from holdfast_controller.shell.notify.render import body_of, digest_of, item_of
from holdfast_controller.shell.notify.sender import NotDelivered, Sender
from holdfast_controller.shell.store import codec
from holdfast_controller.shell.store.records import Record

_BATCH = 500
_RECEIVERS_MOST = 100
NO_ROOM = "too many notifications wait"
_CURSOR_EVERY = 1_000
"""Events without a notification after which the position is stored."""
_CLUSTER_TYPES = frozenset(codec.stored_name(kind) for kind in CLUSTER_TELLING)
_TYPES = (*(codec.stored_name(kind) for kind in TELLING), *_CLUSTER_TYPES)


class Dispatcher:
    """Delivers the notifications of one controller. Create it before the driver runs."""

    def __init__(self, driver: Driver, channels: Channels, cluster_name: str, retry_for_s: float) -> None:
        self._driver = driver
        self._channels = channels
        self._name = cluster_name
        self._stored = OutboxStore(driver.store)
        self._outbox = Outbox(retry_for_s)
        self._digest = Digest()
        self._batches: dict[str, Batch] = {}
        """Digests that are being delivered, by receiver."""
        self._sender = Sender()
        self._fresh: list[Record] = []
        self._wake = asyncio.Event()
        self._read = 0
        """Sequence up to which the log was read."""
        self._kept = 0
        """The same, as last stored."""
        self._seen = 0
        """Sequence of the newest published event."""
        self.given_up: dict[str, tuple[int, str]] = {}
        """By receiver that can't be reached: how many of its notifications were given up since, and why."""
        self.delivered = 0
        """Deliveries since the start."""

    def change(self, channels: Channels, retry_for_s: float) -> None:
        """From now on deliver to these receivers, and retry for so long."""
        self._channels, self._outbox.retry_for_s = channels, retry_for_s
        self._wake.set()

    @property
    def waiting(self) -> int:
        """Number of notifications not yet delivered."""
        return len(self._outbox) + len(self._digest)

    @property
    def failing(self) -> int:
        """Number of receivers whose last delivery failed."""
        return self._outbox.failing

    async def run(self) -> None:
        """Deliver until cancelled."""
        try:
            async with asyncio.TaskGroup() as deliveries:
                await self._catch_up()
                while True:
                    self._wake.clear()
                    await self._read_fresh()
                    now = time.monotonic()
                    await self._post_digests(now)
                    for entry in self._outbox.take(now):
                        deliveries.create_task(self._deliver(entry))
                    times = (self._outbox.next_due(now), self._digest.next_due())
                    due = min((each for each in times if each is not None), default=None)
                    try:
                        async with asyncio.timeout(None if due is None else max(due - now, 0.0)):
                            await self._wake.wait()
                    except TimeoutError:
                        pass
        finally:
            await self._sender.close()
            # A channel added before the next start must not hear of older events; nothing else depends on it.
            with contextlib.suppress(StoreError):
                await self._call(self._stored.keep, self._read, [])

    def on_published(self, records: list[Record]) -> None:
        """Take note of a commit's records; ``run`` reads those that may have receivers."""
        if records:
            self._seen = records[-1].sequence
        self._fresh += [record for record in records if record.type in _TYPES]
        if self._fresh or (records and records[-1].sequence - self._kept >= _CURSOR_EVERY):
            self._wake.set()

    async def _catch_up(self) -> None:
        """Queue what the last controller had not delivered, then read the log it had not read."""
        self._read, waiting = await self._call(self._stored.open)
        self._kept = self._read
        await self._post(waiting)
        while records := await self._call(self._driver.store.read_types, _TYPES, self._read, _BATCH):
            await self._take_in(records, records[-1].sequence)

    async def _read_fresh(self) -> None:
        records, self._fresh = self._fresh, []
        await self._take_in([record for record in records if record.sequence > self._read], self._seen)

    async def _take_in(self, records: list[Record], until: int) -> None:
        await self._driver.bring({record.entity.removeprefix("job/") for record in records})
        new = [entry for record in records for entry in self._written(record)]
        read = max(self._read, until)
        if new:
            # They say how the job is now, and nothing is said before it is durable.
            await self._driver.settled()
        if new or read - self._kept >= _CURSOR_EVERY:
            await self._call(self._stored.keep, read, new)
            self._kept = read
        self._read = read
        await self._post(new)

    def _written(self, record: Record) -> list[OutboxEntry]:
        if record.type in _CLUSTER_TYPES:
            return self._written_of_cluster(record)
        job = self._driver.cluster.jobs.get(record.entity.removeprefix("job/"))
        if job is None or not self._channels.listens(job):
            return []
        notice = notice_of(codec.load_event(record.type, record.version, record.payload), job)
        sinks = self._channels.sinks(notice, job) if notice is not None else []
        if notice is None or not sinks:
            return []
        cluster, quotas = self._driver.cluster, self._driver.reactor.policies.quotas
        queue = QueueView(cluster, schedulable_hosts(cluster), quotas, at=now())
        body = body_of(record, notice, job, self._name, summary_of(cluster, job, queue, now()))
        return [OutboxEntry(record.sequence, sink, job.id, notice.name, body) for sink in sinks]

    def _written_of_cluster(self, record: Record) -> list[OutboxEntry]:
        news = news_of(codec.load_event(record.type, record.version, record.payload), record.message)
        if news is None or not (sinks := self._channels.cluster_sinks(news.kind)):
            return []
        body = item_of(record, news)
        return [OutboxEntry(record.sequence, sink, news.subject, news.kind.name, body) for sink in sinks]

    async def _post(self, entries: list[OutboxEntry]) -> None:
        now = time.monotonic()
        refused: list[OutboxEntry] = []
        needless: list[OutboxEntry] = []
        for entry in entries:
            if entry.sink.startswith(f"{CLUSTER_SINK}:"):
                item = json.loads(entry.body)
                needless += self._digest.put(entry, item["message"], now, answers=item["answers"])
            else:
                refused += self._outbox.put(entry, now, self._party(entry))
        if needless:
            await self._call(self._stored.drop, needless)
        await self._give_up(refused, NO_ROOM)

    def _party(self, entry: OutboxEntry) -> str:
        """The user whose job it is about; empty where it is about no job."""
        job = self._driver.cluster.jobs.head(entry.subject)
        return job.owner if job is not None else ""

    async def _post_digests(self, now: float) -> None:
        for batch in self._digest.take(now):
            self._batches[batch.sink] = batch
            entry = digest_of(batch, self._name)
            await self._give_up(self._outbox.put(entry, now), NO_ROOM)

    async def _deliver(self, entry: OutboxEntry) -> None:
        await self._driver.bring((entry.subject,))
        target = self._channels.target(entry.sink, self._driver.cluster.jobs.get(entry.subject))
        try:
            if target is None:
                raise NotDelivered("the cluster's settings no longer allow it")
            await self._sender.send(target, entry)
        except NotDelivered as error:
            to = target.shown if target is not None else entry.sink
            log.warning("notification.failed", subject=entry.subject, notice=entry.kind, to=to, error=str(error))
            given_up = self._outbox.failed(entry, time.monotonic(), for_good=target is None)
            await self._give_up(given_up, str(error))
        else:
            self._outbox.delivered(entry)
            self.given_up.pop(target.shown, None)
            self.delivered += 1
            await self._call(self._stored.drop, self._settled(entry))
        self._wake.set()

    async def _give_up(self, entries: list[OutboxEntry], reason: str) -> None:
        if not entries:
            return
        await self._call(self._stored.drop, [kept for entry in entries for kept in self._settled(entry)])
        await self._driver.bring({entry.subject for entry in entries})
        for entry in entries:
            target = self._channels.target(entry.sink, self._driver.cluster.jobs.get(entry.subject))
            to = target.shown if target is not None else entry.sink.partition(":")[2]
            log.warning("notification.given_up", subject=entry.subject, notice=entry.kind, to=to, error=reason)
            if to in self.given_up or len(self.given_up) < _RECEIVERS_MOST:
                self.given_up[to] = (self.given_up.get(to, (0, ""))[0] + 1, reason)
            self._driver.feed(NotificationFailed(entry.subject, entry.kind, to, reason))

    def _settled(self, entry: OutboxEntry) -> list[OutboxEntry]:
        """The stored entries that ``entry`` stood for, which was delivered or given up."""
        batch = self._batches.pop(entry.sink, None)
        if batch is None:
            return [entry]
        self._digest.settled(entry.sink)
        return batch.entries

    async def _call(self, work: Any, *args: Any) -> Any:
        return await asyncio.wrap_future(self._driver.store.call(work, *args))
