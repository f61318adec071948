"""Reads ranks' output for the controller: from an offset, the last lines, as it grows, or the lines with a text."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

import anyio

from holdfast._daemon.abandonable import Late, Threads
from holdfast._session.reports import WorkerId
from holdfast.v1 import agent_pb2, job_pb2
from holdfast_agent.core.launch.environment import HostFacts, log_paths, output_directory
from holdfast_agent.shell.base.inotify import FileWatch
from holdfast_agent.shell.output.archive_reader import ArchivedStream, NoArchive, archived_stream
from holdfast_agent.shell.output.line_search import Found, LineSearch, SearchedLog
from holdfast_agent.shell.output.log_reader import LogFile, Wanted
from holdfast_agent.shell.session.assignment_checks import is_worker
from holdfast_agent.shell.users.accounts import Accounts, NoAccount

CHUNK_BYTES = 128 << 10
READS_MOST, READS_OF_ONE_JOB = 16, 2
"""Reads at a time: those of one job's files, which its ranks can make as slow as they like, hold up no other job's."""
READ_S = 20.0
SEARCH_S = 120.0
"""A search ends when reading and searching have taken so long."""
COALESCE_S = 0.02
"""A rank that prints often costs one message for this time, not one per line."""
LOOK_AGAIN_S = 1.0
"""Followed files are looked at this often even where the kernel reports no change (network file systems)."""

EARLY_S = 3.0
"""A request to follow may overtake the assignment that it is about: they come on different connections."""

IsOver = Callable[[WorkerId, int, int], bool]


@dataclass
class Reading:
    """One stream that the controller has opened; ``credit`` is how many bytes it takes now."""

    id: int
    credit: int
    job: str
    write: Callable[[agent_pb2.TransferRequest], Awaitable[None]]
    more: asyncio.Event = field(default_factory=asyncio.Event)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    async def send(self, data: bytes, offset: int, *, stderr: bool = False, lines: Sequence[int] = ()) -> int:
        """Send it once there is credit; returns the offset of what follows."""
        while self.credit <= 0:
            self.more.clear()
            await self.more.wait()
        self.credit -= len(data)
        chunk = agent_pb2.TransferChunk(id=self.id, offset=offset, data=data, stderr=stderr, line_offsets=lines)
        await self.write(agent_pb2.TransferRequest(chunk=chunk))
        return offset + len(data)

    async def wait(self, at_most_s: float) -> None:
        """Return when there may be more to read or more credit, or after ``at_most_s``."""
        with anyio.move_on_after(at_most_s):
            await self.more.wait()


class OutputReader:
    """Sends ranks' output; ``is_over`` says whether a rank of a generation will write no more."""

    def __init__(self, facts: HostFacts, is_over: IsOver, accounts: Accounts) -> None:
        self._facts = facts
        self._is_over = is_over
        self._accounts = accounts
        self._watch = FileWatch()
        self._threads = Threads(READS_OF_ONE_JOB, READS_MOST)

    def close(self) -> None:
        """Watch no more files; reads that are under way are abandoned."""
        self._watch.close()
        self._threads.close()

    async def read(self, asked: agent_pb2.OpenLog, reading: Reading) -> agent_pb2.TransferEnd:
        """Send a rank's output, as much as was asked for."""
        key = WorkerId(asked.job_id, asked.worker)
        if not is_worker(key):
            return ended(f"{key} names no worker.")
        if asked.archive_uri:
            return await self._read_archive(asked, reading)
        paths = log_paths(self._facts, key, asked.generation, asked.rank)
        path = paths[asked.stream == job_pb2.LOG_STREAM_STDERR]
        try:
            file = await self._open(asked, reading, key, path)
            if file is None:
                problem = f"{self._facts.name} has no output of rank {asked.rank} of generation {asked.generation}."
                return ended(problem, missing=True)
            with self._watch.watched(path, reading.more):
                if asked.contains:
                    searched = SearchedLog(file, _search(asked))
                    return await self._send_found(asked, reading, key, searched)
                await self._send_all(asked, reading, key, file)
        except Late:
            return ended(f"{self._facts.name}: {path} could not be read within {READ_S:g} s; try again later.")
        except OSError as error:
            return ended(f"{self._facts.name}: {path}: {error.strerror}.")
        return ended()

    async def _read_archive(self, asked: agent_pb2.OpenLog, reading: Reading) -> agent_pb2.TransferEnd:
        """Send what the archive has of a rank's output, with the rights of the job's account."""
        stream = "err" if asked.stream == job_pb2.LOG_STREAM_STDERR else "out"
        name, base = f"{asked.worker}.r{asked.rank}.{stream}", output_directory(asked.archive_uri)
        if not os.path.isabs(base):
            return ended(f"{base} is no path.")
        try:
            user = await self._threads.call(asked.job_id, READ_S, self._accounts.look_up, asked.run_as)
            opened = archived_stream(base, asked.job_id, asked.generation, name, _wanted(asked), user)
            async with opened as archived:
                far = await self._send_archived(asked, archived, reading)
        except Late:
            return ended(
                f"{self._facts.name}: no thread could read for the job within {READ_S:g} s; try again later."
            )
        except (NoAccount, NoArchive) as problem:
            return ended(f"{self._facts.name}: {problem}." if str(problem) else "", missing=not str(problem))
        end = ended(far)
        end.archived.FromMilliseconds(archived.changed_ms)
        return end

    async def _send_archived(self, asked: agent_pb2.OpenLog, archived: ArchivedStream, reading: Reading) -> str:
        """Send all of it, or the lines that are looked for, in bounded time; a sentence where that was not enough."""
        if not asked.contains:
            while (piece := await archived.piece())[1]:
                await reading.send(piece[1], piece[0])
            return ""
        search, left_s, end = _search(asked), SEARCH_S, asked.offset
        while left_s > 0:
            began = anyio.current_time()
            offset, data = 0, b""
            with anyio.move_on_after(left_s) as looked:
                offset, data = await archived.piece()
            if looked.cancelled_caught:
                break
            found = await self._threads.call(asked.job_id, READ_S, _searched, search, offset, data)
            left_s -= anyio.current_time() - began
            await self._send_lines(found, reading)
            if not data:
                return ""
            end = search.position if search.position is not None else offset + len(data)
        return self._far(end)

    def _far(self, position: int) -> str:
        far = f"{self._facts.name}: searched for {SEARCH_S:g} s, up to byte {position}"
        return f"{far}; search from there, or with --since."

    async def _open(self, asked: agent_pb2.OpenLog, reading: Reading, key: WorkerId, path: str) -> LogFile | None:
        """The file, waited for where it is followed and may still come."""
        wanted = _wanted(asked)
        patience = anyio.current_time() + (EARLY_S if asked.follow else 0.0)
        while True:
            over = anyio.current_time() >= patience and self._is_over(key, asked.generation, asked.rank)
            try:
                return await self._threads.call(key.job, READ_S, LogFile, path, wanted)
            except FileNotFoundError:
                if over or not asked.follow:
                    return None
            await reading.wait(0.2)

    async def _send_all(self, asked: agent_pb2.OpenLog, reading: Reading, key: WorkerId, file: LogFile) -> None:
        while True:
            reading.more.clear()
            if reading.credit <= 0:
                await reading.more.wait()
                continue
            over = self._is_over(key, asked.generation, asked.rank)  # before the read, so that the read is the last
            limit = min(CHUNK_BYTES, reading.credit)
            offset, data = await self._threads.call(key.job, READ_S, file.read, limit)
            if data:
                await reading.send(data, offset)
            elif over or not asked.follow:
                return
            else:
                await reading.wait(LOOK_AGAIN_S)
                await anyio.sleep(COALESCE_S)

    async def _send_found(
        self, asked: agent_pb2.OpenLog, reading: Reading, key: WorkerId, log: SearchedLog
    ) -> agent_pb2.TransferEnd:
        """Send the lines that are looked for, in bounded time."""
        while asked.follow or log.spent_s < SEARCH_S:
            reading.more.clear()
            over = self._is_over(key, asked.generation, asked.rank)
            found = await self._threads.call(key.job, READ_S, log.read)
            if found is not None:
                await self._send_lines([found], reading)
            elif not log.more and (over or not asked.follow):
                await self._send_lines(log.last(), reading)
                return ended()
            elif not log.more:
                await reading.wait(LOOK_AGAIN_S)
        await self._send_lines(log.unread(), reading)
        return ended(self._far(log.position))

    async def _send_lines(self, found: Iterable[Found], reading: Reading) -> None:
        for each in found:
            await reading.send(each.data, each.offsets[0], lines=each.offsets)


def _wanted(asked: agent_pb2.OpenLog) -> Wanted:
    return Wanted(
        offset=asked.offset,
        tail_lines=asked.tail_lines if asked.HasField("tail_lines") else None,
        since_ms=asked.since.ToMilliseconds() if asked.HasField("since") else None,
        end=asked.end_offset or None,
    )


def _search(asked: agent_pb2.OpenLog) -> LineSearch:
    return LineSearch(asked.contains, ignore_case=asked.ignore_case)


def _searched(search: LineSearch, offset: int, data: bytes) -> list[Found]:
    """Lines of the next piece, or of the end where it has no bytes."""
    return search.feed(offset, data) if data else search.finish()


def ended(problem: str = "", *, missing: bool = False) -> agent_pb2.TransferEnd:
    """How a stream ended: with a sentence if it is not whole, ``missing`` where there is nothing of it."""
    return agent_pb2.TransferEnd(problem=problem, missing=missing)
