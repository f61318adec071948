"""Stay with a job until it ends: its events as notes, its output as output, its end as an exit status.

``run`` shows rank 0 and, of each generation that fails, the rank that was the cause. The user may leave at any time
with Ctrl-C: the job does not notice. Nor does it when the command is terminated, or its terminal goes away.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import AsyncGenerator
from types import FrameType
from typing import Any

import anyio
import anyio.abc
from anyio.lowlevel import current_token

from holdfast.cli.kit import exit_status
from holdfast.cli.kit.console import Console, OutputClosed
from holdfast.cli.kit.to_the_end import events_to_the_end, patiently
from holdfast.cli.pages import event_lines
from holdfast.cli.pages.gang import ranks_of
from holdfast.cli.pages.last_words import LastWords
from holdfast.cli.pages.rank_output import RankOutput
from holdfast.client import Client
from holdfast.errors import HoldfastError
from holdfast.v1 import job_pb2

DRAIN_S = 15.0
"""How long the rest of the output may take once the job has ended."""
SILENT_S = 300.0
"""A job that shows nothing new for so long is asked what it waits for, and then after three times as long each time."""
LAST_WORDS_S = 5.0
"""How long the output of a rank that has failed may take to be shown before its exit is."""


async def follow(
    client: Client,
    job: job_pb2.CustomJob,
    console: Console,
    *,
    show_all: bool = False,
    terminal: int | None = None,
) -> int:
    """Tell a job's story from its beginning on; the exit status once it has ended, or 0 when the user has left.

    ``terminal``: what the user types goes to this rank while it runs, and what it prints comes as it is.
    """
    return await _Follower(client, job, console, show_all=show_all, terminal=terminal).run()


class _Follower:
    def __init__(
        self, client: Client, job: job_pb2.CustomJob, console: Console, *, show_all: bool, terminal: int | None
    ) -> None:
        world = ranks_of(job.job_spec)
        self._client = client
        self._job = job
        self._console = console
        self._ranks: tuple[int, ...] = () if show_all else (terminal or 0,)
        self._output = RankOutput(console, many=show_all and len(world) > 1)
        self._on_link = console.on_link()
        self._failures: dict[int, list[job_pb2.WatchJobResponse]] = {}
        """By rank: the events that record how it failed in the last two generations that it failed in, oldest first."""
        self._explained: set[tuple[int, int]] = set()
        self._problems: list[job_pb2.StreamLogsResponse] = []
        self._queued = False
        """Whether it was said how long the job may wait for hosts."""
        self._terminal = terminal
        self._typing = False
        self._reading = False
        self._read_all = anyio.Event()

    async def run(self) -> int:
        started = time.monotonic()
        last: job_pb2.CustomJob | None = None
        complete, waited_s = False, 0.0
        async with anyio.create_task_group() as tasks:
            back = "job attach" if self._terminal is not None else "logs -f"
            with _Detached(self._job.id, self._console, tasks.cancel_scope, back) as detached:
                self._leave = detached.leave
                tasks.start_soon(self._keep_bars_current)
                if self._terminal is None:
                    tasks.start_soon(self._note_silence)
                self._read(tasks, self._ranks)
                await self._watch(tasks)
                last = await patiently(self._client, self._job.id, self._on_link)
                waited_s = time.monotonic() - started
                # Where nothing ever ran, hosts would look for output in vain first.
                with anyio.move_on_after(0 if event_lines.nothing_ran(last) else DRAIN_S):
                    await self._read_all.wait()
                    complete = True
                tasks.cancel_scope.cancel()
        if last is None:
            return detached.status
        self._finish(last)
        if not complete and not event_lines.nothing_ran(last):
            self._console.note(f"some output has not arrived yet; see it with: holdfast logs {last.id}")
        for line in event_lines.farewell(last, waited_s):
            self._console.note(line)
        return exit_status.of_job(last)

    def _finish(self, job: job_pb2.CustomJob) -> None:
        """Show what is left: lines that never ended, and output that is missing though its rank did run."""
        with contextlib.suppress(OutputClosed):
            self._output.finish()
        silent = event_lines.never_started(job)
        for problem in self._problems:
            if (problem.generation, problem.rank) not in silent:
                self._output.show(problem)

    async def _watch(self, tasks: anyio.abc.TaskGroup) -> None:
        """Print the job's events until it has ended."""
        events = events_to_the_end(self._client, self._job.id, 0, self._on_link)
        async with contextlib.aclosing(events):
            async for event in events:
                if self._terminal is not None and event.state == job_pb2.JOB_STATE_RUNNING and not self._typing:
                    await self._type(tasks, self._terminal)
                if event_lines.is_failure(event):
                    self._note_failure(event)
                if (rank := event_lines.blamed_rank(event)) is not None:
                    await self._explain(rank, event)
                if sentence := event_lines.sentence(event):
                    self._console.note(sentence)
                    self._output.wake()
                    if event_lines.kind_of(event) == "queued" and not self._queued:
                        self._queued = True
                        for line in event_lines.while_queued(await self._as_it_is(), sentence):
                            self._console.note(line)

    async def _as_it_is(self) -> job_pb2.CustomJob:
        """The job with what is expected of it now; as it was submitted where that can't be had."""
        with contextlib.suppress(HoldfastError):
            return await self._client.get_job(self._job.id)
        return self._job

    def _note_failure(self, event: job_pb2.WatchJobResponse) -> None:
        """Keep how a rank failed; ends of an older generation may be reported after those of a newer one."""
        known = self._failures.setdefault(_exit(event).rank, [])
        known.append(event)
        known.sort(key=lambda one: _exit(one).generation)
        del known[:-2]

    async def _explain(self, rank: int, event: job_pb2.WatchJobResponse) -> None:
        """Show what the rank printed last that is the cause of what follows, and then how it ended."""
        before = event_lines.launches(event)
        known = self._failures.get(rank, [])
        failure = next((one for one in reversed(known) if not before or _exit(one).generation < before), None)
        if failure is None:
            return
        exit_ = _exit(failure)
        if (exit_.generation, rank) in self._explained or event_lines.is_in_farewell(event, exit_):
            return
        self._explained.add((exit_.generation, rank))
        in_view = not self._ranks or rank in self._ranks
        with anyio.move_on_after(LAST_WORDS_S), contextlib.suppress(HoldfastError, OutputClosed):
            if in_view:
                await self._shown_to_its_end(rank, exit_.generation)
            elif self._terminal is None:
                await self._show_last_words(rank, exit_.generation)
        self._console.note(failure.message)

    async def _show_last_words(self, rank: int, generation: int) -> None:
        """Show the last lines of a rank that is not in view, and where the rest is."""
        said = LastWords()
        async with contextlib.aclosing(self._last_lines(rank, generation, said.MOST_LINES)) as chunks:
            async for chunk in chunks:
                if chunk.problem:
                    self._problems.append(chunk)
                elif chunk.note:
                    self._output.show(chunk)
                else:
                    said.add(chunk)
        self._output.several()
        for chunk in said.chunks():
            self._output.show(chunk)
        if said.shortened and len(self._explained) == 1:
            self._console.note(f"more of it:  holdfast logs {self._job.id} --rank {rank} --generation {generation}")

    async def _shown_to_its_end(self, rank: int, generation: int) -> None:
        """Wait until all is shown that a rank in view has printed."""
        async with contextlib.aclosing(self._last_lines(rank, generation, 1)) as chunks:
            async for chunk in chunks:
                end = chunk.offset + len(chunk.data)
                while self._reading and self._output.shown_to(chunk) < end:
                    await self._output.fed()

    def _last_lines(self, rank: int, generation: int, lines: int) -> AsyncGenerator[job_pb2.StreamLogsResponse]:
        return self._client.stream_logs(
            self._job.id, ranks=(rank,), generation=generation, tail_lines=lines, on_link=self._on_link
        )

    async def _type(self, tasks: anyio.abc.TaskGroup, rank: int) -> None:
        from holdfast.cli.jobs.terminal import Keyboard

        self._typing = True

        async def write(keys: bytes, rows: int, columns: int) -> int:
            return await self._client.write_terminal(self._job.id, keys, rank=rank, rows=rows, columns=columns)

        # Before anything says so: what is typed upon that must not be taken for a line of the user's own terminal.
        await tasks.start(Keyboard(write, self._leave).run)
        self._console.note(f"the terminal of rank {rank} is yours; to leave it running, type Enter ~ .")
        if rank == 0 and len(ranks_of(self._job.job_spec)) > 1:
            self._console.note(
                f"a breakpoint of another rank waits at: holdfast job attach {self._job.id} --rank R"
            )

    def _read(self, tasks: anyio.abc.TaskGroup, ranks: tuple[int, ...]) -> None:
        async def read() -> None:
            # From the first generation on: the gang may have been relaunched before the stream opens.
            chunks = self._client.stream_logs(
                self._job.id, ranks=ranks, follow=True, generation=1, on_link=self._on_link
            )
            try:
                async with contextlib.aclosing(chunks):
                    async for chunk in chunks:
                        if chunk.problem:
                            self._problems.append(chunk)
                        else:
                            self._output.show(chunk)
            except OutputClosed:
                pass  # the exit status may still be wanted
            except HoldfastError as error:
                self._console.note(f"the output can't be shown: {error}")
            self._reading = False
            self._read_all.set()
            self._output.wake()

        self._reading = True
        tasks.start_soon(read)

    async def _note_silence(self) -> None:
        """Say what a job waits for that shows nothing new for long, when Holdfast acts, and what does so now."""
        limit_s = SILENT_S
        while True:
            with anyio.move_on_after(limit_s) as silence:
                await self._output.fed()
            if not silence.cancelled_caught:
                limit_s = SILENT_S
                continue
            with contextlib.suppress(HoldfastError):  # others say that the controller is away
                job = await self._client.get_job(self._job.id)
                for line in event_lines.while_silent(job, limit_s):
                    self._console.note(line)
            limit_s *= 3

    async def _keep_bars_current(self) -> None:
        with contextlib.suppress(OutputClosed):
            await self._output.keep_bars_current()


