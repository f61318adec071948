"""Runs one task of a guarded command, from its start to its exit status."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.abc

from holdfast._base import extras
from holdfast.client import Client
from holdfast.errors import HoldfastError, Unavailable
from holdfast.guard import addresses, allocation, meeting, outcome, scratch, tied, trust
from holdfast.guard.allocation import Allocation
from holdfast.guard.forward import Forwarder
from holdfast.guard.parts import Daemon, Folder, Leash, controller_port
from holdfast.guard.record import Record, Words
from holdfast.v1 import host_pb2, job_pb2

OUR_FAILURE = 125
LOOK_S = 0.05
ENDS_S = 10.0
"""For each step of an orderly end; what is left then is ended by the kernel, or by the shims themselves."""
LISTENS_S = 60.0
"""Time for a controller to start, on a machine that is busy."""
SETTLES_S = 2.0
"""Tasks that end with the job are seen to leave before or after its last event."""
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
RANKS_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
"""A scheduler sends them to every process of a step, the ranks included."""
ALL_SIGNALS = {*ENDING_SIGNALS, *RANKS_SIGNALS}


@dataclass(frozen=True, slots=True)
class Request:
    """A command to guard, as the user asked for it. Times in seconds."""

    command: tuple[str, ...]
    job: Callable[[int], job_pb2.CustomJob]
    """The job for a number of tasks."""
    status: Callable[[job_pb2.CustomJob], int]
    """The exit status of a job that has ended."""
    words: Words
    ranks_per_task: int = 1
    or_run: bool = False
    record: Path | None = None
    start_timeout_s: float = 120.0


def run(request: Request) -> int:
    """Guard the command in this task; returns its exit status. Says on stderr what it can't do.

    With ``or_run`` this process becomes the bare command where the guard can't start.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own words about a link that ends would stand beside ours
    try:
        extras.require("holdfast guard", "controller", "agent")
        place = allocation.read(os.environ, os.uname().nodename)
        if place.kind == "slurm":
            tied.end_with_parent(signal.SIGTERM)
        with _scratch() as folder:
            return anyio.run(_Task(request, place, folder).run)
    except _NotStarted as error:
        problem: HoldfastError = error.problem
    except (HoldfastError, OSError) as error:
        problem = error if isinstance(error, HoldfastError) else Unavailable(_in_words(error))
    request.words.note(problem.message + (f" {problem.fix}" if problem.fix else ""))
    if not request.or_run:
        return OUR_FAILURE
    request.words.note("the command runs without a guard: nothing is restarted, and no hang is seen")
    return _bare(request)


def _bare(request: Request) -> int:
    """Become the command. Returns only where there is none."""
    os.environ.pop(trust.SEED_VARIABLE, None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ALL_SIGNALS)
    sys.stdout.flush()
    try:
        os.execvp(request.command[0], request.command)
    except OSError as error:
        request.words.note(f"{request.command[0]}: {error.strerror}")
        return 127 if isinstance(error, FileNotFoundError) else 126


