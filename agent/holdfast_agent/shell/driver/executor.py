"""Does what the agent's reactor decides. Decides nothing.

Each action is performed at once, in the callback that brought its cause: on the way of a rank's exit to the
controller, or of a launch to the shim, nothing is awaited; only a failing exit waits for a last look at the rank's
output (``last_looks``), before it comes here. What takes long (a preparation, a search for orphans)
goes on in a task, and its result is fed back as an event.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import assert_never

import anyio
import anyio.abc
import anyio.to_thread

from holdfast import __version__
from holdfast._base.failpoints import hit
from holdfast._daemon import log
from holdfast._session import codec, protocol
from holdfast._session.reports import WorkerId, WorkerReport
from holdfast.v1 import agent_pb2
from holdfast_agent.core.model.gpus import Blind
from holdfast_agent.core.worker import actions as act
from holdfast_agent.core.worker import events as ev
from holdfast_agent.core.worker.reactor import Reactor
from holdfast_agent.core.worker.states import Launching
from holdfast_agent.core.worker.worker import Worker
from holdfast_agent.shell.gpus.gpu_watch import GpuWatch
from holdfast_agent.shell.gpus.release import GpuFreeing
from holdfast_agent.shell.hangs.feature_reporter import FeatureReporter
from holdfast_agent.shell.output.log_index import LogSampler
from holdfast_agent.shell.prepare.launch_order import Means, launch_order
from holdfast_agent.shell.prepare.name_check import Peers
from holdfast_agent.shell.prepare.prepare import Preparation
from holdfast_agent.shell.prepare.scratch import remove_aside, set_aside
from holdfast_agent.shell.prepare.secret_values import SecretValues
from holdfast_agent.shell.sampling.sampler import Sampler
from holdfast_agent.shell.sampling.series import SeriesKeeper
from holdfast_agent.shell.session.link import Link
from holdfast_agent.shell.session.transfer import Transfer
from holdfast_agent.shell.shims import orphans, shim_files
from holdfast_agent.shell.shims.shims import Shims
from holdfast_agent.shell.shims.worker_files import EpochFile, WorkerFiles
from holdfast_agent.shell.users.safe_paths import remove_tree
from holdfast_agent.shim.shim import VERSION as SHIM_PROTOCOL

ORPHANS_AGAIN_S = 5.0
PRUNE_EVERY, PRUNE_AFTER_S = 32, 1.0
"""Old journals go now and then, and not while the ranks start."""


@dataclasses.dataclass(frozen=True, slots=True)
class Parts:
    """The parts that an agent's driver drives; made by the daemon."""

    files: WorkerFiles
    epoch: EpochFile
    gpus: GpuWatch
    freeing: GpuFreeing
    sampler: LogSampler
    preparation: Preparation
    peers: Peers
    shims: Shims
    link: Link
    transfer: Transfer
    sampling: Sampler
    hangs: FeatureReporter
    series: SeriesKeeper
    secrets: SecretValues = dataclasses.field(default_factory=SecretValues)