def _exit(failure: job_pb2.WatchJobResponse) -> job_pb2.Exit:
    return failure.event.rank_exited.exit


class _Detached:
    """Leaves the job at the first SIGINT, SIGTERM or SIGHUP and says how to come back; a second one ends the process.

    A handler of Python's own, not of the event loop's: it must also work while stdout blocks. A signal that the
    caller has this process ignore, as ``nohup`` does, stays ignored.
    """

    def __init__(self, job_id: str, console: Console, scope: anyio.CancelScope, back: str) -> None:
        self._job_id = job_id
        self._back = back
        self._console = console
        self._scope = scope
        self._loop = current_token().native_token
        self._before: dict[int, Any] = {}
        self.status = exit_status.OK
        """Of a command that has left: 0 upon Ctrl-C, 128+n upon another signal n, for nothing has succeeded."""

    def __enter__(self) -> _Detached:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._leave)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            if signal.getsignal(number) == self._leave:
                signal.signal(number, before)

    def _leave(self, number: int, frame: FrameType | None) -> None:
        for each in self._before:
            signal.signal(each, signal.SIG_DFL)
        if number != signal.SIGINT:
            self.status = 128 + number
        self.leave()

    def leave(self) -> None:
        """Say how to come back, and leave."""
        with contextlib.suppress(OSError):  # the terminal may be gone, which SIGHUP says
            self._console.end_line()
            self._console.note(f"detached; job {self._job_id} keeps running.")
            self._console.note(f"  come back:  holdfast {self._back} {self._job_id}")
            self._console.note(f"              holdfast job watch {self._job_id}")
            self._console.note(f"  cancel it:  holdfast cancel {self._job_id}")
        self._loop.call_soon_threadsafe(self._scope.cancel)  # type: ignore[attr-defined]
