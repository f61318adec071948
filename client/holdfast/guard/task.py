"""One task of a guarded command, from its start to its exit status.

Task 0 alone talks to the controller, by gRPC, and tells the others what they need to know: so these import none of it,
which is half of a guard's memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.abc

from holdfast.errors import HoldfastError, Unavailable
from holdfast.guard import addresses, limits, meeting, rank_signals, scratch, slurm, spares, trust
from holdfast.guard.allocation import SEED_VARIABLE, Allocation
from holdfast.guard.forward import Forwarder
from holdfast.guard.parts import ControllerPort, Daemon, Folder, Leash
from holdfast.guard.run import ALL_SIGNALS, ENDING_SIGNALS, OUR_FAILURE, NotStarted, Request, answered, foreseen
from holdfast.guard.shared_file import SharedFile

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.guard.certificates import Issuer
    from holdfast.guard.record import Record

LOOK_S = 0.05
ENDS_S = 10.0
"""For each step of an orderly end; what is left then is ended by the kernel, or by the shims themselves."""
LISTENS_S = 60.0
"""Time for a controller to start, on a machine that is busy."""
RECORD_S = 5.0
"""For the record of a job that can't go on; its controller may be what is gone."""
DIES_S = 0.5
"""The kernel tells of a parent's death when the first of its threads has died."""
SETTLES_S = 2.0
"""Tasks that end with the job are seen to leave before or after its last event."""

_NEVER_BEGAN = "ended before the job began"


