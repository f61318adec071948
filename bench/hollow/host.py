"""One hollow host: the agent's own core and its own link to the controller, above ranks that exist only in memory.

What the core decides is done as a healthy host would do it, at once: places are prepared, ranks are started and
stopped, and whatever an agent keeps on its disk is kept in memory, as long as the fleet lives. A rank runs the
"program" that its command names: ``hold`` until it is told to end, or ``exit`` at once. Those that hold seem to train,
and the host tells of it what an agent tells (``bench.hollow.telemetry``), unless it is a bare one.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, assert_never

from bench.hollow.telemetry import Telemetry

from holdfast._base.addresses import Addresses
from holdfast._security.tls import TlsFiles
from holdfast._session import codec
from holdfast._session.reports import Exit, ExitReason, WorkerId, WorkerReport, decode_status
from holdfast.v1 import agent_pb2, host_pb2
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser
from holdfast_agent.core.model.gpus import GpuUsage
from holdfast_agent.core.worker import actions as act
from holdfast_agent.core.worker import events as ev
from holdfast_agent.core.worker.reactor import Reactor
from holdfast_agent.core.worker.states import Running
from holdfast_agent.shell.session.assignment_checks import checked_assignment
from holdfast_agent.shell.session.link import Link

GIB = 1 << 30
FIRST_PORT = 20_000
HOLD, EXIT = "hold", "exit"
"""What a hollow rank may run."""
_SIGTERM = 15


class HollowHost:
    """A host of so many simulated GPUs; see ``link.Listener`` for who calls it. ``counts`` is of its whole life."""

    def __init__(
        self,
        name: str,
        controller: str,
        tls: TlsFiles,
        gpus: int,
        on_change: Callable[[], None],
        *,
        bare: bool = False,
        cpus: int = 64,
        most_workers: int = 64,
    ) -> None:
        user = WorkerUser("hollow", "/", "/bin/sh")
        self.name = name
        self.counts: Counter[str] = Counter()
        """launched, stopped and ended ranks; sessions; features and minutes that were told."""
        self.epoch = 0
        """Of the controller that this host has a session with; 0 while it has none."""
        self.link = Link(Addresses(controller), tls, self)
        facts = HostFacts(name, "/nowhere", "/nowhere", user, 64)
        self._reactor = Reactor(facts)
        self._bare = bare
        self._telemetry = Telemetry(
            controller, tls, facts, lambda: self._reactor.epoch, self.link.send, self.counts
        )
        self._cpus, self._most_workers = cpus, most_workers
        self._gpus = [f"GPU-{name}-{index}" for index in range(gpus)]
        self._on_change = on_change
        self._events: deque[ev.Event] = deque()
        self._stepping = False
        self._running: dict[WorkerId, tuple[int, list[int]]] = {}
        """Generation and living ranks of each place."""
        self._ports = itertools.cycle(range(FIRST_PORT, 32_000))
        self._pids = itertools.count(1000)
        self._hello = agent_pb2.Hello()

    async def run(self) -> None:
        """Live until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.link.run())
            if not self._bare:
                tasks.create_task(self._telemetry.run())

    @property
    def unacked(self) -> int:
        """Ends that the controller has not acknowledged."""
        return len(self._reactor.outbox)

    @property
    def living(self) -> int:
        """Ranks that run."""
        return sum(len(ranks) for _, ranks in self._running.values())

    @property
    def running(self) -> int:
        """Places all of whose ranks were started."""
        return sum(isinstance(worker.state, Running) for worker in self._reactor.workers.values())

    def end(self, job: str, code: int, first: int | None = None) -> None:
        """Let the ranks of a job that run here (or only ``first``, if it does) end with ``code``."""
        for key, (generation, ranks) in list(self._running.items()):
            if key.job == job:
                wanted = ranks if first is None else [rank for rank in ranks if rank == first]
                self._end(key, generation, wanted, code << 8)

    # --- what the controller says -----------------------------------------------------------------------------

    def on_dialled(self) -> agent_pb2.Hello:
        """See ``link.Listener``."""
        self.feed(ev.Dialled())
        return self._hello

    def on_welcome(self, welcome: agent_pb2.Welcome) -> bool:
        """See ``link.Listener``."""
        self.epoch = welcome.epoch
        self.counts["sessions"] += 1
        self.feed(ev.Welcomed(welcome.epoch))
        self._on_change()
        return True

    def on_message(self, message: agent_pb2.SessionResponse) -> None:
        """See ``link.Listener``."""
        match message.WhichOneof("message"):
            case "assignment":
                self.feed(ev.Assigned(checked_assignment(message.assignment)))
            case "delete_output":
                for job in message.delete_output.job_ids:
                    self.feed(ev.OutputUnwanted(job))
            case "exit_ack":
                for sequence in (message.exit_ack.sequence, *message.exit_ack.others):
                    self.feed(ev.ExitAcked(sequence))
                    self.counts["acked"] += 1
                self._on_change()

    def on_answered(self, sent_s: float) -> None:
        """See ``link.Listener``."""
        self.feed(ev.ControllerHeard(sent_s))

    def on_disconnected(self) -> None:
        """See ``link.Listener``."""
        self.epoch = 0
        self.feed(ev.Disconnected())
        self._on_change()

    def heartbeat(self) -> agent_pb2.Heartbeat:
        """See ``link.Listener``."""
        return agent_pb2.Heartbeat()

    # --- what the core decides --------------------------------------------------------------------------------

    def feed(self, event: ev.Event) -> None:
        """Step the core and do what it decides; events that come up meanwhile are next."""
        self._events.append(event)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._events:
                for action in self._reactor.step(self._events.popleft(), time.monotonic()):
                    self._perform(action)
        finally:
            self._stepping = False

    def _perform(self, action: act.Action) -> None:
        match action:
            case act.SendHello(epoch, reports):
                self._hello = self._greeting(epoch, reports)
            case act.SendReport(report):
                self.link.send(agent_pb2.SessionRequest(worker_report=codec.worker_report_to_proto(report)))
                self._on_change()
            case act.SendExit():
                self.link.send(agent_pb2.SessionRequest(exit_report=codec.exit_report_to_proto(action.report)))
            case act.Prepare(assignment, ports):
                port, master_port = (*ports, 0, 0)[:2] if ports else (next(self._ports), next(self._ports))
                master_port = master_port if assignment.launch and assignment.launch.first_rank == 0 else 0
                ready = ev.WorkerPrepared(
                    assignment.key, assignment.generation, port, master_port, next(self._pids)
                )
                self.feed(ready)
            case act.LaunchRanks():
                self._launch(action)
            case act.StopRanks(key, generation, _, reason):
                self._stop(key, generation, reason)
            case act.ReadGpus(key, generation):
                usage = tuple(GpuUsage(uuid, 0, ()) for uuid in self._gpus)
                self.feed(ev.GpusRead(usage, key, generation))
            case act.Forget(key):
                self._telemetry.forget(key)
                self.feed(ev.WorkerForgotten(key))
            case act.RemoveOutput(job):
                self.feed(ev.OutputRemoved(job))
            case act.SendOutputDeleted(job):
                self.link.send(agent_pb2.SessionRequest(output_deleted=agent_pb2.OutputDeleted(job_id=job)))
            case (
                act.ClearOrphans() | act.RecordExits() | act.RunEpilog() | act.CloseSession() | act.SendGoingDown()
            ):
                raise AssertionError(f"a healthy hollow host never has to do {action}")
            case act.Note(event):
                self.counts[f"note {event}"] += 1
            case (
                act.PersistEpoch()
                | act.RememberAttempt()
                | act.RememberAck()
                | act.RememberFreed()
                | act.RememberClosed()
                | act.RememberUnused()
                | act.FreePorts()
                | act.RenewFence()
                | act.SignalRanks()
                | act.AbandonPreparation()
            ):
                pass  # Nothing is left to do where there is no disk and no process.
            case _:
                assert_never(action)

    def _greeting(self, epoch: int, reports: tuple[WorkerReport, ...]) -> agent_pb2.Hello:
        gpus = [
            host_pb2.Gpu(uuid=uuid, index=index, model="NVIDIA H100 80GB HBM3", memory_bytes=80 * GIB)
            for index, uuid in enumerate(self._gpus)
        ]
        return agent_pb2.Hello(
            agent_version="hollow",
            boot_id=f"boot-{self.name}",
            inventory=host_pb2.Inventory(
                cpu_count=self._cpus, memory_bytes=512 * GIB, max_workers=self._most_workers, gpus=gpus
            ),
            address="127.0.0.1",
            epoch=epoch,
            workers=[codec.worker_report_to_proto(report) for report in reports],
            unpacks_pools=True,
        )

    # --- ranks ------------------------------------------------------------------------------------------------

    def _launch(self, action: act.LaunchRanks) -> None:
        ranks = [rank.rank for rank in action.ranks]
        self._running[action.key] = action.generation, ranks
        self.counts["launched"] += len(ranks)
        for rank in list(ranks):
            self.feed(ev.RankStarted(action.key, action.generation, rank, next(self._pids)))
        if EXIT not in action.ranks[0].argv:
            if not self._bare:
                self._telemetry.on_launch(action.key, action.generation, ranks)
        else:
            # As soon as the start was told, in a turn of its own as a process's end would come.
            end: Callable[..., Any] = self._end
            asyncio.get_running_loop().call_soon(end, action.key, action.generation, list(ranks), 0)

    def _stop(self, key: WorkerId, generation: int, reason: ExitReason) -> None:
        known, ranks = self._running.get(key, (0, []))
        if known == generation:
            self.counts["stopped"] += len(ranks)
            self._end(key, generation, list(ranks), _SIGTERM, reason)
        self.feed(ev.WorkerEmptied(key, generation))

    def _end(
        self, key: WorkerId, generation: int, wanted: list[int], status: int, reason: ExitReason | None = None
    ) -> None:
        known, ranks = self._running.get(key, (0, []))
        if known != generation:
            return
        if reason is None:
            reason = ExitReason.COMPLETED if status == 0 else ExitReason.NONZERO_EXIT
        for rank in list(wanted):
            if rank in ranks:
                ranks.remove(rank)
                self.counts["ended"] += 1
                end = Exit(0, generation, rank, reason, *decode_status(status), reason.name, time.time())
                if reason is ExitReason.NONZERO_EXIT:
                    self._telemetry.on_failure(key, end)
                self.feed(ev.RankExited(key, end))
        if not ranks:
            del self._running[key]
            self._telemetry.on_empty(key)
            self.feed(ev.WorkerEmptied(key, generation))