class Performer:
    """Performs the actions of one agent. ``feed`` takes the events that result."""

    def __init__(
        self,
        reactor: Reactor,
        parts: Parts,
        means: Means,
        address: str,
        tasks: anyio.abc.TaskGroup,
        feed: Callable[[ev.Event], None],
    ) -> None:
        self.hello = agent_pb2.Hello()
        """The first message of a session; made again for each."""
        self.session_over = False
        """Whether the session that is being opened was decided against."""
        self._reactor = reactor
        self._parts = parts
        self._means = means
        self._address = address
        self._tasks = tasks
        self._feed = feed
        self._removing = anyio.CapacityLimiter(1)
        """Output is removed one job after the other: the disk is the ranks'."""
        self._resolving: set[WorkerId] = set()
        """Places whose launch waits for names."""

    def _worker(self, key: WorkerId) -> Worker | None:
        return self._reactor.workers.get(key)

    def perform(self, action: act.Action) -> None:
        """Do one thing. What takes long goes on in a task of its own; its result comes as an event."""
        parts = self._parts
        match action:
            case act.SendReport(report):
                # In order: what the controller has not heard of a generation by the time that its worker is ready
                # for the next one, it takes for never started.
                hit("agent.report.before")
                parts.link.send(agent_pb2.SessionRequest(worker_report=codec.worker_report_to_proto(report)))
                hit("agent.report.after")
                log.debug(
                    "worker.report_sent",
                    worker=str(report.key),
                    state=report.state.name,
                    generation=report.generation,
                )
            case act.SendGoingDown():
                parts.link.send(agent_pb2.SessionRequest(going_down=agent_pb2.GoingDown()))
            case act.SendExit(report):
                hit("agent.exit.before")
                parts.link.send(agent_pb2.SessionRequest(exit_report=codec.exit_report_to_proto(report)))
                hit("agent.exit.after")
                log.debug(
                    "worker.exit_sent",
                    worker=str(report.key),
                    rank=report.exit.rank,
                    reason=report.exit.reason.name,
                )
            case act.LaunchRanks():
                self._launch(action)
            case act.StopRanks(key, generation, grace_s, reason, another, hung):
                stop = {"op": "stop", "generation": generation, "grace_s": grace_s, "reason": reason.value}
                stop |= {"another_follows": True} if another else {}
                stop |= {"hung": list(hung)} if hung else {}
                hit("agent.stop.before")
                parts.shims.send(key, stop)
                hit("agent.stop.after")
            case act.RenewFence(key, generation, deadline_s):
                parts.shims.send(key, {"op": "renew", "generation": generation, "deadline": deadline_s})
            case act.SignalRanks(key, generation, number):
                log.info("worker.warning_signal_sent", worker=str(key), generation=generation, signal=number)
                parts.shims.send(key, {"op": "signal", "generation": generation, "signal": number})
            case act.Prepare():
                self._prepare(action)
            case act.AbandonPreparation(key):
                parts.preparation.abandon(key)
            case act.FreePorts(key):
                parts.preparation.ports.free(key)
            case act.SendHello(epoch, reports):
                self.hello = self._make_hello(epoch, reports)
            case act.CloseSession(message):
                log.warning("session.refused", error=message)
                self.session_over = True
            case act.PersistEpoch(epoch):
                parts.epoch.write(epoch)
            case (
                act.RememberAttempt()
                | act.RememberAck()
                | act.RememberFreed()
                | act.RememberClosed()
                | act.RememberUnused()
            ):
                self._remember(action)
            case act.RunEpilog():
                self._tasks.start_soon(self._run_epilog, action)
            case act.ReadGpus():
                self._tasks.start_soon(self.read_gpus, action)
            case act.ClearOrphans():
                self._tasks.start_soon(self._clear_orphans, action)
            case act.RecordExits():
                self._record_exits(action)
            case act.Forget(key):
                self._tasks.start_soon(self._forget, key)
            case act.RemoveOutput(job):
                self._tasks.start_soon(self._remove_output, job)
            case act.SendOutputDeleted(job, problem):
                gone = agent_pb2.OutputDeleted(job_id=job, problem=problem)
                parts.link.send(agent_pb2.SessionRequest(output_deleted=gone))
            case act.Note(event, key, message):
                log.warning(event, worker=str(key), error=message)
            case _:
                assert_never(action)

    def _make_hello(self, epoch: int, reports: tuple[WorkerReport, ...]) -> agent_pb2.Hello:
        return agent_pb2.Hello(
            agent_version=__version__,
            boot_id=shim_files.boot_id(),
            inventory=self._parts.gpus.inventory(),
            address=self._address,
            epoch=epoch,
            workers=[codec.worker_report_to_proto(report) for report in reports],
            labels=self._means.labels,
            protocol=protocol.PROTOCOL,
            shim_protocol=SHIM_PROTOCOL,
            unpacks_pools=True,
        )

    def _prepare(self, action: act.Prepare) -> None:
        answer = self._parts.preparation.now(action, self._reactor.facts)
        if answer is not None:
            self._feed(answer)
        else:
            self._tasks.start_soon(self._prepare_slowly, action)

    async def _prepare_slowly(self, action: act.Prepare) -> None:
        answer = await self._parts.preparation.run(action, self._reactor.facts)
        if isinstance(answer, ev.PreparationFailed):
            log.warning("worker.prepare_failed", worker=str(answer.key), error=answer.message)
        self._feed(answer)

    def _launch(self, action: act.LaunchRanks) -> None:
        worker = self._worker(action.key)
        launched = worker.launched if worker else None
        unproven = self._parts.peers.unproven(launched.rendezvous if launched else None)
        if not unproven:
            self._launch_now(action)
        elif action.key not in self._resolving:
            self._resolving.add(action.key)
            self._tasks.start_soon(self._resolve, action, unproven)

    async def _resolve(self, action: act.LaunchRanks, names: list[str]) -> None:
        """Launch once the peers' names mean something here, unless the launch was called off meanwhile."""
        problem = await self._parts.peers.problem(names)
        self._resolving.discard(action.key)
        worker = self._worker(action.key)
        state = worker.state if worker else None
        if not isinstance(state, Launching) or state.generation != action.generation:
            return
        if problem:
            self._feed(ev.LaunchRefused(action.key, action.generation, problem, host_fault=True))
        else:
            self._launch_now(action)

    def _launch_now(self, action: act.LaunchRanks) -> None:
        parts = self._parts
        parts.preparation.ports.release(action.key)
        try:
            parts.shims.ensure(action.key)
        except OSError as error:
            self._feed(ev.LaunchRefused(action.key, action.generation, f"cannot start a shim: {error.strerror}"))
            return
        user = action.user or self._reactor.facts.user
        values = parts.secrets.of(action.key, action.generation)
        try:
            order = launch_order(action, user, self._means, parts.shims.pid(action.key), values)
        except KeyError as missing:
            problem = f"the controller has sent no value for {missing.args[0]}"
            self._feed(ev.LaunchRefused(action.key, action.generation, problem))
            return
        hit("agent.launch.before")
        if not parts.shims.send(action.key, order):
            problem = f"the environments and arguments of {len(action.ranks)} ranks together are too long"
            self._feed(ev.LaunchRefused(action.key, action.generation, problem))
            return
        hit("agent.launch.after")
        if action.generation % PRUNE_EVERY == 0:
            loop = asyncio.get_running_loop()
            loop.call_later(PRUNE_AFTER_S, self._prune, action.key, action.generation)
        parts.sampler.watch(action.key, action.generation, [rank.rank for rank in action.ranks])

    async def read_gpus(self, action: act.ReadGpus | None = None) -> None:
        """Read what the GPUs hold, for an action or because there are others now."""
        read = await self._parts.freeing.read(action)
        if action is not None and isinstance(read.usage, Blind):
            log.debug("gpus.unreadable", worker=str(action.key), error=read.usage.reason)
        self._feed(read)

    async def _run_epilog(self, action: act.RunEpilog) -> None:
        self._feed(await self._parts.preparation.run_epilog(action, self._reactor.facts))

    def _remember(
        self,
        action: act.RememberAttempt | act.RememberAck | act.RememberFreed | act.RememberClosed | act.RememberUnused,
    ) -> None:
        # Harmless to lose, so a full disk must not stop the exit of another worker.
        files = self._parts.files
        try:
            match action:
                case act.RememberUnused(used_bytes):
                    self._parts.freeing.write(used_bytes)
                case act.RememberAttempt(key, generation, attempt):
                    files.note_attempt(key, generation, attempt)
                case act.RememberAck(key, generation, rank) if files.directory(key).exists():
                    files.note_ack(key, generation, rank)
                case act.RememberFreed(key, generation):
                    files.note_freed(key, generation)
                case act.RememberClosed(key, generation):
                    files.note_closed(key, generation)
        except OSError as error:
            log.warning("state_file.write_failed", what=type(action).__name__, error=str(error))

    def _prune(self, key: WorkerId, below: int) -> None:
        try:
            self._parts.files.prune(key, below)
        except (OSError, ValueError) as error:
            log.warning("journals.remove_failed", worker=str(key), error=str(error))

    async def _clear_orphans(self, action: act.ClearOrphans) -> None:
        files = self._parts.files
        try:
            known = shim_files.read_shim_id(files.directory(action.key) / "shim.json")
        except (OSError, ValueError) as error:
            log.warning("shim.identity_unreadable", worker=str(action.key), error=str(error))
            known = None  # the marks in the environment remain
        cgroup = self._means.left(action.key, action.generation)
        mark = orphans.Mark(action.key, self._reactor.facts.name, action.generation, cgroup=cgroup)
        if known is not None and known.boot_id == shim_files.boot_id():
            mark = dataclasses.replace(mark, shim_pid=known.pid, shim_start_ticks=known.start_ticks)
        found = 0
        while True:
            killed, left = await anyio.to_thread.run_sync(orphans.clear, mark)
            found += killed
            if not left:
                break
            self._feed(ev.WorkerStuck(action.key, action.generation, left))
            await anyio.sleep(ORPHANS_AGAIN_S)
        log.info("worker.orphans_killed", worker=str(action.key), killed=found)
        try:
            journal = files.journal(action.key, action.generation)
        except (OSError, ValueError) as error:
            # Nothing is left, but how the ranks ended is unknown: an admin must look.
            self._feed(ev.WorkerStuck(action.key, action.generation, f"its journal can't be read: {error}"))
            return
        self._feed(ev.OrphansCleared(action.key, action.generation, journal, found))

    def _record_exits(self, action: act.RecordExits) -> None:
        exits = self._parts.files.record_exits(action.key, action.generation, action.exits, action.launched)
        for exit_ in exits:
            self._feed(ev.RankExited(action.key, exit_))
        self._feed(ev.WorkerEmptied(action.key, action.generation))
        self._parts.sampler.drop(action.key)
        self._parts.transfer.poke()

    async def _remove_output(self, job: str) -> None:
        self._parts.preparation.archive.drop(job)
        problem = ""
        try:
            hit("agent.output.before")
            folder = Path(self._reactor.facts.log_dir)
            await anyio.to_thread.run_sync(remove_tree, folder, job, limiter=self._removing)
            hit("agent.output.after")
        except OSError as error:
            problem = f"{folder / job}: {error.strerror}"
            log.warning("output.remove_failed", job=job, error=problem)
        self._feed(ev.OutputRemoved(job, problem))

    async def _forget(self, key: WorkerId) -> None:
        self._parts.shims.dismiss(key)
        self._parts.sampler.drop(key)
        self._parts.preparation.archive.release(key)
        try:
            await self._parts.preparation.containers.remove(key)
            self._means.cgroups.forget(key)
            self._parts.hangs.forget(key)
            hit("agent.forget.before")
            self._parts.files.remove(key)
            hit("agent.forget.after")
            if not any(other.job == key.job and other != key for other in self._reactor.workers):
                # At once, and only then what takes time: the job's next worker here may be prepared meanwhile.
                self._parts.preparation.release(key.job)
                scratch = Path(self._reactor.facts.scratch_dir)
                if aside := set_aside(scratch, key.job):
                    await anyio.to_thread.run_sync(remove_aside, scratch, aside)
        except OSError as error:
            log.warning("worker.remove_failed", worker=str(key), error=str(error))
        self._feed(ev.WorkerForgotten(key))