def _in_words(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"The guard can't start: {where}{error.strerror or error}."


@contextlib.contextmanager
def _scratch() -> Iterator[Folder]:
    """A folder that is gone afterwards, also when this process is killed."""
    path = scratch.make()
    held = scratch.watch(path)
    try:
        yield Folder(Path(path))
    finally:
        if not scratch.has_shims(path):
            shutil.rmtree(path, ignore_errors=True)
        os.close(held)


class _NotStarted(Exception):
    """The guard has started nothing of the user's, and can't."""

    def __init__(self, problem: HoldfastError) -> None:
        self.problem = problem


class _Task:
    """One task: ``run`` is its life."""

    def __init__(self, request: Request, place: Allocation, folder: Folder) -> None:
        self._request, self._place, self._folder = request, place, folder
        self._note = request.words.note
        self._agent, self._controller = Daemon(folder, "agent"), Daemon(folder, "controller")
        self._leash = Leash()
        self._host: meeting.Host | None = None
        self._guest: meeting.Guest | None = None
        self._record: Record | None = None
        self._forwarder = Forwarder(folder.path / "logs", several=request.ranks_per_task > 1)
        self._client: Client | None = None
        self._address = ""
        self._job = ""
        self._ended = False
        self._signal = 0
        self._status = OUR_FAILURE

    async def run(self) -> int:
        """Start, watch, end; returns the exit status. Raises ``_NotStarted`` where the command may still run bare."""
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(self._obey_signals, tasks.cancel_scope)
                self._status = await self._live(tasks)
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            self._fail(group)
        finally:
            with anyio.CancelScope(shield=True):
                await self._clean_up()
        return 128 + self._signal if self._signal else self._status

    def _fail(self, group: BaseExceptionGroup[BaseException]) -> None:
        """Say what went wrong, here and to the other tasks. Raises ``_NotStarted``, or what is no error of ours."""
        error = _first(group)
        if isinstance(error, OSError):
            error = Unavailable(_in_words(error))
        if not isinstance(error, HoldfastError):
            raise error
        if self._guest is not None:
            self._guest.complain(error.message)
        if self._host is not None:
            self._host.tell({"problem": error.message})
        if not self._job and not self._signal:
            raise _NotStarted(error) from error
        self._note(error.message)

    async def _obey_signals(
        self, scope: anyio.CancelScope, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        with anyio.open_signal_receiver(*ALL_SIGNALS) as signals:
            task_status.started()
            try:
                async for number in signals:
                    if number in ENDING_SIGNALS:
                        self._signal = self._signal or number
                        await self._end_early(scope)
            finally:
                # From here on it ends anyway, and a second signal must not cut that short.
                signal.pthread_sigmask(signal.SIG_BLOCK, ALL_SIGNALS)

    async def _end_early(self, scope: anyio.CancelScope) -> None:
        if self._client is None or not self._job:
            scope.cancel()
            return
        with contextlib.suppress(HoldfastError):  # it has ended, or another task was faster
            await self._client.cancel_job(self._job)

    async def _live(self, tasks: anyio.abc.TaskGroup) -> int:
        controller = await self._meet(tasks)
        await self._leash.start()
        tasks.start_soon(self._leash.hold)
        self._folder.write_agent(self._place, controller, self._address, self._leash.pid)
        tasks.start_soon(self._agent.keep)
        if self._place.task == 0:
            await self._listens(controller)
        async with Client(self._folder.client(controller)) as self._client:
            if self._place.task == 0:
                await self._submit(self._client)
                tasks.start_soon(self._watch_guests)
            else:
                await self._hear_of_job()
                tasks.start_soon(self._watch_host)
            return await self._follow(self._client)

    async def _meet(self, tasks: anyio.abc.TaskGroup) -> str:
        """Have a controller, and files that let this task talk to it; returns its address."""
        place = self._place
        given = os.environ.get(trust.SEED_VARIABLE, "")
        seed = trust.given_seed(given) if given else trust.new_seed()
        munge = trust.Munge() if place.tasks > 1 and not given else None
        where = await asyncio.to_thread(addresses.of_first, place)
        if place.task:
            unseal = _opener(munge, place.job) if munge else None
            self._guest = await meeting.join(place, where, seed, unseal, self._request.start_timeout_s)
            self._address = self._guest.address
            trust.write_certificates(self._guest.seed, self._folder.path, place.name, controller=False)
            return self._guest.controller
        self._address = addresses.own(where)
        controller = addresses.joined(self._address, controller_port())
        if place.tasks > 1:
            seal = _sealer(munge, seed, place.job) if munge else None
            self._host = meeting.Host(place, seed, controller, seal)
            await self._host.listen(self._address)
        trust.write_certificates(seed, self._folder.path, place.name, controller=True)
        self._folder.write_controller(controller)
        tasks.start_soon(self._controller.keep)
        return controller

    async def _listens(self, controller: str) -> None:
        """Wait for the controller: a first call that comes too early is tried again only after a second."""
        host, _, port = controller.rpartition(":")
        with anyio.move_on_after(LISTENS_S):
            while True:
                try:
                    stream = await anyio.connect_tcp(host.strip("[]"), int(port))
                except OSError:
                    await anyio.sleep(LOOK_S)
                    continue
                await stream.aclose()
                return

    async def _submit(self, client: Client) -> None:
        """Submit the job once an agent is ready for every task, and tell the others. Raises ``Unavailable``."""
        names: dict[int, str] = {}
        with anyio.move_on_after(self._request.start_timeout_s):
            while True:
                if self._host is not None and self._host.problem:
                    raise Unavailable(self._host.problem)
                names = {0: self._place.name, **(self._host.present if self._host else {})}
                if len(names) == self._place.tasks and await self._all_ready(client, set(names.values())):
                    break
                await anyio.sleep(LOOK_S)
            created = await client.create_job(self._request.job(self._place.tasks))
            self._job = created.id
            if self._host is not None:
                self._host.tell({"job": created.id})
            return
        missing = [task for task in range(self._place.tasks) if task not in names]
        came = set(names.values())
        silent = [
            host for host in self._place.hosts if not any(n == host or n.startswith(f"{host}.") for n in came)
        ]
        what = f"tasks {', '.join(map(str, missing[:8]))} have not come" if missing else "not all agents are ready"
        raise Unavailable(
            f"Not all of the {self._place.tasks} tasks could start within {self._request.start_timeout_s:.0f} s: {what}"
            + (f"; there was no word from {', '.join(silent[:8])}." if silent else "."),
            fix="See what those tasks have printed, and that their hosts reach this one.",
        )

    async def _all_ready(self, client: Client, names: set[str]) -> bool:
        try:
            hosts = await client.list_hosts()
        except HoldfastError:
            return False  # it starts, or starts again
        return names <= {host.name for host in hosts if host.state == host_pb2.HOST_STATE_READY}

    async def _hear_of_job(self) -> None:
        assert self._guest is not None
        said = await self._guest.hear()
        if said is None:
            raise Unavailable(f"Task 0 on {self._place.first_host} ended before the job began.")
        if problem := said.get("problem"):
            raise Unavailable(f"Task 0 on {self._place.first_host} can't start the job: {problem}")
        self._job = str(said["job"])

    async def _watch_guests(self) -> None:
        """Raises ``Unavailable`` when another task is gone before the job has ended: there is no other host for it."""
        while (host := self._host) is not None:
            await host.changed.wait()
            host.changed.clear()
            if host.lost:
                await anyio.sleep(SETTLES_S)
                if not self._ended:
                    task, name = next(iter(host.lost.items()))
                    raise Unavailable(f"Task {task} on {name} is gone before its time, so the job has ended.")

    async def _watch_host(self) -> None:
        assert self._guest is not None
        while (said := await self._guest.hear()) is not None:
            if problem := said.get("problem"):
                raise Unavailable(str(problem))
        await anyio.sleep(SETTLES_S)
        if not self._ended:
            raise Unavailable(f"Task 0 on {self._place.first_host} is gone before its time, so the job has ended.")

    async def _follow(self, client: Client) -> int:
        """Pass on output and news until the job has ended; returns this task's exit status."""
        place, words = self._place, self._request.words
        self._forwarder.start()
        if place.task == 0:
            name = Path(f"holdfast-{place.job or self._job}")
            self._record = Record(self._request.record or name, words)
            self._record.open_to_commands(client.settings)
        async with contextlib.aclosing(client.watch_job(self._job)) as events:
            async for event in events:
                if self._record is not None:
                    self._record.event(event)
                    if sentence := words.sentence(event):
                        self._note(sentence)
        job = await client.get_job(self._job)
        self._ended = True
        if self._record is not None:
            await self._record.finish(client, job)
            if text := outcome.summary(job, str(self._record.directory)):
                self._note(text)
        return outcome.of_task(job, self._request.status(job), place.name, first=place.task == 0)

    async def _clean_up(self) -> None:
        if not self._ended:
            await self._leash.let_go()
        await _within(ENDS_S, lambda: not scratch.has_shims(str(self._folder.path)))
        if self._job:
            await asyncio.to_thread(self._forwarder.finish, ENDS_S)
        await self._agent.end()
        await self._leash.let_go()
        if self._guest is not None:
            self._guest.leave()
        if (host := self._host) is not None:
            if self._ended:
                await _within(ENDS_S, lambda: len(host.lost) == len(host.present))
            await host.close()
        if self._record is not None:
            self._record.close_to_commands()
        await self._controller.end()


async def _within(seconds: float, is_so: Callable[[], bool]) -> None:
    with anyio.move_on_after(seconds):
        while not is_so():  # noqa: ASYNC110 what other processes do sets no event
            await anyio.sleep(LOOK_S)


def _sealer(munge: trust.Munge, seed: bytes, job: str) -> meeting.Seal:
    return lambda: munge.seal(seed, job)


def _opener(munge: trust.Munge, job: str) -> meeting.Unseal:
    return lambda credential: munge.open(credential, job)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
