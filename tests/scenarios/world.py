"""A cluster in virtual time: the controller's core, and hosts that say what they are told to.

Each move returns, as short lines, everything that followed: the events in order, then the actions (marked with
``>``). Invariants are checked after every step, against what the hosts of this world have said and not against the
core's own opinion, and the log is folded anew and compared with the living state.

Longer than 400 lines because every story takes its moves from one object.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from tests.scenarios.invariants import check_history, durable
from tests.scenarios.lines import action_line, line

from holdfast._session.assignment import Assignment, Launch
from holdfast._session.reports import Exit, ExitReason, ExitReport, ReportedState, WorkerId, WorkerReport
from holdfast.hang.evidence.evidence import Evidence
from holdfast.hang.pipeline.features import WorkerFeatures
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.allocation import recount
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.lifecycle.other_hosts import schedulable_hosts, takes_work
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang, Pool, Retries, Success, Task
from holdfast_controller.core.model.hosts.host import Gpu, Inventory
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import TERMINAL, JobState
from holdfast_controller.core.model.jobs import JobHead
from holdfast_controller.core.model.sanity import check_sanity
from holdfast_controller.core.reactor import Reactor
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.step import Entry, Policies
from holdfast_controller.shell.store import codec

WALL = 1_000_000.0
GAP = 1_000_000
"""Events that a restore leaves out."""
GIB = 1 << 30


def gang(workers: int = 2, *, gpus: int = 4, processes: int = 1, retries: int = 0, **rules: Any) -> Gang:
    """Pool 0 of one worker and pool 1 of the others; each fills a host of four GPUs; so many retries of the job."""
    pool = Pool(1, Task(("train",)), processes=processes, gpus=gpus)
    pools = (pool,) if workers == 1 else (pool, dataclasses.replace(pool, replicas=workers - 1))
    return Gang(pools, **{"success": Success.ALL, "retries": Retries(job_retries=retries), **rules})


def inventory(
    gpus: int = 4, *, model: str = "NVIDIA H100", cpus: int = 16, memory: int = 64, name: str = ""
) -> Inventory:
    return Inventory(cpus, memory * GIB, tuple(Gpu(f"GPU-{name}-{i}", i, model, 80 * GIB) for i in range(gpus)))


def launch_of(order: Assignment) -> Launch:
    """What an order starts; it has to start something."""
    assert order.launch is not None
    return order.launch


class World:
    """Moves are methods; each returns what followed."""

    def __init__(self, hosts: int = 0, policies: Policies | None = None) -> None:
        self.policies = policies or Policies(secret_key=b"k")
        self.mono = 100.0
        self.cluster = Cluster(epoch=1)
        self.snapshots: dict[str, tuple[int, str]] = {}
        """Newest event and content of jobs that have ended."""
        self._read: dict[str, tuple[int, Job]] = {}
        self.reactor = Reactor(self.cluster, self.policies)
        self.log: list[ev.Event] = []
        self.sentences: list[str] = []
        """Of the events, as users read them."""
        self.sessions: dict[str, int] = {}
        self.greeted: set[int] = set()
        """Sessions that have had their welcome."""
        self.boots: dict[str, str] = {}
        self.labels: dict[str, dict[str, str]] = {}
        """Of hosts."""
        self.clocks: dict[str, float] = {}
        """What the monotonic clock of a host reads more than ours."""
        self.jumped = 0.0
        """By how much the wall clock was set forward."""
        self.sent: list[act.Action] = []
        """Every action so far."""
        self.ready: set[tuple[str, str, int]] = set()
        """(job, worker, generation) that its host has said is prepared."""
        self.kept: dict[str, str] = {}
        """What the store keeps of watches, by job, as it is written."""
        self.restored = False
        self._replayed: Cluster | None = None
        """What the log gave back when the last event was decided; nothing durable may change until the next."""
        self._session = 0
        self._token = 0
        self._sequence = 0
        for number in range(hosts):
            self.join(f"host-{number}")

    # --- users ---------------------------------------------------------------------------------------------------

    def submit(self, job: str, what: Gang | None = None, *, request: str = "", owner: str = "ann") -> list[str]:
        self._token += 1
        asked = st.JobSubmission(self._token, owner, request, job, job, {}, what or gang(), '{"spec":1}')
        return self.step(st.Once(owner, request, "same", asked) if request else asked)

    def cancel(self, job: str, by: str = "ann") -> list[str]:
        self._token += 1
        return self.step(st.CancelAsked(self._token, by, job))

    def restart(self, job: str, by: str = "ann") -> list[str]:
        self._token += 1
        return self.step(st.RestartAsked(self._token, by, job))

    def pause(self, job: str, by: str = "ann") -> list[str]:
        self._token += 1
        return self.step(st.PauseAsked(self._token, by, job))

    def resume(self, job: str, by: str = "ann") -> list[str]:
        self._token += 1
        return self.step(st.ResumeAsked(self._token, by, job))

    def delete(self, job: str, by: str = "ann") -> list[str]:
        self._token += 1
        return self.step(st.DeleteAsked(self._token, by, job))

    def output_gone(self, job: str, host: str, problem: str = "") -> list[str]:
        return self.step(st.OutputGone(host, self.sessions[host], job, problem))

    def fence(self, host: str) -> list[str]:
        self._token += 1
        return self.step(st.FenceAsked(self._token, "ann", host, "switched off"))

    def drain(self, host: str, deadline_s: float | None = None, *, at_checkpoint: bool = False) -> list[str]:
        self._token += 1
        return self.step(st.DrainAsked(self._token, "ann", host, "upgrade", deadline_s, at_checkpoint))

    def cordon(self, host: str, reason: str = "disk") -> list[str]:
        self._token += 1
        return self.step(st.CordonAsked(self._token, "ann", host, reason))

    def uncordon(self, host: str, *gpus: str) -> list[str]:
        self._token += 1
        return self.step(st.UncordonAsked(self._token, "ann", host, gpus))

    def hold(self, job: str, seconds: float, by: str = "ann") -> list[str]:
        self._token += 1
        return self.step(st.HoldAsked(self._token, by, job, seconds))

    # --- hosts ---------------------------------------------------------------------------------------------------

    def join(
        self,
        host: str,
        has: Inventory | None = None,
        places: Iterable[WorkerReport] = (),
        *,
        boot: str = "",
        labels: dict[str, str] | None = None,
        version: str = "1",
    ) -> list[str]:
        """A hello, first or again. ``places`` are what the agent knows."""
        self.labels[host] = self.labels.get(host, {}) if labels is None else labels
        self._session += 1
        self.sessions[host] = self._session
        self.boots[host] = boot or self.boots.get(host, "boot-1")
        known = self.cluster.hosts.get(host)
        found = has or (known.inventory if known else inventory(name=host))
        return self.step(
            st.HostConnected(
                host,
                self._session,
                f"10.0.0.{host[-1]}",
                self.boots[host],
                version,
                found,
                tuple(places),
                labels=self.labels.get(host, {}),
            )
        )

    def hang_up(self, host: str) -> list[str]:
        return self.step(st.HostDisconnected(host, self.sessions.pop(host)))

    def beat(self, host: str, has: Inventory | None = None) -> list[str]:
        return self.step(st.HostBeat(host, self.sessions[host], has))

    def maintain(
        self,
        host: str,
        start: float | None = None,
        end: float | None = None,
        *,
        drain: bool = True,
        deadline_s: float | None = 0.0,
    ) -> list[str]:
        """``start`` and ``end`` count from now."""
        self._token += 1
        begins, ends = (None if at is None else Wall(self.wall + at) for at in (start, end))
        return self.step(st.MaintenanceAsked(self._token, "ann", host, "disk", begins, ends, drain, deadline_s))

    def call_off(self, host: str) -> list[str]:
        self._token += 1
        return self.step(st.MaintenanceCancelled(self._token, "ann", host))

    def dismiss(self, host: str, job: str) -> list[str]:
        self._token += 1
        return self.step(st.StopOrphansAsked(self._token, "ann", host, job))

    def place(
        self,
        job: str,
        worker: int,
        state: str,
        generation: int | None = None,
        message: str = "",
        *,
        host_fault: bool = False,
        silent: Iterable[tuple[int, int]] = (),
    ) -> WorkerReport:
        """What an agent would say of a place. ``silent``: (worker, generation) that its shim hears nothing more of."""
        known = self.cluster.jobs.get(job)
        number = generation if generation is not None else known.generation_of(worker) if known else 1
        member = known.gang.members[worker] if known else None
        name = member.name if member else "workerpool0-0"
        pids = tuple((rank, 1000 + rank) for rank in member.ranks) if member and state == "RUNNING" else ()
        return WorkerReport(
            key=WorkerId(job, name),
            attempt=1,
            generation=number,
            state=ReportedState[state],
            port=20000 + worker,
            master_port=21000 + number,
            shim_pid=900 + worker,
            pids=pids,
            message=message,
            host_fault=host_fault,
            silent_peers=tuple(silent),
        )

    def report(
        self,
        job: str,
        worker: int,
        state: str,
        generation: int | None = None,
        *,
        message: str = "",
        host: str = "",
        host_fault: bool = False,
        silent: Iterable[tuple[int, int]] = (),
    ) -> list[str]:
        at = host or self.cluster.jobs[job].places[worker].host
        fields: dict[str, Any] = {"host_fault": host_fault, "silent": silent}
        told = self.place(job, worker, state, generation, message, **fields)
        if state == "PREPARED":
            self.ready.add((job, told.key.worker, told.generation))
        return self.step(st.WorkerReported(at, self.sessions[at], told))

    def exit(
        self,
        job: str,
        rank: int,
        how: str | int = 0,
        generation: int | None = None,
        *,
        host: str = "",
        port_taken: bool = False,
        end_time: float | None = None,
        session: int | None = None,
        message: str = "",
        said: tuple[str, ...] = (),
    ) -> list[str]:
        """An exit report: ``how`` is a code, or a reason without one, or ``SIGNALED:11``."""
        known = self.cluster.jobs[job]
        member = next(m for m in known.gang.members if rank in m.ranks)
        at = host or known.places[member.index].host
        number = generation if generation is not None else known.generation_of(member.index)
        self._sequence += 1
        at_time = self.wall if end_time is None else end_time
        ended = Exit(1, number, rank, *_how(how), message=message, end_time=at_time, stderr_tail=said)
        return self.step(
            st.ExitReported(
                at,
                session or self.sessions[at],
                ExitReport(self._sequence, WorkerId(job, member.name), ended, port_taken),
            )
        )

    def features(
        self,
        job: str,
        vector: WorkerFeatures,
        *,
        generation: int | None = None,
        host: str = "",
        session: int | None = None,
    ) -> list[str]:
        """A worker's vector, taken on our clock and sent on its host's."""
        at = host or vector.host
        ahead = self.clocks.get(at, 0.0)
        number = generation if generation is not None else self.cluster.jobs[job].generation
        return self.step(
            st.FeaturesReported(
                at, session or self.sessions[at], job, number, self.mono + ahead, vector.shifted(ahead)
            )
        )

    def evidence(
        self,
        job: str,
        worker: int,
        found: Evidence | None = None,
        *,
        problem: str = "",
        dump: int = 1,
        generation: int | None = None,
        host: str = "",
    ) -> list[str]:
        """The answer of a worker's host to an order for dumps."""
        known = self.cluster.jobs[job]
        member = known.gang.members[worker]
        at = host or known.places[worker].host
        number = generation if generation is not None else known.generation
        content = f"dumps of w{worker}".encode() if found is not None else b""
        return self.step(st.EvidenceArrived(at, job, number, member.name, dump, found, content, problem))

    # --- shorthand for what a story isn't about ------------------------------------------------------------------

    def launch(self, job: str) -> None:
        """All places are ready: the gang is launched."""
        for worker in range(len(self.cluster.jobs[job].places)):
            self.report(job, worker, "PREPARED")

    def run(self, job: str) -> None:
        """The gang is launched and runs."""
        self.launch(job)
        for worker in range(len(self.cluster.jobs[job].places)):
            self.report(job, worker, "RUNNING")

    def empty(self, job: str) -> None:
        """All places are empty."""
        for worker in range(len(self.cluster.jobs[job].places)):
            self.report(job, worker, "EMPTY")

    # --- time ----------------------------------------------------------------------------------------------------

    @property
    def wall(self) -> float:
        return WALL + self.mono + self.jumped

    def wait(self, seconds: float, *, beating: Iterable[str] = ()) -> list[str]:
        """Time passes; the hosts named beat every five seconds."""
        end = self.mono + seconds
        beats = dict.fromkeys(beating, self.mono + 5)
        told: list[str] = []
        while True:
            due = self.reactor.next_due()
            moments = [*beats.values(), *([due] if due is not None else [])]
            if not moments or min(moments) > end:
                break
            self.mono = max(min(moments), self.mono)
            for host in [host for host, at in beats.items() if at <= self.mono]:
                told += self.beat(host)
                beats[host] += 5
            if due is not None and due <= self.mono:
                told += self.step(st.TimePassed())
        self.mono = end
        return told

    def restart_controller(self, *, down_s: float = 1.0) -> None:
        """The controller dies and starts again: only the log and what the store keeps is left, and no session."""
        stopped_at = Wall(self.wall)
        self.mono += down_s
        cluster = Cluster(epoch=self.cluster.epoch + 1, stopped_at=stopped_at)
        for event in self.log:
            fold(cluster, event)
        assert durable(cluster) == durable(self.cluster)
        self.cluster, self._replayed = cluster, None
        self.reactor = Reactor(cluster, self.policies)
        kept = {job: codec.load_watch(payload) for job, payload in self.kept.items()}
        self.reactor.resume(Now(Mono(self.mono), Wall(self.wall)), kept)
        self.sessions.clear()

    def state(self, job: str) -> JobState:
        return self.cluster.jobs[job].state

    def back_up(self) -> list[ev.Event]:
        """The log as it stands."""
        return list(self.log)

    def restore(self, backup: list[ev.Event], *, down_s: float = 1.0) -> None:
        """The controller and its disk are lost; a new one goes on from a backup."""
        self.mono += down_s
        cluster = Cluster(epoch=self.cluster.epoch + 1000)
        for event in backup:
            fold(cluster, event)
        restored = ev.ClusterRestored(
            at=Wall(self.wall), sequence=cluster.sequence + GAP, taken_at=Wall(self.wall - 600)
        )
        fold(cluster, restored)
        self.log = [*backup, restored]
        self.restored = True
        self.cluster, self._replayed = cluster, None
        self.reactor = Reactor(cluster, self.policies)
        self.reactor.resume(Now(Mono(self.mono), Wall(self.wall)), {})
        self.sessions.clear()
        self.greeted.clear()
        self.kept.clear()

    # --- the step ------------------------------------------------------------------------------------------------

    def step(self, incoming: st.Input) -> list[str]:
        self._let_go()
        before = {job.id: job.state for job in self.cluster.jobs.heads()}
        decision = self.reactor.step(incoming, Now(Mono(self.mono), Wall(self.wall)))
        first = self.cluster.sequence - len(decision.entries) + 1
        for number, entry in enumerate(decision.entries, first):
            self.log.append(entry.event)
            assert entry.sequence == number
            assert entry.message
            self.sentences.append(entry.message)
        self._keep([action for action in decision.actions if isinstance(action, act.KeepWatch)])
        actions = tuple(a for a in decision.actions if not isinstance(a, act.KeepWatch | act.KeepProgress))
        self.sent += actions
        self._check_actions(actions)
        if decision.entries or self._replayed is None:
            check_sanity(self.cluster)
            self._check_log(before)
            self._replayed = self._replay(self._replayed, decision.entries)
        else:
            assert self._is_what_log_gives(self._replayed), "something durable changed without an event"
        shown = [entry.event for entry in decision.entries if not isinstance(entry.event, ev.ProgressRecorded)]
        return [line(event, self.cluster) for event in shown] + [action_line(a, self.cluster) for a in actions]

    def _let_go(self) -> None:
        """Between two steps no ended job is in memory, as where the driver has written snapshots."""
        for job in self.cluster.jobs.whole.values():
            if job.terminal and self.snapshots.get(job.id, (0, ""))[0] != job.cursor:
                self.snapshots[job.id] = job.cursor, codec.dump_entity(job)
        self.cluster.jobs.read = lambda names: [codec.load_entity("job", self.snapshots[each][1]) for each in names]
        self.cluster.let_go(self.cluster.sequence, keep=0)

    def _keep(self, actions: Iterable[act.KeepWatch]) -> None:
        """As the store does: written at once, told to nobody."""
        for action in actions:
            self.kept.pop(action.job_id, None)
            if action.kept is not None:
                self.kept[action.job_id] = codec.dump_watch(action.kept)

    def _replay(self, so_far: Cluster | None, entries: Iterable[Entry]) -> Cluster:
        """What the log gives back, the queue and the sums counted anew as for a snapshot, which the rest follows."""
        if so_far is None:
            so_far, events = Cluster(epoch=self.cluster.epoch), self.log
        else:
            events = [entry.event for entry in entries]
        for event in events:
            fold(so_far, event)
        assert self._is_what_log_gives(so_far)
        recount(so_far)
        assert self._is_what_log_gives(so_far), "a snapshot would give another queue or other sums"
        return so_far

    def _is_what_log_gives(self, replayed: Cluster) -> bool:
        return durable(replayed, replayed.jobs.whole) == durable(self.cluster, self._all_jobs())

    def _all_jobs(self) -> dict[str, Job]:
        """Every job whole, without the cluster: it would read all that have ended at each step, and let them go."""
        return {job.id: job if isinstance(job, Job) else self._ended(job) for job in self.cluster.jobs.heads()}

    def _ended(self, head: JobHead) -> Job:
        """An ended job as its snapshot has it, read once; it is compared, and nothing else is done with it."""
        cursor, text = self.snapshots[head.id]
        assert cursor == head.cursor
        if self._read.get(head.id, (0, None))[0] != cursor:
            self._read[head.id] = cursor, codec.load_entity("job", text)
        return self._read[head.id][1]

    def _check_log(self, before: dict[str, Any]) -> None:
        """What only an event can break: it is checked after each step that decides one."""
        histories: dict[str, list[ev.Event]] = {}
        for event in self.log:
            histories.setdefault(getattr(event, "job_id", ""), []).append(event)
        for host in self.cluster.hosts.values():
            granted = [gpu for share in host.allocations.values() for gpu in share.gpus]
            granted += [gpu for orphan in host.orphans.values() for gpu in orphan.gpus]
            assert len(granted) == len(set(granted)), f"a GPU of {host.name} is granted twice"
        for job in self._all_jobs().values():
            if before.get(job.id) in TERMINAL:
                assert job.state is before[job.id], "terminal absorbs"
            check_history(job, histories[job.id], self.ready, restored=self.restored)

    def _check_actions(self, actions: tuple[act.Action, ...]) -> None:
        hosts = [host for host in self.cluster.hosts.values() if takes_work(self.cluster, host)]
        assert schedulable_hosts(self.cluster) == hosts, "one rule for who takes work"
        watched = self.cluster.watches.keys() | self.cluster.suspects.keys() | self.kept.keys()
        assert all(self.cluster.jobs[name].outcome is None for name in watched), "a job that ends is still watched"
        for action in actions:
            if isinstance(action, act.Assign | act.AckExit | act.Welcome | act.StopOrphan | act.DeleteOutput):
                assert self.sessions.get(action.host) == action.session, "a message to a session that is over"
                is_welcome = isinstance(action, act.Welcome)
                assert is_welcome != (action.session in self.greeted), "a session begins with its one welcome"
                self.greeted.add(action.session)


def _how(how: str | int) -> tuple[ExitReason, int | None, int | None]:
    if isinstance(how, int):
        return (ExitReason.NONZERO_EXIT if how else ExitReason.COMPLETED), how, None
    reason, _, signal = how.partition(":")
    if signal.startswith("code"):
        return ExitReason[reason], int(signal.removeprefix("code")), None
    return ExitReason[reason], None, int(signal) if signal else None
