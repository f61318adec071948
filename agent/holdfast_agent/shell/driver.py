"""Carries events to the reactor and does what it decides. Decides nothing.

Events come from callbacks of the event loop (shims, the control stream) and from tasks (preparations, strays).
Each is stepped and its actions are performed at once, in the callback that brought it: on the way of a rank's exit
to the controller, or of a launch to the shim, nothing is awaited.

Longer than 400 lines because it is the one place where every event comes from and every action goes to.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, assert_never

import anyio
import anyio.abc
import anyio.to_thread

from holdfast import __version__, protocol
from holdfast.failpoints import hit
from holdfast.protocol import Speaker
from holdfast.v1 import agent_pb2
from holdfast_agent.core import events as ev
from holdfast_agent.core.environment import HostFacts
from holdfast_agent.core.gpus import Blind
from holdfast_agent.core.model import PlaceKey
from holdfast_agent.core.place import Launching, Place, Prepared, Preparing, Running
from holdfast_agent.core.reactor import Reactor
from holdfast_agent.shell import log, shim_files, strays, wire
from holdfast_agent.shell.gpu_freeing import GpuFreeing
from holdfast_agent.shell.gpu_watch import GpuWatch
from holdfast_agent.shell.hang_reports import HangReports
from holdfast_agent.shell.launching import Means, launch_order
from holdfast_agent.shell.link import Link
from holdfast_agent.shell.logs import Sampler
from holdfast_agent.shell.peers import Peers
from holdfast_agent.shell.place_files import EpochFile, PlaceFiles
from holdfast_agent.shell.preparation import Preparation
from holdfast_agent.shell.sampling.place import Watched
from holdfast_agent.shell.sampling.sampler import Sampler as HangSampler
from holdfast_agent.shell.scratch import remove_scratch
from holdfast_agent.shell.secret_values import SecretValues
from holdfast_agent.shell.shims import Shims
from holdfast_agent.shell.transfer import Transfer
from holdfast_agent.shim import VERSION as SHIM_PROTOCOL

ADOPTION_S = 5.0
"""How long living shims may take to say where they stand, before the controller is told without it."""
STRAYS_AGAIN_S = 5.0
LAST_WORDS_S = 10.0
"""How long a host that goes down waits for its controller, once nothing runs there any more. Ends are on disk."""
PRUNE_EVERY, PRUNE_AFTER_S = 32, 1.0
"""Old journals go now and then, and not while the ranks start."""


@dataclasses.dataclass
class Parts:
    """What a driver drives; made by the daemon."""

    files: PlaceFiles
    epoch: EpochFile
    gpus: GpuWatch
    freeing: GpuFreeing
    sampler: Sampler
    preparation: Preparation
    peers: Peers
    shims: Shims
    link: Link
    transfer: Transfer
    sampling: HangSampler
    hangs: HangReports
    secrets: SecretValues = dataclasses.field(default_factory=SecretValues)


class Driver:
    """One agent. ``start`` once its parts are there; then it lives in callbacks and in the task group's tasks."""

    def __init__(
        self, facts: HostFacts, epoch: int, address: str, tasks: anyio.abc.TaskGroup, means: Means
    ) -> None:
        self.parts: Parts
        self.means = means
        self._reactor = Reactor(facts, epoch)
        self._address = address
        self._tasks = tasks
        self._events: deque[ev.Event] = deque()
        self._stepping = False
        self._resolving: set[PlaceKey] = set()
        """Places whose launch waits for names."""
        self._session_over = False
        self._stepped = anyio.Event()
        self._hello = agent_pb2.Hello()

    @property
    def facts(self) -> HostFacts:
        """As of now: GPUs come and go."""
        return self._reactor.facts

    async def adopt(self) -> None:
        """Take up every place of an earlier life; returns once living shims have said where they stand."""
        files, shims = self.parts.files, self.parts.shims
        self._reactor.unused.update(self.parts.freeing.known())
        living = []
        for key in files.found():
            try:
                journals = await anyio.to_thread.run_sync(files.journals, key)
                found = ev.PlaceFound(key, files.attempts(key), journals, files.acked(key), 0, files.freed(key))
                found = dataclasses.replace(found, closed=files.closed(key))
            except (OSError, ValueError) as error:
                # Left alone rather than guessed at: an admin must look.
                log.warning("place.unreadable", place=str(key), problem=str(error))
                continue
            if shims.adopt(key):
                living.append(key)
                found = dataclasses.replace(found, shim_pid=shims.pid(key))
            log.info("place.found", place=str(key), generations=len(journals), shim_pid=found.shim_pid)
            self.feed(found)
            if found.shim_pid and journals and not journals[-1].empty:
                self.parts.sampler.watch(key, journals[-1].generation, journals[-1].launched)
        with anyio.move_on_after(ADOPTION_S):
            for key in living:
                await shims.ready(key)

    @property
    def unused(self) -> Mapping[str, int]:
        """What each GPU holds while nothing uses it; more is learnt all the time."""
        return self._reactor.unused

    def known(self) -> Collection[PlaceKey]:
        """The places that there are, now and later."""
        return self._reactor.places.keys()

    def place(self, key: PlaceKey) -> Place | None:
        """What is known of a place; None where there is none."""
        return self._reactor.places.get(key)

    def is_over(self, key: PlaceKey, generation: int, rank: int) -> bool:
        """Whether a rank of a generation will write no more."""
        place = self._reactor.places.get(key)
        if place is None or generation < place.standing.generation or (generation, rank) in place.ended:
            return True
        if generation > place.standing.generation or isinstance(place.standing, (Preparing, Prepared, Launching)):
            return False
        return place.standing.state.word == "EMPTY"

    def watched(self) -> Iterator[Watched]:
        """What runs now, for the sampler."""
        for place in self._reactor.places.values():
            if not isinstance(place.standing, Running):
                continue
            launch = place.launched or (place.wish.launch if place.wish else None)
            yield Watched(
                key=place.key,
                generation=place.standing.generation,
                shim_pid=place.shim_pid,
                pids=dict(place.pids),
                ended=dict(place.codes),
                gpus=launch.gpus if launch else (),
                fresh=place.launched_at is not None,
                paused=self.parts.hangs.stopping(place.key),
            )

    def status(self) -> str:
        """One line for whoever looks at the service."""
        workers = sum(isinstance(place.standing, Running) for place in self._reactor.places.values())
        if self._reactor.going_down:
            return f"the host goes down; {workers} still running"
        to = "connected" if self._reactor.connected else "no controller"
        return f"{workers} {'worker' if workers == 1 else 'workers'}, {to}"

    async def wind_down(self) -> None:
        """The host goes down: end what runs, then give the controller a while to acknowledge the ends."""
        self.feed(ev.ShutdownBegan())
        reactor = self._reactor
        await self._until(lambda: reactor.wound_down)
        with anyio.move_on_after(LAST_WORDS_S):
            await self._until(lambda: not reactor.outbox)
        self.parts.shims.quit()
        log.info("host.wound_down", unacknowledged=len(reactor.outbox))

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
                for action in self._reactor.step(self._events.popleft(), time.monotonic()):
                    self._perform(action)
        finally:
            self._stepping = False
            self._stepped.set()

    def on_dialled(self) -> agent_pb2.Hello:
        """See ``link.Listener``."""
        self._session_over = False
        self.feed(ev.Dialled())
        return self._hello

    def on_welcome(self, welcome: agent_pb2.Welcome) -> bool:
        """See ``link.Listener``."""
        theirs = Speaker(welcome.controller_version, welcome.protocol)
        refusal = protocol.mismatch(theirs, Speaker(__version__, protocol.PROTOCOL), self.facts.name)
        if refusal is not None:
            log.warning("session.refused", problem=str(refusal))
            return False
        self.feed(ev.Welcomed(welcome.epoch))
        return not self._session_over

    def on_message(self, message: agent_pb2.SessionResponse) -> None:
        """See ``link.Listener``."""
        match message.WhichOneof("message"):
            case "assignment":
                self.parts.secrets.take(message.assignment)
                try:
                    assignment = wire.assignment(message.assignment)
                except ValueError as error:
                    log.warning("assignment.malformed", job=message.assignment.job_id, problem=str(error))
                    return
                log.debug(
                    "assigned", place=str(assignment.key), phase=assignment.phase, generation=assignment.generation
                )
                self.feed(ev.Assigned(assignment))
                self._drop_preparation(assignment.key)
            case "heartbeat_ack":
                pass  # that it came is all it says, and ``on_answered`` has said it
            case "exit_ack":
                self.feed(ev.ExitAcked(message.exit_ack.sequence))
            case other:
                log.warning("session.unknown_message", kind=other)

    def on_answered(self, sent_s: float) -> None:
        """See ``link.Listener``."""
        self.feed(ev.ControllerHeard(sent_s))

    def on_disconnected(self) -> None:
        """See ``link.Listener``."""
        self.feed(ev.Disconnected())

    def heartbeat(self) -> agent_pb2.Heartbeat:
        """See ``link.Listener``."""
        return self.parts.gpus.heartbeat()

    def on_gpus(self, names: dict[str, str]) -> None:
        """The host's GPUs were read: UUID to what CUDA calls each."""
        self._reactor.facts = dataclasses.replace(self._reactor.facts, gpu_names=names)
        self._tasks.start_soon(self._read_gpus)

    def on_shim_message(self, key: PlaceKey, message: dict[str, Any]) -> None:
        """What a shim says, as docs/shim-protocol.md has it."""
        generation = message["generation"]
        match message["ev"]:
            case "hello":
                live = message["phase"] in ("running", "stopping")
                self.feed(ev.ShimGreeted(key, message["pid"], generation, live))
            case "started":
                self.feed(ev.RankStarted(key, generation, message["rank"], message["pid"]))
            case "exited":
                record = shim_files.record_from(message)
                assert isinstance(record, shim_files.Exited)
                self.feed(ev.RankExited(key, generation, self.parts.files.end(key, generation, record)))
                self.parts.transfer.poke()
            case "empty":
                self.feed(ev.PlaceEmptied(key, generation))
                self.parts.sampler.drop(key)
                self.parts.transfer.poke()
            case "stuck":
                self.feed(ev.PlaceStuck(key, generation, message["message"]))
            case "note":
                log.warning("shim.note", place=str(key), generation=generation, problem=message["message"])
            case "refused" if generation:
                self.feed(ev.LaunchRefused(key, generation, message["message"]))
            case _:
                log.debug("shim.said", place=str(key), message=message)

    def on_shim_lost(self, key: PlaceKey) -> None:
        """A shim's process is gone."""
        log.info("shim.gone", place=str(key))
        self.feed(ev.ShimLost(key))

    def on_preparation_takes_long(self, key: PlaceKey, generation: int, doing: str) -> None:
        """A preparation says what it is doing."""
        log.info("place.preparing", place=str(key), doing=doing)
        self.feed(ev.PreparationTakesLong(key, generation, doing))

    # --- actions ----------------------------------------------------------------------------------------------

    def _perform(self, action: ev.Action) -> None:
        parts = self.parts
        match action:
            case ev.SendReport(report):
                # In order: what the controller has not heard of a generation by the time that its place is ready
                # for the next one, it takes for never started.
                hit("agent.report.before")
                parts.link.send(agent_pb2.SessionRequest(worker_report=wire.worker_report(report)))
                hit("agent.report.after")
                log.debug("reported", place=str(report.key), state=report.state, generation=report.generation)
            case ev.SendGoingDown():
                parts.link.send(agent_pb2.SessionRequest(going_down=agent_pb2.GoingDown()))
            case ev.SendExit():
                hit("agent.exit.before")
                parts.link.send(wire.exit_report(action))
                hit("agent.exit.after")
                log.debug("exit.sent", place=str(action.key), rank=action.end.rank, reason=action.end.reason.name)
            case ev.LaunchRanks():
                self._launch(action)
            case ev.StopRanks(key, generation, grace_s, reason):
                stop = {"op": "stop", "generation": generation, "grace_s": grace_s, "reason": reason.value}
                hit("agent.stop.before")
                parts.shims.send(key, stop)
                hit("agent.stop.after")
            case ev.RenewFence(key, generation, deadline_s):
                parts.shims.send(key, {"op": "renew", "generation": generation, "deadline": deadline_s})
            case ev.SignalRanks(key, generation, number):
                log.info("ranks.warned", place=str(key), generation=generation, signal=number)
                parts.shims.send(key, {"op": "signal", "generation": generation, "signal": number})
            case ev.Prepare():
                self._prepare(action)
            case ev.AbandonPreparation(key):
                parts.preparation.abandon(key)
            case ev.FreePorts(key):
                parts.preparation.ports.free(key)
            case ev.SendHello(epoch, reports):
                self._hello = self._make_hello(epoch, reports)
            case ev.CloseSession(message):
                log.warning("session.refused", problem=message)
                self._session_over = True
            case ev.PersistEpoch(epoch):
                parts.epoch.write(epoch)
            case (
                ev.RememberAttempt()
                | ev.RememberAck()
                | ev.RememberFreed()
                | ev.RememberClosed()
                | ev.RememberUnused()
            ):
                self._remember(action)
            case ev.RunEpilog():
                self._tasks.start_soon(self._run_epilog, action)
            case ev.ReadGpus():
                self._tasks.start_soon(self._read_gpus, action)
            case ev.ClearStrays():
                self._tasks.start_soon(self._clear_strays, action)
            case ev.RecordEnds():
                self._record_ends(action)
            case ev.Forget(key):
                self._tasks.start_soon(self._forget, key)
            case ev.Note(event, key, message):
                log.warning(event, place=str(key), problem=message)
            case _:
                assert_never(action)

    def _make_hello(self, epoch: int, reports: tuple[ev.Report, ...]) -> agent_pb2.Hello:
        return agent_pb2.Hello(
            agent_version=__version__,
            boot_id=shim_files.boot_id(),
            inventory=self.parts.gpus.inventory(),
            address=self._address,
            epoch=epoch,
            workers=[wire.worker_report(report) for report in reports],
            labels=self.means.labels,
            protocol=protocol.PROTOCOL,
            shim_protocol=SHIM_PROTOCOL,
        )

    def _prepare(self, action: ev.Prepare) -> None:
        answer = self.parts.preparation.now(action, self.facts)
        if answer is not None:
            self.feed(answer)
        else:
            self._tasks.start_soon(self._prepare_slowly, action)

    async def _prepare_slowly(self, action: ev.Prepare) -> None:
        answer = await self.parts.preparation.run(action, self.facts)
        if isinstance(answer, ev.PreparationFailed):
            log.warning("place.cannot_prepare", place=str(answer.key), problem=answer.message)
        self.feed(answer)

    def _drop_preparation(self, key: PlaceKey) -> None:
        place = self.place(key)
        if place is None or place.wish is None or not isinstance(place.standing, Preparing):
            return
        if place.wish.launch is None or place.wish.generation > place.standing.generation:
            self.parts.preparation.abandon(key)

    async def remove_stray_containers(self) -> None:
        """Those of workers that are not known here; not before all places of an earlier life have been taken up."""
        await self.parts.preparation.containers.remove_strays(self.known())

    def _launch(self, action: ev.LaunchRanks) -> None:
        place = self.place(action.key)
        launched = place.launched if place else None
        unproven = self.parts.peers.unproven(launched.rendezvous if launched else None)
        if not unproven:
            self._launch_now(action)
        elif action.key not in self._resolving:
            self._resolving.add(action.key)
            self._tasks.start_soon(self._resolve, action, unproven)

    async def _resolve(self, action: ev.LaunchRanks, names: list[str]) -> None:
        """Launch once the peers' names mean something here, unless the launch was called off meanwhile."""
        problem = await self.parts.peers.problem(names)
        self._resolving.discard(action.key)
        place = self.place(action.key)
        standing = place.standing if place else None
        if not isinstance(standing, Launching) or standing.generation != action.generation:
            return
        if problem:
            self.feed(ev.LaunchRefused(action.key, action.generation, problem, host_fault=True))
        else:
            self._launch_now(action)

    def _launch_now(self, action: ev.LaunchRanks) -> None:
        parts = self.parts
        parts.preparation.ports.release(action.key)
        try:
            parts.shims.ensure(action.key)
        except OSError as error:
            self.feed(ev.LaunchRefused(action.key, action.generation, f"cannot start a shim: {error.strerror}"))
            return
        try:
            values = parts.secrets.of(action.key, action.generation)
            order = launch_order(action, self.facts.user, self.means, parts.shims.pid(action.key), values)
        except KeyError as missing:
            problem = f"the controller has sent no value for {missing.args[0]}"
            self.feed(ev.LaunchRefused(action.key, action.generation, problem))
            return
        hit("agent.launch.before")
        if not parts.shims.send(action.key, order):
            problem = f"the environments and arguments of {len(action.ranks)} ranks together are too long"
            self.feed(ev.LaunchRefused(action.key, action.generation, problem))
            return
        hit("agent.launch.after")
        if action.generation % PRUNE_EVERY == 0:
            loop = asyncio.get_running_loop()
            loop.call_later(PRUNE_AFTER_S, self._prune, action.key, action.generation)
        parts.sampler.watch(action.key, action.generation, [rank.rank for rank in action.ranks])

    async def _read_gpus(self, action: ev.ReadGpus | None = None) -> None:
        read = await self.parts.freeing.read(action)
        if action is not None and isinstance(read.usage, Blind):
            log.debug("gpus.unreadable", place=str(action.key), problem=read.usage.reason)
        self.feed(read)

    async def _run_epilog(self, action: ev.RunEpilog) -> None:
        self.feed(await self.parts.preparation.run_epilog(action, self.facts))

    def _remember(
        self,
        action: ev.RememberAttempt | ev.RememberAck | ev.RememberFreed | ev.RememberClosed | ev.RememberUnused,
    ) -> None:
        # Harmless to lose, so a full disk must not stop the exit of another worker.
        files = self.parts.files
        try:
            match action:
                case ev.RememberUnused(used_bytes):
                    self.parts.freeing.write(used_bytes)
                case ev.RememberAttempt(key, generation, attempt):
                    files.note_attempt(key, generation, attempt)
                case ev.RememberAck(key, generation, rank) if files.directory(key).exists():
                    files.note_ack(key, generation, rank)
                case ev.RememberFreed(key, generation):
                    files.note_freed(key, generation)
                case ev.RememberClosed(key, generation):
                    files.note_closed(key, generation)
        except OSError as error:
            log.warning("note.lost", what=type(action).__name__, problem=str(error))

    def _prune(self, key: PlaceKey, below: int) -> None:
        try:
            self.parts.files.prune(key, below)
        except (OSError, ValueError) as error:
            log.warning("journals.kept", place=str(key), problem=str(error))

    async def _clear_strays(self, action: ev.ClearStrays) -> None:
        files = self.parts.files
        try:
            known = shim_files.read_shim_id(files.directory(action.key) / "shim.json")
        except (OSError, ValueError) as error:
            log.warning("shim.unknown", place=str(action.key), problem=str(error))
            known = None  # the marks in the environment remain
        cgroup = self.means.left(action.key, action.generation)
        mark = strays.Mark(action.key, self.facts.name, action.generation, cgroup=cgroup)
        if known is not None and known.boot_id == shim_files.boot_id():
            mark = dataclasses.replace(mark, shim_pid=known.pid, shim_start_ticks=known.start_ticks)
        found = 0
        while True:
            killed, left = await anyio.to_thread.run_sync(strays.clear, mark)
            found += killed
            if not left:
                break
            self.feed(ev.PlaceStuck(action.key, action.generation, left))
            await anyio.sleep(STRAYS_AGAIN_S)
        log.info("strays.cleared", place=str(action.key), found=found)
        try:
            journal = files.journal(action.key, action.generation)
        except (OSError, ValueError) as error:
            # Nothing is left, but how the ranks ended can't be told: an admin must look.
            self.feed(ev.PlaceStuck(action.key, action.generation, f"its journal can't be read: {error}"))
            return
        self.feed(ev.StraysCleared(action.key, action.generation, journal, found))

    def _record_ends(self, action: ev.RecordEnds) -> None:
        ends = self.parts.files.record_ends(action.key, action.generation, action.ends, action.launched)
        for end in ends:
            self.feed(ev.RankExited(action.key, action.generation, end))
        self.feed(ev.PlaceEmptied(action.key, action.generation))
        self.parts.sampler.drop(action.key)
        self.parts.transfer.poke()

    async def _forget(self, key: PlaceKey) -> None:
        self.parts.shims.dismiss(key)
        self.parts.sampler.drop(key)
        self.parts.preparation.archive.release(key)
        try:
            await self.parts.preparation.containers.remove(key)
            self.means.cgroups.forget(key)
            hit("agent.forget.before")
            self.parts.files.remove(key)
            hit("agent.forget.after")
            if not any(other.job == key.job and other != key for other in self._reactor.places):
                await anyio.to_thread.run_sync(remove_scratch, Path(self.facts.scratch_dir), key.job)
                self.parts.preparation.release(key.job)
        except OSError as error:
            log.warning("place.not_removed", place=str(key), problem=str(error))
        self.feed(ev.PlaceForgotten(key))
