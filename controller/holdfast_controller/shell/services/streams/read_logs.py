"""One StreamLogs call: which streams of which hosts, generation after generation, merged into one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable

from holdfast._base.dataclass import dataclass
from holdfast._base.proto_values import seconds, timestamp
from holdfast._sdk.log_position import log_end
from holdfast.errors import InvalidInput, Violation
from holdfast.v1 import agent_pb2, job_pb2
from holdfast_controller.core.model.gang import Member
from holdfast_controller.core.model.job import Job
from holdfast_controller.shell.calls.closable_queue import EndingQueue
from holdfast_controller.shell.calls.rpc import beside
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.services.streams.reading import End, Reading
from holdfast_controller.shell.services.streams.transfers import Transfers

STREAMS = (job_pb2.LOG_STREAM_STDOUT, job_pb2.LOG_STREAM_STDERR)
HOST_BACK_WITHIN_S = 30.0
"""How long a follower waits for a host whose stream broke before it says so and continues without it."""
NAMED_MOST = 5
"""Workers or ranks that a job hasn't, of those asked for, which are named in the refusal."""
READERS_MOST = 4
"""Hosts on which the archive is looked for."""


@dataclass(frozen=True)
class Source:
    """One stream of one rank of one generation."""

    member: Member
    rank: int
    host: str
    generation: int
    stream: job_pb2.LogStream.ValueType


Item = tuple[job_pb2.StreamLogsResponse, Reading | None]
"""A chunk, and the reading that is to be given credit for it."""


