"""``holdfast.Client``: submit jobs, wait for them and read what they print, from plain Python and from notebooks."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Unpack

from holdfast._api.aio import AsyncClient, Settings
from holdfast._api.arguments import Arguments, Duration
from holdfast._api.background import Background
from holdfast._api.job_view import JobView
from holdfast._api.results import Event, Host, LogLine, Result, result_of
from holdfast._api.submission import JobSource, guessing
from holdfast.v1 import job_pb2

if TYPE_CHECKING:
    from holdfast._sdk.reconnect import LinkCallback


class Client:
    """A cluster, from plain Python or a notebook. Finds it as the command line does; ``settings`` is another file.

    Connects with the first call. Use it as ``with holdfast.Client() as client``, or call ``close`` at the end: then
    neither a thread nor a socket is left. Any thread may call it, also where an event loop runs, as in a notebook.
    Calls raise ``holdfast.errors.HoldfastError``; each error says what to do. Making one raises ``ConfigError`` where
    no cluster is known. A call that is interrupted (Ctrl-C, "stop" in a notebook) ends no job.

    A job is named by its id, the beginning of it, its display name, or the ``Job`` that another call gave.
    """

    def __init__(self, settings: Settings = None) -> None:
        self._aio = AsyncClient(settings)
        self._background = Background()

    def __enter__(self) -> Client:
        self._background.run(self._aio.calls())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._aio).replace("AsyncClient", type(self).__name__, 1)

    def close(self) -> None:
        """Close the connection; calls of other threads that are going on fail. More than once does no harm."""
        self._background.close(self._aio.close)

    # Jobs

    @guessing
    def submit(self, job: JobSource | None = None, **asked: Unpack[Arguments]) -> Job:
        """Submit a job; it survives power loss once this returns. Raises ``InvalidInput`` that lists what is wrong.

        Either ``job``: the path of a YAML or JSON file, the same as a dict, or what ``holdfast.spec`` has read.
        Or ``command``: a list of words, or a line that is divided into words and that no shell reads, with these, as
        ``holdfast run`` has them:

        - ``replicas``: workers, 1 unless given; ``gpus``, ``cpus`` and ``memory_mb`` (MiB): of each worker;
        - ``gpu_type``: their model; ``gpu_partition_size``: a MIG profile; ``machine_type``: a class of hosts;
        - ``processes_per_worker``: ranks of each worker, one per GPU unless given, 1 for a launcher such as torchrun;
        - ``env``: variables of the ranks; a value of None carries the caller's own. PATH, LD_LIBRARY_PATH and those
          of an active conda or virtual environment are carried along;
        - ``workdir``: where the ranks start, the current directory unless given; it must exist on the hosts;
        - ``package``: a folder that is packed and sent along, in a copy of which the ranks start instead;
          ``requirements``: what to install for it, as in a requirements.txt;
        - ``max_restarts`` for each worker's failures (5); ``restart_on_hang``; ``hang_timeout``, learned unless given;
        - ``grace``: between SIGTERM and SIGKILL (10 s).

        For both: ``name`` to show, ``labels`` to find it by, ``project``, ``priority`` (1 to 3), ``timeout`` (longest
        run, 7 days), ``after`` (ids of jobs that it runs after, also ``"ID:any"`` and ``"ID:failed"``),
        ``pause_if_unmet`` (when one of those ends otherwise; else it fails), ``max_wait`` (for hosts, 24 h; 0 for
        ever), ``run_as`` (an account), ``secrets`` (variable → name of a secret, or path of a file on the host).
        Durations are seconds, ``"90s"``, ``"2h"`` or a timedelta.

        With the same ``request_id`` one job is made, however often this is called.
        """
        said: list[str] = []
        created = self._background.run(self._aio._submit(job, asked, said.append))
        for sentence in said:
            warnings.warn(sentence, stacklevel=3)
        return Job(self, created)

    def job(self, job: str | JobView) -> Job:
        """The job as it is now, with its workers. Raises ``NotFound`` for none, and for a name of several."""
        return Job(self, self._background.run(self._aio.job(job))._message)

    @guessing
    def jobs(
        self,
        *,
        name: str | None = None,
        state: str | Iterable[str] = (),
        owner: str | None = None,
        labels: Mapping[str, str] | None = None,
        active: bool = False,
        since: Duration | datetime.datetime | None = None,
        limit: int | None = None,
    ) -> list[Job]:
        """Jobs that match all of these, in the order of their submission, without their workers.

        ``name`` is a part of the display name, or a pattern with ``*``; ``state`` is one or several words such as
        ``RUNNING``; ``active`` leaves out what has ended; ``since`` is a time, or how long ago at most; ``limit``
        keeps the newest so many. Raises ``InvalidInput`` for a state that there isn't.
        """
        asked = self._aio._list(name, state, owner, labels, active, since, limit)
        return [Job(self, message) for message in self._background.run(asked)]

    def wait(self, job: str | JobView, timeout: Duration | None = None) -> Result:
        """Wait until the job has ended, however often the controller restarts meanwhile.

        Raises ``WaitTimeout``, a ``TimeoutError``, after ``timeout``; the job goes on. Leaving early ends no job.
        """
        return self._background.run(self._aio.wait(job, timeout))

    @guessing
    def logs(
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
    ) -> Iterator[LogLine]:
        """Lines that the job's ranks have printed, each rank's in order; with ``follow`` until the job has ended.

        Without ``ranks`` or ``workers`` of all. ``generation`` counts launches from 1; the newest unless given, and
        with ``follow`` those after it too. ``tail`` is in lines of each stream. Goes on over a restart of the
        controller; ``on_link`` is called with the error, and with None when it is back, from another thread.
        """
        return self._background.iterate(
            lambda: self._aio._log_batches(job, follow, ranks, workers, generation, tail, since, on_link)
        )

    @guessing
    def events(
        self,
        job: str | JobView,
        *,
        follow: bool = False,
        after: int = 0,
        on_link: LinkCallback | None = None,
    ) -> Iterator[Event]:
        """Events of the job so far; with ``follow`` also those to come, until it has ended.

        ``after`` is the cursor of the last event that is known already. None is missed or given twice, also over a
        restart of the controller.
        """
        return self._background.iterate(
            lambda: _in_lists(self._aio.events(job, follow=follow, after=after, on_link=on_link))
        )

    def cancel(self, job: str | JobView) -> Job:
        """Ask for the job's end: SIGTERM, and SIGKILL after its grace. Returns before its ranks are gone."""
        return Job(self, self._background.run(self._aio.cancel(job))._message)

    def restart(self, job: str | JobView) -> Job:
        """Stop the gang and launch it again on the same hosts. Raises ``WrongState`` where it doesn't run."""
        return Job(self, self._background.run(self._aio.restart(job))._message)

    def pause(self, job: str | JobView) -> Job:
        """Stop the gang and free its hosts until ``resume``; returns before that is done."""
        return Job(self, self._background.run(self._aio.pause(job))._message)

    def resume(self, job: str | JobView) -> Job:
        """Queue a paused job again. Raises ``WrongState`` for one that isn't paused."""
        return Job(self, self._background.run(self._aio.resume(job))._message)

    def delete(self, job: str | JobView) -> None:
        """Delete an ended job for good, its output on hosts too. Raises ``WrongState`` for one that has not ended."""
        self._background.run(self._aio.delete(job))

    # Hosts

    def hosts(self) -> list[Host]:
        """All hosts of the cluster, by name."""
        return self._background.run(self._aio.hosts())


