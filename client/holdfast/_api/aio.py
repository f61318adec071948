"""``holdfast.AsyncClient``: submit jobs, wait for them and read what they print, in asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import time
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Unpack

from holdfast import client as sdk
from holdfast import settings
from holdfast._api.arguments import Arguments, Duration, labels_of, ranks_of, seconds_of, since_of
from holdfast._api.job_view import JobView
from holdfast._api.log_lines import LogLines
from holdfast._api.results import Event, Host, LogLine, Result, event_of, host_of, result_of
from holdfast._api.submission import JobSource, guessing, job_from, refused
from holdfast._base.proto_values import timestamp
from holdfast._sdk.transport import CALL_TIMEOUT_S
from holdfast.cli.kit.job_filters import job_filter, unknown_state
from holdfast.cli.kit.job_names import job_of, on_job
from holdfast.cli.kit.to_the_end import ended_job, patiently
from holdfast.cli.submission.packaging import packing
from holdfast.errors import InvalidInput, Violation, WaitTimeout, WrongState
from holdfast.v1 import job_pb2

if TYPE_CHECKING:
    from holdfast._sdk.reconnect import LinkCallback

Settings = settings.ClientSettings | str | os.PathLike[str] | None


class AsyncClient:
    """A cluster, from asyncio. Finds it as the command line does; ``settings`` is another ``client.toml``.

    Connects with the first call. Use it as ``async with holdfast.AsyncClient() as client``, or call ``close`` at the
    end; all calls are made from one event loop. Calls raise ``holdfast.errors.HoldfastError``; each error says what to
    do. Making one raises ``ConfigError`` where no cluster is known.

    A job is named by its id, the beginning of it, its display name, or the ``AsyncJob`` that another call gave.
    """

    def __init__(self, settings: Settings = None) -> None:
        self._settings = load(settings)
        self._calls: sdk.Client | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    async def __aenter__(self) -> AsyncClient:
        await self.calls()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._settings.controller}{' closed' if self._closed else ''}>"

    async def close(self) -> None:
        """Close the connection; calls that are going on fail. Jobs don't notice. More than once does no harm."""
        self._closed = True
        calls, self._calls = self._calls, None
        if calls is not None:
            await calls.__aexit__(None, None, None)
            # The frames of an error may hold it for long, and with the channel gRPC's threads and sockets.
            vars(calls).clear()

    async def calls(self) -> sdk.Client:
        """Every call of the API, with its messages: secrets, users, hangs, draining of hosts. Raises ``WrongState``."""
        if self._closed:
            raise _closed()
        async with self._opening:
            if self._calls is None:
                opened = await sdk.Client(self._settings).__aenter__()
                if self._closed:
                    await opened.__aexit__(None, None, None)
                    raise _closed()
                self._calls = opened
            return self._calls

    # Jobs

    @guessing
    async def submit(self, job: JobSource | None = None, **asked: Unpack[Arguments]) -> AsyncJob:
        """Submit a job; it survives power loss once this returns. Raises ``InvalidInput`` that lists what is wrong.

        ``job`` and all other arguments are those of ``holdfast.Client.submit``.
        """
        said: list[str] = []
        created = await self._submit(job, asked, said.append)
        for sentence in said:
            warnings.warn(sentence, stacklevel=2)
        return AsyncJob(self, created)

    async def _submit(
        self, job: JobSource | None, asked: Arguments, on_warning: Callable[[str], None]
    ) -> job_pb2.CustomJob:
        calls = await self.calls()
        with packing() as packed:
            message = await asyncio.to_thread(job_from, job, asked, packed)
            for bundle in packed.bundles:
                await calls.upload_bundle(bundle)
        try:
            return await calls.create_job(message, request_id=asked.get("request_id"), on_warning=on_warning)
        except InvalidInput as error:
            raise refused(error, job, asked) from None

    async def job(self, job: str | JobView) -> AsyncJob:
        """The job as it is now, with its workers. Raises ``NotFound`` for none, and for a name of several."""
        return AsyncJob(self, await job_of(await self.calls(), word_of(job)))

    @guessing
    async def jobs(
        self,
        *,
        name: str | None = None,
        state: str | Iterable[str] = (),
        owner: str | None = None,
        labels: Mapping[str, str] | None = None,
        active: bool = False,
        since: Duration | datetime.datetime | None = None,
        limit: int | None = None,
    ) -> list[AsyncJob]:
        """Jobs that match all of these, in the order of their submission, without their workers.

        ``name`` is a part of the display name, or a pattern with ``*``; ``state`` is one or several words such as
        ``RUNNING``; ``active`` leaves out what has ended; ``since`` is a time, or how long ago at most; ``limit``
        keeps the newest so many. Raises ``InvalidInput`` for a state that there isn't.
        """
        found = await self._list(name, state, owner, labels, active, since, limit)
        return [AsyncJob(self, message) for message in found]

    async def _list(
        self,
        name: str | None,
        state: str | Iterable[str],
        owner: str | None,
        labels: Mapping[str, str] | None,
        active: bool,
        since: Duration | datetime.datetime | None,
        limit: int | None,
    ) -> list[job_pb2.CustomJob]:
        states = [state] if isinstance(state, str) else list(state)
        _check_states(states)
        filter = job_filter(
            now=time.time(),
            name=name,
            since=since_of(since, "The call of jobs"),
            label=labels_of(labels, "The call of jobs"),
            state=states,
            owner=owner,
            active=active,
        )
        calls = await self.calls()
        if limit is not None:
            return await calls.newest_jobs(limit, filter)
        return [message async for message in calls.list_jobs(filter)]

    async def wait(self, job: str | JobView, timeout: Duration | None = None) -> Result:
        """Wait until the job has ended, however often the controller restarts meanwhile.

        Raises ``WaitTimeout``, a ``TimeoutError``, after ``timeout``; the job goes on. Leaving early ends no job.
        """
        return result_of(await self._ended(job, timeout))

    async def _ended(self, job: str | JobView, timeout: Duration | None) -> job_pb2.CustomJob:
        seconds = seconds_of("timeout", timeout, "The call of wait")
        try:
            # To look once takes as long as a call takes: with a timeout of 0 one asks whether it has ended.
            async with asyncio.timeout(seconds or (None if seconds is None else CALL_TIMEOUT_S)):
                calls, message = await self._found(job)
                if seconds == 0 and message.state not in sdk.TERMINAL:
                    raise TimeoutError
                return await ended_job(calls, message, None)
        except TimeoutError:
            word = word_of(job)
            fix = f"It goes on: wait again, or end it with client.cancel({word!r})."
            raise WaitTimeout(f"Job {word} has not ended within {seconds:.12g} s.", fix=fix) from None

    async def _found(self, job: str | JobView) -> tuple[sdk.Client, job_pb2.CustomJob]:
        """The job, for a call that goes on over an outage. Only where it was seen before, one may go on already."""
        calls = await self.calls()
        if isinstance(job, JobView):
            return calls, await patiently(calls, job.id, None)
        return calls, await job_of(calls, job)

    @guessing
    async def logs(
        self,
        job: str | JobView,
        *,
        follow: bool = False,
        ranks: int | Iterable[int] = (),
        workers: str | Iterable[str] = (),
        generation: int | None = None,
        tail: int | None = None,
        since: Duration | datetime.datetime | None = None,
        on_link: LinkCallback | None = None,
    ) -> AsyncGenerator[LogLine]:
        """Lines that the job's ranks have printed, each rank's in order; with ``follow`` until the job has ended.

        Without ``ranks`` or ``workers`` of all. ``generation`` counts launches from 1; the newest unless given, and
        with ``follow`` those after it too. ``tail`` is in lines of each stream. Goes on over a restart of the
        controller; ``on_link`` is called with the error, and with None when it is back.
        """
        async for lines in self._log_batches(job, follow, ranks, workers, generation, tail, since, on_link):
            for line in lines:
                yield line

    async def _log_batches(
        self,
        job: str | JobView,
        follow: bool,
        ranks: int | Iterable[int],
        workers: str | Iterable[str],
        generation: int | None,
        tail: int | None,
        since: Duration | datetime.datetime | None,
        on_link: LinkCallback | None,
    ) -> AsyncGenerator[list[LogLine]]:
        calls, message = await self._found(job)
        ago = since_of(since, "The call of logs")
        at = ago.timestamp() if isinstance(ago, datetime.datetime) else None if ago is None else time.time() - ago
        chunks = calls.stream_logs(
            message.id,
            workers=[workers] if isinstance(workers, str) else list(workers),
            ranks=ranks_of(ranks, "The call of logs"),
            generation=generation or 0,
            follow=follow,
            tail_lines=tail,
            since=None if at is None else timestamp(at),
            on_link=on_link,
        )
        lines = LogLines()
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                if whole := lines.take(chunk):
                    yield whole
        if rest := lines.finish():
            yield rest

    @guessing
    async def events(
        self,
        job: str | JobView,
        *,
        follow: bool = False,
        after: int = 0,
        on_link: LinkCallback | None = None,
    ) -> AsyncGenerator[Event]:
        """Events of the job so far; with ``follow`` also those to come, until it has ended.

        ``after`` is the cursor of the last event that is known already. None is missed or given twice, also over a
        restart of the controller.
        """
        calls, message = await self._found(job)
        if not follow and message.cursor <= after:
            return
        async with contextlib.aclosing(calls.watch_job(message.id, after, on_link=on_link)) as history:
            async for event in history:
                yield event_of(event)
                if not follow and event.cursor >= message.cursor:
                    return

    async def cancel(self, job: str | JobView) -> AsyncJob:
        """Ask for the job's end: SIGTERM, and SIGKILL after its grace. Returns before its ranks are gone."""
        calls = await self.calls()
        return AsyncJob(self, (await on_job(calls, word_of(job), calls.cancel_job))[1])

    async def restart(self, job: str | JobView) -> AsyncJob:
        """Stop the gang and launch it again on the same hosts. Raises ``WrongState`` where it doesn't run."""
        calls = await self.calls()
        return AsyncJob(self, (await on_job(calls, word_of(job), calls.restart_job))[1])

    async def pause(self, job: str | JobView) -> AsyncJob:
        """Stop the gang and free its hosts until ``resume``; returns before that is done."""
        calls = await self.calls()
        return AsyncJob(self, (await on_job(calls, word_of(job), calls.pause_job))[1])

    async def resume(self, job: str | JobView) -> AsyncJob:
        """Queue a paused job again. Raises ``WrongState`` for one that isn't paused."""
        calls = await self.calls()
        return AsyncJob(self, (await on_job(calls, word_of(job), calls.resume_job))[1])

    async def delete(self, job: str | JobView) -> None:
        """Delete an ended job for good, its output on hosts too. Raises ``WrongState`` for one that has not ended."""
        calls = await self.calls()
        await on_job(calls, word_of(job), calls.delete_job)

    # Hosts

    async def hosts(self) -> list[Host]:
        """All hosts of the cluster, by name."""
        return [host_of(each) for each in await (await self.calls()).list_hosts()]