class Task:
    """One task: ``run`` is its life."""

    def __init__(
        self,
        request: Request,
        place: Allocation,
        folder: Folder,
        controller: Daemon,
        agent: Daemon,
        issuer: Issuer,
    ) -> None:
        self._request, self._place, self._folder = request, place, folder
        self._controller, self._agent, self._issuer = controller, agent, issuer
        self._note = request.words.note
        self._leash = Leash()
        self._port = ControllerPort()
        self._host: meeting.Host | None = None
        self._guest: meeting.Guest | None = None
        self._record: Record | None = None
        self._forwarder = Forwarder(folder.path / "logs", several=request.ranks_per_task > 1)
        self._client: Client | None = None
        self._shared = SharedFile(Path.cwd(), place.job)
        self._address = ""
        self._job = ""
        self._ended = False
        self._missed: set[int] = set()
        self._limit: float | None = None
        """When the scheduler ends the job, by ``anyio.current_time``."""
        self._parent = os.getppid()
        self._signal = 0
        self._status = OUR_FAILURE
        self.leaves_step_open = False
        """Whether Slurm waits for a task whose end no one will tell it."""

    async def run(self) -> int:
        """Start, watch, end; returns the exit status. Raises ``NotStarted`` where the command may still run bare."""
        # To the very end: a second signal must not cut an orderly end short.
        with anyio.open_signal_receiver(*answered()) as signals:
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._obey, signals, tasks.cancel_scope)
                    self._status = await self._live(tasks)
                    tasks.cancel_scope.cancel()
            except BaseExceptionGroup as group:
                self._fail(group)
            finally:
                with anyio.CancelScope(shield=True):
                    await self._clean_up()
                signal.pthread_sigmask(signal.SIG_BLOCK, ALL_SIGNALS)
        return 128 + self._signal if self._signal else self._status

    def _fail(self, group: BaseExceptionGroup[BaseException]) -> None:
        """Say what went wrong, here and to the other tasks. Raises ``NotStarted``, or what is no error of ours."""
        error = foreseen(group)
        if self._guest is not None:
            self._guest.complain(error.message)
        if self._host is not None:
            self._host.tell({"problem": error.message})
        if not self._job and not self._signal:
            raise NotStarted(error) from error
        self._note(self._place.named(error.message))

    async def _obey(self, signals: AsyncIterator[signal.Signals], scope: anyio.CancelScope) -> None:
        async for number in signals:
            if number in ENDING_SIGNALS:
                self._signal = self._signal or number
                await self._end_early(scope)
            else:
                await anyio.sleep(rank_signals.SPREADS_S)
                if not rank_signals.was_sent_to(self._agent.pid, number):
                    await asyncio.to_thread(rank_signals.pass_on, self._folder.path, number)

    async def _end_early(self, scope: anyio.CancelScope) -> None:
        await anyio.sleep(DIES_S if self._place.kind == "slurm" else 0)
        # Where the launcher's process here is dead, another task may go on in place of this one.
        if not self._job:
            scope.cancel()
        elif self._abandoned and self._guest is not None and self._request.spares:
            # Its ranks end now, and may run elsewhere before this task has left.
            self._guest.abandon()
            scope.cancel()
        elif self._guest is not None:
            self._guest.pass_on(self._signal)
        elif self._client is not None:
            with contextlib.suppress(HoldfastError):  # it has ended
                await self._client.cancel_job(self._job)

    @property
    def _is_at_limit(self) -> bool:
        """Whether a signal has come, and it is the time limit's."""
        near = self._limit is not None and anyio.current_time() >= self._limit - limits.SEEN_S
        return bool(self._signal) and near

    @property
    def _abandoned(self) -> bool:
        """Whether the launcher's process here is dead, so that no one learns how this task ends."""
        return self._place.kind == "slurm" and os.getppid() != self._parent

    async def _live(self, tasks: anyio.abc.TaskGroup) -> int:
        controller = await self._meet(tasks)
        await self._leash.start()
        tasks.start_soon(self._leash.hold)
        settings = self._folder.agent(self._place, controller, self._address, self._leash.pid)
        await self._listens(controller)
        tasks.start_soon(self._agent.keep, settings)
        if self._guest is not None:
            return await self._follow_first(self._guest)
        from holdfast.client import Client

        async with Client(self._folder.client(controller)) as self._client:
            await self._submit(self._client)
            tasks.start_soon(self._watch_guests, tasks.cancel_scope)
            return await self._follow(self._client)

    async def _meet(self, tasks: anyio.abc.TaskGroup) -> str:
        """Have a controller, and files that let this task talk to it; returns its address."""
        place = self._place
        command = self._request.command
        given = os.environ.get(SEED_VARIABLE, "")
        seed = trust.given_seed(given) if given else trust.new_seed()
        munge = trust.Munge() if place.tasks > 1 and not given and place.kind != "shared" else None
        if place.kind == "shared" and not place.task:
            seed, where = await self._shared.exchange(place, seed, self._request.start_timeout_s)
        elif place.kind != "shared":
            where = await asyncio.to_thread(addresses.of_first, place)
        if place.task:
            patience_s = self._request.start_timeout_s
            unseal = functools.partial(munge.open, job=place.job) if munge else None
            if place.kind == "shared":
                self._guest = await self._shared.join(place, patience_s, command)
            else:
                self._guest = await meeting.join(place, where, seed, unseal, patience_s, command)
            self._address = self._guest.address
            await self._issuer.issue(self._guest.seed)
            return self._guest.controller
        self._address = addresses.own(where)
        controller = addresses.joined(self._address, self._port.take())
        if place.tasks > 1:
            seal = functools.partial(munge.seal, seed, place.job) if munge else None
            self._host = meeting.Host(place, seed, controller, seal, command)
            await self._host.listen(self._address)
        # What talks to the controller takes as long to load as it does.
        tasks.start_soon(asyncio.to_thread, importlib.import_module, "holdfast.client")
        await self._issuer.issue(seed)
        settings = self._folder.controller(controller, with_spares=self._request.spares > 0)
        tasks.start_soon(self._controller.keep, settings)
        return controller

    async def _listens(self, controller: str) -> None:
        """Wait for the controller: a call that comes too early is tried again only later and later."""
        host, _, port = controller.rpartition(":")
        with anyio.move_on_after(LISTENS_S):
            while True:
                try:
                    _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
                except OSError:
                    await anyio.sleep(LOOK_S)
                    continue
                writer.close()
                return

    async def _submit(self, client: Client) -> None:
        """Submit the job once there are agents for it, and tell the others."""
        place, workers = self._place, self._place.tasks - self._request.spares
        grace_s = await asyncio.to_thread(slurm.grace_s, self._request.grace_s)
        left_s = self._request.time_limit_s
        if left_s is None:
            left_s = await asyncio.to_thread(slurm.time_left_s, place)
        self._limit = None if left_s is None else anyio.current_time() + left_s
        await self._gather(client, workers)
        self._shared.remove()
        job = self._request.job(workers, grace_s)
        job.labels.update(place.labels)
        if self._limit is not None:
            left_s = self._limit - anyio.current_time()
        if said := limits.give(job, left_s, self._request.warning):
            self._note(said)
        if self._request.spares:
            spares.prepare(job, place, workers)
        self._job = (await client.create_job(job)).id
        if self._host is not None:
            self._host.tell_job(self._job)

    async def _gather(self, client: Client, workers: int) -> None:
        """Return once an agent is ready for every task, or in the end for every worker. Raises ``Unavailable``."""
        names: dict[int, str] = {}
        ready: set[str] = set()
        with anyio.move_on_after(self._request.start_timeout_s):
            while True:
                if self._host is not None and self._host.problem:
                    raise Unavailable(self._host.problem)
                names = {0: self._place.name, **(self._host.present if self._host else {})}
                if len(names) == self._place.tasks:
                    ready = await self._ready(client)
                    if ready >= set(names.values()):
                        return
                await anyio.sleep(LOOK_S)
        ready = await self._ready(client)
        if len(ready & set(names.values())) >= workers and self._place.name in ready:
            late = [str(task) for task in range(self._place.tasks) if names.get(task) not in ready]
            self._note(f"begins without task{'s' * (len(late) > 1)} {', '.join(late)}: spares take their place")
            return
        missing = [task for task in range(self._place.tasks) if task not in names]
        came = set(names.values())
        silent = [
            host for host in self._place.hosts[1:] if not any(n == host or n.startswith(f"{host}.") for n in came)
        ]
        what = f"tasks {', '.join(map(str, missing[:8]))} have not come" if missing else "not all agents are ready"
        raise Unavailable(
            f"Not all of the {self._place.tasks} tasks could start within {self._request.start_timeout_s:.0f} s: {what}"
            + (f"; there was no word from {', '.join(silent[:8])}." if silent else "."),
            fix="See what those tasks have printed, and that their hosts reach this one.",
        )

    async def _ready(self, client: Client) -> set[str]:
        from holdfast.v1 import host_pb2

        try:
            hosts = await client.list_hosts()
        except HoldfastError:
            return set()  # it starts, or starts again
        return {host.name for host in hosts if host.state == host_pb2.HOST_STATE_READY}

    async def _watch_guests(self, scope: anyio.CancelScope) -> None:
        """Raises ``Unavailable`` when another task is gone before its time, and no spare is left."""
        while (host := self._host) is not None:
            await host.changed.wait()
            host.changed.clear()
            if host.signals and not self._signal:
                task, self._signal = next(iter(host.signals.items()))
                self._note(f"task {task} on {host.present[task]} got signal {self._signal}")
                await self._end_early(scope)
            if host.lost or host.abandoned:
                await anyio.sleep(SETTLES_S)
                if not self._ended and (problem := self._tell_gone(host)):
                    raise Unavailable(problem)

    def _tell_gone(self, host: meeting.Host) -> str:
        """Say which tasks are gone that a spare stands in for; returns why the job can't go on without them, if so."""
        said, goes_on = spares.on_gone(host.gone, self._missed, self._request.spares)
        if not goes_on:
            return said
        self._missed |= host.gone.keys()
        if said:
            self._note(said)
        return ""

    async def _follow_first(self, guest: meeting.Guest) -> int:
        """Pass on output until task 0 says that the job has ended; returns this task's exit status."""
        where = f"Task 0 on {self._place.first_host}"
        while (said := await guest.hear()) is not None:
            if problem := said.get("problem"):
                raise Unavailable(str(problem) if self._job else f"{where} can't start the job: {problem}")
            if "job" in said:
                self._job = str(said["job"])
                self._forwarder.start()
            elif "failed" in said:
                self._ended = True
                return int(said["failed"].get(self._place.name, 0))
        raise Unavailable(
            f"{where} {'is gone before its time, so the job has ended' if self._job else _NEVER_BEGAN}."
        )

    async def _follow(self, client: Client) -> int:
        """Pass on output and news until the job has ended, and tell the others; returns this task's exit status."""
        from holdfast.guard import outcome
        from holdfast.guard.record import Record

        place, words = self._place, self._request.words
        self._forwarder.start()
        self._record = Record(self._request.record or Path(f"holdfast-{place.job or self._job}"), words)
        self._record.open_to_commands(client.settings)
        async with contextlib.aclosing(client.watch_job(self._job)) as events:
            async for event in events:
                self._record.event(event)
                if sentence := words.sentence(event):
                    self._note(sentence)
        job = await client.get_job(self._job)
        self._ended = True
        if self._host is not None:
            self._tell_gone(self._host)  # a job may end as soon as a spare has stood in
        status, limit = self._request.status(job), limits.reached(job) or self._is_at_limit
        if limit:
            job.labels["ended-by"] = "time-limit"
        await self._record.finish(client, job)
        if text := outcome.summary(job, self._where(self._record), limit=limit):
            self._note(text)
        if limit and slurm.is_around():
            await _within(limits.SLURM_ENDS_S, lambda: self._signal)
        if self._host is not None:
            ends = {name: outcome.of_task(job, status, name, first=False) for name in self._host.present.values()}
            if self._abandoned:  # another's status must be the step's
                ends = dict.fromkeys(ends, 128 + self._signal)
            self._host.tell({"failed": {name: code for name, code in ends.items() if code}})
        return outcome.of_task(job, status, place.name, first=True)

    async def _record_as_it_is(self) -> None:
        """Complete the record of a job that can't go on, such as one whose host is gone."""
        if self._record is None:
            return
        from holdfast.client import Client

        with anyio.move_on_after(RECORD_S), contextlib.suppress(HoldfastError):
            async with Client(self._folder.client(self._record.controller)) as client:
                await self._record.finish(client, await client.get_job(self._job))
        self._note(f"see {self._where(self._record)}")

    def _where(self, record: Record) -> str:
        """The record's folder, for the user who started the guard."""
        there = record.directory
        return f"{self._place.host}:{there.absolute()}" if self._place.kind == "ssh" else str(there)

    async def _clean_up(self) -> None:
        if not self._place.task:
            self._shared.remove()
        if not self._ended:
            await self._record_as_it_is()
            await self._leash.let_go()
        await _within(ENDS_S, lambda: not scratch.has_shims(str(self._folder.path)))
        if self._job:
            await asyncio.to_thread(self._forwarder.finish, ENDS_S)
        self._agent.end()
        await self._leash.let_go()
        if self._guest is not None:
            if self._abandoned:
                self._guest.abandon()
            self._guest.leave()
        if (host := self._host) is not None:
            if self._ended:
                await _within(ENDS_S, lambda: len(host.lost) == len(host.present))
            await host.close()
        if self._record is not None:
            self._record.close_to_commands()
        self._controller.end()
        self._port.close()
        failed = self._signal or self._status
        self.leaves_step_open = bool(host is not None and failed and (host.abandoned or self._abandoned))


async def _within(seconds: float, is_so: Callable[[], object]) -> None:
    with anyio.move_on_after(seconds):
        while not is_so():  # noqa: ASYNC110 what other processes do sets no event
            await anyio.sleep(LOOK_S)