class Job(JobView):
    """A job of a ``Client``: its state when it was last asked for, and calls that act on it."""

    def __init__(self, client: Client, message: job_pb2.CustomJob) -> None:
        super().__init__(message)
        self._client = client

    def refresh(self) -> Job:
        """Ask for the job again; this same object, as it is now."""
        self._message = self._client.job(self)._message
        return self

    def wait(self, timeout: Duration | None = None) -> Result:
        """Wait for the end, as ``Client.wait``; the object shows the ended job then."""
        client = self._client
        self._message = client._background.run(client._aio._ended(self, timeout))
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
    ) -> Iterator[LogLine]:
        """Lines that its ranks have printed, as ``Client.logs``."""
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
    def events(self, *, follow: bool = False, after: int = 0) -> Iterator[Event]:
        """Events of its history, as ``Client.events``."""
        return self._client.events(self, follow=follow, after=after)

    def cancel(self) -> Job:
        """Ask for its end; returns before its ranks are gone."""
        self._message = self._client.cancel(self)._message
        return self

    def restart(self) -> Job:
        """Stop the gang and launch it again on the same hosts."""
        self._message = self._client.restart(self)._message
        return self


async def _in_lists(events: AsyncGenerator[Event]) -> AsyncGenerator[list[Event]]:
    try:
        async for event in events:
            yield [event]
    finally:
        await events.aclose()