class AsyncJob(JobView):
    """A job of an ``AsyncClient``: its state when it was last asked for, and calls that act on it."""

    def __init__(self, client: AsyncClient, message: job_pb2.CustomJob) -> None:
        super().__init__(message)
        self._client = client

    async def refresh(self) -> AsyncJob:
        """Ask for the job again; this same object, as it is now."""
        self._message = (await self._client.job(self))._message
        return self

    async def wait(self, timeout: Duration | None = None) -> Result:
        """Wait for the end, as ``AsyncClient.wait``; the object shows the ended job then."""
        self._message = await self._client._ended(self, timeout)
        return result_of(self._message)

    @guessing
    def logs(
        self,
        *,
        follow: bool = False,
        ranks: int | Iterable[int] = (),
        workers: str | Iterable[str] = (),
        generation: int | None = None,
        tail: int | None = None,
        since: Duration | datetime.datetime | None = None,
    ) -> AsyncIterator[LogLine]:
        """Lines that its ranks have printed, as ``AsyncClient.logs``."""
        return self._client.logs(
            self,
            follow=follow,
            ranks=ranks,
            workers=workers,
            generation=generation,
            tail=tail,
            since=since,
        )

    @guessing
    def events(self, *, follow: bool = False, after: int = 0) -> AsyncIterator[Event]:
        """Events of its history, as ``AsyncClient.events``."""
        return self._client.events(self, follow=follow, after=after)

    async def cancel(self) -> AsyncJob:
        """Ask for its end; returns before its ranks are gone."""
        self._message = (await self._client.cancel(self))._message
        return self

    async def restart(self) -> AsyncJob:
        """Stop the gang and launch it again on the same hosts."""
        self._message = (await self._client.restart(self))._message
        return self


def load(given: Settings) -> settings.ClientSettings:
    """The settings to use. Raises ``ConfigError``."""
    return given if isinstance(given, settings.ClientSettings) else settings.load(Path(given) if given else None)


def word_of(job: str | JobView) -> str:
    """The word by which the controller finds the job."""
    if isinstance(job, JobView):
        return job.id
    if not isinstance(job, str):
        raise TypeError(f"{job!r:.80} is no job: give its id, its name, or a job that another call gave")
    return job


def _closed() -> WrongState:
    return WrongState("The client is closed.", fix="Make another: holdfast.AsyncClient()")


def _check_states(states: list[str]) -> None:
    for each in states:
        if wrong := unknown_state(each):
            raise InvalidInput([Violation("state", *wrong)], what="The call of jobs")
