"""Carries events to the agent's reactor, and what it decides to the performer. Decides nothing.

Events come from callbacks of the event loop (shims, the control stream) and from tasks (preparations, orphans).
Each is stepped and its actions are performed at once, in the callback that brought it.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread

from holdfast import __version__
from holdfast._daemon import log
from holdfast._daemon.metrics.series import Series
from holdfast._session import protocol
from holdfast._session.assignment import Rendezvous
from holdfast._session.protocol import Speaker
from holdfast._session.reports import Exit, ReportedState, WorkerId
from holdfast.v1 import agent_pb2
from holdfast_agent.core.launch.environment import HostFacts
from holdfast_agent.core.metrics.metering import Meter, gauges
from holdfast_agent.core.model.topology import Topology
from holdfast_agent.core.worker import events as ev
from holdfast_agent.core.worker.reactor import Reactor
from holdfast_agent.core.worker.states import Launching, Prepared, Preparing, Running
from holdfast_agent.core.worker.worker import Worker
from holdfast_agent.shell.driver.executor import Parts, Performer
from holdfast_agent.shell.driver.last_looks import LastLooks
from holdfast_agent.shell.prepare.launch_order import Means
from holdfast_agent.shell.sampling.worker import Watched
from holdfast_agent.shell.session.assignment_checks import checked_assignment, is_job
from holdfast_agent.shell.shims import shim_files

ADOPTION_S = 5.0
"""Seconds that living shims may take to report their state, before the controller gets reports without it."""
_FAILURES = frozenset({"NONZERO_EXIT", "SIGNALED", "OUT_OF_MEMORY"})
LAST_WORDS_S = 10.0
"""How long a host that goes down waits for its controller, once nothing runs there any more. Ends are on disk."""


class Driver:
    """One agent. ``equip`` it with its parts; then it lives in callbacks and in the task group's tasks."""

    def __init__(
        self, facts: HostFacts, epoch: int, address: str, tasks: anyio.abc.TaskGroup, means: Means
    ) -> None:
        self.parts: Parts
        self.means = means
        self._performer: Performer
        self._reactor = Reactor(facts, epoch)
        self.meter = Meter()
        self._address = address
        self._tasks = tasks
        self._looks = LastLooks(self._look, tasks)
        self._events: deque[ev.Event] = deque()
        self._stepping = False
        self._stepped = anyio.Event()
        self.on_session: Callable[[], None] = lambda: None
        """Called when a session has opened."""

    def equip(self, parts: Parts) -> None:
        """Take the parts, most of which are made with callbacks of this driver."""
        self.parts = parts
        self._performer = Performer(self._reactor, parts, self.means, self._address, self._tasks, self.feed)

    @property
    def facts(self) -> HostFacts:
        """The host's facts as of now: GPUs come and go."""
        return self._reactor.facts

    async def adopt(self) -> None:
        """Take up every worker of an earlier run of the agent; returns once living shims have reported their state.

        Raises ``StoreError`` where it can't be found out whether a shim lives.
        """
        files, shims = self.parts.files, self.parts.shims
        self._reactor.unused.update(self.parts.freeing.known())
        living = []
        for key in files.found():
            try:
                journals = await anyio.to_thread.run_sync(files.journals, key)
                found = ev.WorkerFound(key, files.attempts(key), journals, files.acked(key), 0, files.freed(key))
                found = dataclasses.replace(found, closed=files.closed(key))
            except (OSError, ValueError) as error:
                # Left alone rather than guessed at: an admin must look.
                log.warning("worker.state_unreadable", worker=str(key), error=str(error))
                continue
            if await shims.found(key):
                living.append(key)
                found = dataclasses.replace(found, shim_pid=shims.pid(key))
            log.info("worker.found", worker=str(key), generations=len(journals), shim_pid=found.shim_pid)
            self.feed(found)
            if found.shim_pid and journals and not journals[-1].empty:
                self.parts.sampler.watch(key, journals[-1].generation, journals[-1].launched)
        with anyio.move_on_after(ADOPTION_S):
            for key in living:
                await shims.ready(key)

    @property
    def unused(self) -> Mapping[str, int]:
        """Bytes that each GPU holds while no process uses it, by UUID; the figures improve over time."""
        return self._reactor.unused

    def known(self) -> Collection[WorkerId]:
        """The keys of all workers, as a live view."""
        return self._reactor.workers.keys()

    def worker(self, key: WorkerId) -> Worker | None:
        """The worker with this key; None where there is none."""
        return self._reactor.workers.get(key)

    def is_over(self, key: WorkerId, generation: int, rank: int) -> bool:
        """Whether a rank of a generation will write no more."""
        worker = self._reactor.workers.get(key)
        if worker is None or generation < worker.state.generation or (generation, rank) in worker.ended:
            return True
        if generation > worker.state.generation or isinstance(worker.state, (Preparing, Prepared, Launching)):
            return False
        return worker.state.kind.reported is ReportedState.EMPTY

    def watched(self) -> Iterator[Watched]:
        """The running workers, for the sampler."""
        for worker in self._reactor.workers.values():
            if isinstance(worker.state, Running):
                yield self._watched(worker)

    def _watched(self, worker: Worker) -> Watched:
        launch = worker.launched or (worker.desired.launch if worker.desired else None)
        return Watched(
            key=worker.key,
            generation=worker.state.generation,
            shim_pid=worker.shim_pid,
            pids=dict(worker.pids),
            ended=dict(worker.codes),
            gpus=launch.gpus if launch else (),
            fresh=worker.launched_at is not None,
            stacks=self.parts.hangs.stacks.found(worker.key),
            peers=_peers(launch.rendezvous) if launch and launch.rendezvous else (),
            world_size=launch.world_size if launch and launch.in_world else 0,
        )

    def gauges(self, now: float) -> Series:
        """The host's gauges for Prometheus; ``now`` is monotonic."""
        gpus = self.parts.gpus
        return gauges(self._reactor, gpus.known, gpus.problem, self.parts.sampling.gpus.host, now)

    @property
    def connected(self) -> bool:
        """Whether a controller has welcomed us and is not gone since."""
        return self._reactor.connected

    @property
    def epoch(self) -> int:
        """The highest epoch of a controller that this agent has obeyed."""
        return self._reactor.epoch

    @property
    def unacknowledged(self) -> int:
        """Ends of ranks that the controller may not have."""
        return len(self._reactor.outbox)

    def status(self) -> str:
        """The agent's state in one line, as systemd shows it."""
        workers = sum(isinstance(worker.state, Running) for worker in self._reactor.workers.values())
        if self._reactor.going_down:
            return f"the host goes down; {workers} still running"
        to = "connected" if self._reactor.connected else "no controller"
        return f"{workers} {'worker' if workers == 1 else 'workers'}, {to}"

    async def remove_orphan_containers(self) -> None:
        """Remove containers of unknown workers; only once all workers of an earlier run have been taken up."""
        await self.parts.preparation.containers.remove_orphans(self.known())

    async def wind_down(self) -> None:
        """The host goes down: warn, end what runs, then give the controller a while to acknowledge the ends."""
        self.feed(ev.ShutdownAhead())
        reactor = self._reactor
        with anyio.move_on_after(reactor.notice_s):
            await self._until(lambda: not reactor.notice_s)
        self.feed(ev.ShutdownBegan())
        await self._until(lambda: reactor.wound_down)
        with anyio.move_on_after(LAST_WORDS_S):
            await self._until(lambda: not reactor.outbox)
        self.parts.shims.quit()
        log.info("host.shutdown_complete", unacknowledged=len(reactor.outbox))

    async def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self._stepped = anyio.Event()
            await self._stepped.wait()

    # --- events -----------------------------------------------------------------------------------------------

    def feed(self, event: ev.Event) -> None:
        """Step the reactor and perform what it decides; events that come up meanwhile are next."""
        self._events.append(event)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._events:
                event, now = self._events.popleft(), time.monotonic()
                actions = self._reactor.step(event, now)
                self.meter.take(event, actions, now)
                for action in actions:
                    self._performer.perform(action)
        finally:
            self._stepping = False
            self._stepped.set()

    def on_dialled(self) -> agent_pb2.Hello:
        """Begin a session on a stream that has opened; returns its first message."""
        self._performer.session_over = False
        self.feed(ev.Dialled())
        return self._performer.hello

    def on_welcome(self, welcome: agent_pb2.Welcome) -> bool:
        """Take the controller's welcome; returns whether to go on with this controller."""
        theirs = Speaker(welcome.controller_version, welcome.protocol)
        refusal = protocol.mismatch(theirs, Speaker(__version__, protocol.PROTOCOL), self.facts.name)
        if refusal is not None:
            log.warning("session.refused", error=str(refusal))
            return False
        self.feed(ev.Welcomed(welcome.epoch, welcome.tell_all))
        self.on_session()
        if self._performer.session_over:
            return False
        self.parts.transfer.dial()
        return True

    def on_message(self, message: agent_pb2.SessionResponse) -> None:
        """Feed an assignment or an acknowledgement to the reactor."""
        match message.WhichOneof("message"):
            case "assignment":
                self.parts.secrets.take(message.assignment)
                try:
                    assignment = checked_assignment(message.assignment)
                except ValueError as error:
                    log.warning("assignment.invalid", job=message.assignment.job_id, error=str(error))
                    return
                log.debug(
                    "assignment.received",
                    worker=str(assignment.key),
                    phase=assignment.phase,
                    generation=assignment.generation,
                )
                self.feed(ev.Assigned(assignment))
                self._drop_preparation(assignment.key)
            case "heartbeat_ack":
                pass  # that it came is all it says, and ``on_answered`` has said it
            case "delete_output":
                for job in message.delete_output.job_ids:
                    if is_job(job):
                        self.feed(ev.OutputUnwanted(job))
                    else:
                        log.warning("output.job_invalid", job=job)
            case "exit_ack":
                for sequence in (message.exit_ack.sequence, *message.exit_ack.others):
                    self.feed(ev.ExitAcked(sequence))
            case other:
                log.warning("session.message_unknown", kind=other)

    def _drop_preparation(self, key: WorkerId) -> None:
        worker = self.worker(key)
        if worker is None or worker.desired is None or not isinstance(worker.state, Preparing):
            return
        if worker.desired.launch is None or worker.desired.generation > worker.state.generation:
            self.parts.preparation.abandon(key)

    def on_answered(self, sent_s: float) -> None:
        """Take note that the controller answered a message sent at ``sent_s``, in seconds since boot."""
        self.feed(ev.ControllerHeard(sent_s))

    def on_disconnected(self) -> None:
        """Handle the end of a session: messages that were sent may be lost."""
        self.feed(ev.Disconnected())

    def heartbeat(self) -> agent_pb2.Heartbeat:
        """The next heartbeat to send, with the GPUs' state and this host's clock."""
        beat = self.parts.gpus.heartbeat()
        beat.sent_at.FromNanoseconds(time.time_ns())
        return beat

    def on_gpus(self, names: dict[str, str], topology: Topology) -> None:
        """The host's GPUs were read: UUID to what CUDA calls each, and where they are."""
        self._reactor.facts = dataclasses.replace(self._reactor.facts, gpu_names=names, topology=topology)
        self._tasks.start_soon(self._performer.read_gpus)

    def on_gpu_faults(self) -> None:
        """A GPU has become faulty, or is repaired: the controller is notified now, ahead of any consequence."""
        self.parts.link.beat()

    def on_shim_message(self, key: WorkerId, message: dict[str, Any]) -> None:
        """Turn a shim's message (docs/internals/shim-protocol.md) into an event; of a failure, after a last look."""
        failed = message["ev"] == "exited" and message["reason"] in _FAILURES
        take = functools.partial(self._take, key, message)
        self._looks.then(key, take, ended=int(message["rank"]) if failed else None)

    async def _look(self, key: WorkerId, ended: Collection[int]) -> None:
        worker = self.worker(key)
        if worker is not None and isinstance(worker.state, Running):
            watched = self._watched(worker)
            codes = dict.fromkeys(ended, 125) | dict(watched.ended)
            await self.parts.sampling.last_look(dataclasses.replace(watched, ended=codes))

    def _take(self, key: WorkerId, message: dict[str, Any]) -> None:
        generation = message["generation"]
        match message["ev"]:
            case "hello":
                live = message["phase"] in ("running", "stopping")
                self.feed(ev.ShimGreeted(key, message["pid"], generation, live))
            case "started":
                how = bool(message.get("warm")), bool(message.get("in_process"))
                self.feed(ev.RankStarted(key, generation, message["rank"], message["pid"], *how))
            case "exited":
                record = shim_files.record_from(message)
                assert isinstance(record, Exit)
                self.feed(ev.RankExited(key, self.parts.files.exit(record)))
                if recording := self.parts.series.on_exit(key, record):
                    self._tasks.start_soon(self.parts.series.keep, recording)
                self.parts.transfer.poke()
            case "empty":
                self.feed(ev.WorkerEmptied(key, generation))
                self.parts.sampler.drop(key)
                self.parts.transfer.poke()
            case "stuck":
                self.feed(ev.WorkerStuck(key, generation, message["message"]))
            case "peers":
                self.feed(ev.PeersSilent(key, tuple((index, last) for index, last in message["silent"])))
            case "warm":
                log.info("worker.warm_start", worker=str(key), generation=generation, message=message["message"])
                survivors = frozenset(map(int, message.get("survivors", ())))
                self.feed(ev.WarmStartNoted(key, int(message["ranks"]), str(message["message"])[:500], survivors))
            case "note":
                log.warning("shim.warning", worker=str(key), generation=generation, message=message["message"])
            case "refused" if generation:
                self.feed(ev.LaunchRefused(key, generation, message["message"]))
            case _:
                log.debug("shim.message_received", worker=str(key), message=message)

    def on_shim_lost(self, key: WorkerId) -> None:
        """A shim's process is gone."""
        log.info("shim.exited", worker=str(key))
        self._looks.then(key, lambda: self.feed(ev.ShimLost(key)))

    def on_preparation_takes_long(self, key: WorkerId, generation: int, doing: str) -> None:
        """A preparation says what it is doing."""
        log.info("worker.preparing", worker=str(key), doing=doing)
        self.feed(ev.PreparationTakesLong(key, generation, doing))


def _peers(rendezvous: Rendezvous) -> tuple[str, ...]:
    """host:port of the ranks' meeting point and of each worker."""
    master = f"{rendezvous.master_address}:{rendezvous.master_port}"
    return (master, *(address for pool in rendezvous.pools for address in pool))