class LogReading:
    """Merges the sources of one request; bounded, so a slow reader slows only its own."""

    def __init__(
        self, driver: Driver, transfers: Transfers, request: job_pb2.StreamLogsRequest, reader: str
    ) -> None:
        self._driver = driver
        self._reader = reader
        self._transfers = transfers
        self._request = request
        self._workers, self._ranks = frozenset(request.workers), frozenset(request.ranks)
        self._job: Job = driver.cluster.jobs[request.id]
        self._waits = request.follow and not self._job.terminal
        """For hosts that are away: of a job that has ended nothing more comes."""
        self._queue: EndingQueue[Item] = EndingQueue()

    async def chunks(self) -> AsyncGenerator[job_pb2.StreamLogsResponse, None]:
        """The output, chunk by chunk, until everything asked for has been read."""
        self._check()
        async with beside(self._lead(), self._queue.end):
            while (item := await self._queue.get()) is not None:
                chunk, reading = item
                yield chunk
                if reading is not None:
                    # Only now has the follower taken it, so only now may more come.
                    self._transfers.credit(reading, len(chunk.data))

    def _check(self) -> None:
        names = sorted(self._workers.difference(member.name for member in self._job.gang.members))
        wrong = [
            Violation("workers", f"the job has no worker {name!r}", f"see: holdfast job show {self._job.id}")
            for name in names[:NAMED_MOST]
        ]
        ranks = sorted(self._ranks.difference(range(self._job.gang.rank_count)))
        wrong += [
            Violation("ranks", f"the job has no rank {rank}", f"ranks are 0 to {self._job.gang.rank_count - 1}")
            for rank in ranks[:NAMED_MOST]
        ]
        newest = max(self._job.generation, 1 if self._request.follow else 0)
        if not 0 <= self._request.generation <= newest:
            problem = f"the job has no generation {self._request.generation}"
            wrong.append(Violation("generation", problem, f"the newest is {self._job.generation}"))
        asked = self._request
        if asked.end_offset and (asked.follow or asked.end_offset < asked.offset):
            problem = "can't be combined with follow" if asked.follow else f"is before offset, {asked.offset}"
            wrong.append(Violation("end_offset", problem))
        if len(set(asked.contains) & set("\r\n")):
            wrong.append(Violation("contains", "must be within one line", "leave out line ends"))
        if wrong:
            raise InvalidInput(wrong)

    async def _lead(self) -> None:
        """Open every source of a generation, and of the next ones while following."""
        entity = f"job/{self._job.id}"
        bell = self._driver.watch(entity)
        opened: int | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    bell.clear()
                    for generation in self._openable(opened):
                        for source in self._sources(generation, first=opened is None):
                            tasks.create_task(self._read(source, first=opened is None))
                        opened = generation
                    if not self._request.follow or self._job.terminal:
                        break
                    await bell.wait()
        finally:
            self._driver.unwatch(entity, bell)

    def _openable(self, opened: int | None) -> range:
        """The generations to open now, when ``opened`` was the last; a follower gets every one that came since."""
        newest = self._job.generation
        if not self._request.follow:
            wanted = self._request.generation or newest
            return range(wanted, wanted + 1)
        launched = self._job.launched or bool(self._job.exits_now())
        first = opened + 1 if opened is not None else max(1, self._request.generation or newest)
        return range(first, newest + 1 if launched else newest)

    def _generation(self, member: Member, asked: int, *, first: bool) -> int | None:
        """The generation of a worker that belongs to the one asked for; None where it has no part in it.

        A worker that was relaunched alone is in one of its own, while the others stay in the gang's: a request for
        the newest gets each worker's own, and then later generations.
        """
        if first and not self._request.generation and asked == self._job.generation:
            return self._job.generation_of(member.index)
        return asked if self._job.single_launches.get(asked, member.index) == member.index else None

    def _sources(self, asked: int, *, first: bool) -> list[Source]:
        chosen = []
        for member in self._job.gang.members if self._job.places else ():
            if self._workers and member.name not in self._workers:
                continue
            generation = self._generation(member, asked, first=first)
            place = self._job.place_at(generation, member.index) if generation else None
            if generation is None or place is None:
                continue
            for rank in member.ranks:
                if not self._ranks or rank in self._ranks:
                    streams = self._request.streams or STREAMS
                    chosen += [Source(member, rank, place.host, generation, stream) for stream in streams]
        return chosen

    async def _read(self, source: Source, *, first: bool) -> None:
        """Read one source to its end; if the host goes away meanwhile, go on from there when it is back."""
        begin = offset = self._request.offset if first else 0
        while True:
            order = self._order(source, offset, first=first and offset == begin)
            if not await self._connected(source.host):
                await self._read_archive(source, order, f"{source.host} is not connected")
                return
            if order.contains and not self._transfers.searches(source.host):
                await self._say(source, offset, f"{source.host} can't search: its agent is of an older release")
                return
            reading = self._transfers.open(source.host, order, self._reader)
            if reading is None:
                await self._say(
                    source, offset, f"{source.host} cannot be read from at present: too much is being read there"
                )
                return
            try:
                while not isinstance(item := await reading.items.get(), End):
                    offset = log_end(item)
                    await self._queue.put((_chunk(source, item.offset, item.data, item.line_offsets), reading))
            finally:
                self._transfers.close(reading)
            if item.missing and not item.lost:
                await self._read_archive(source, order, item.problem)
                return
            if not item.lost:
                if item.problem:
                    await self._say(source, offset, item.problem)
                return

    async def _read_archive(self, source: Source, order: agent_pb2.OpenLog, why: str) -> None:
        """Read from the job's archive what its host doesn't give, by way of a host that has the archive."""
        gang, why, found = self._job.gang, why.rstrip("."), ""
        order.archive_uri, order.run_as, order.follow = gang.output_uri, gang.account, False
        for host in self._readers(source.host) if gang.output_uri else ():
            if order.contains and not self._transfers.searches(host):
                continue
            reading = self._transfers.open(host, order, self._reader)
            if reading is None:
                continue
            began = False
            archive = f"{why}; from the archive, read on {host}:"
            try:
                while not isinstance(item := await reading.items.get(), End):
                    if not began:
                        await self._note(source, item.offset, archive)
                    began = True
                    order.offset = log_end(item)
                    await self._queue.put((_chunk(source, item.offset, item.data, item.line_offsets), reading))
            finally:
                self._transfers.close(reading)
            if item.archived is not None and item.problem:
                await self._say(source, order.offset, item.problem)
                return
            if item.archived is not None:
                when = item.archived.strftime("%Y-%m-%d %H:%M:%S UTC")
                end = f"the archive ends here; it was written last at {when}"
                await self._note(source, order.offset, end if began else archive)
                return
            if began:
                order.ClearField("tail_lines")
                order.ClearField("since")
            found = item.problem.rstrip(".") or found
        if gang.output_uri:
            why = f"{why}; {found or 'no connected host has an archive of it'}"
        await self._say(source, order.offset, why)

    def _readers(self, own: str) -> list[str]:
        """Hosts to read the archive on: the rank's own, those of the job, then others; as many as are tried."""
        places = [place.host for place in self._job.places]
        hosts = dict.fromkeys((own, *places, *self._transfers.hosts))
        return [host for host in hosts if self._transfers.connected(host)][:READERS_MOST]

    async def _connected(self, host: str) -> bool:
        """Whether the host can be read from; a follower gives it some time to come back, unless it is lost."""
        known = self._driver.cluster.hosts.get(host)
        lost = known is None or known.lost
        if lost or not self._waits:
            return self._transfers.connected(host)
        return await self._transfers.connects(host, HOST_BACK_WITHIN_S)

    def _order(self, source: Source, offset: int, *, first: bool) -> agent_pb2.OpenLog:
        order = agent_pb2.OpenLog(
            job_id=self._job.id,
            generation=source.generation,
            worker=source.member.name,
            rank=source.rank,
            stream=source.stream,
            offset=offset,
            follow=self._request.follow,
            end_offset=self._request.end_offset,
            contains=self._request.contains,
            ignore_case=self._request.ignore_case,
        )
        if first and self._request.HasField("tail_lines"):
            order.tail_lines = self._request.tail_lines
        if first and self._request.HasField("since"):
            # The time of each line is its host's.
            behind_s = self._driver.cluster.presence_of(source.host).wrong_s
            order.since.CopyFrom(timestamp(max(seconds(self._request.since) - behind_s, 0.0)))
        return order

    async def _say(self, source: Source, offset: int, problem: str) -> None:
        chunk = _chunk(source, offset, b"")
        chunk.problem = problem
        await self._queue.put((chunk, None))

    async def _note(self, source: Source, offset: int, note: str) -> None:
        chunk = _chunk(source, offset, b"")
        chunk.note = note
        await self._queue.put((chunk, None))


def _chunk(source: Source, offset: int, data: bytes, lines: Iterable[int] = ()) -> job_pb2.StreamLogsResponse:
    return job_pb2.StreamLogsResponse(
        worker=source.member.name,
        rank=source.rank,
        generation=source.generation,
        stream=source.stream,
        offset=offset,
        data=data,
        line_offsets=lines,
    )
