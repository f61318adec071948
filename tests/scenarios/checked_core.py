"""The controller's core in virtual time, with its log and its store: checked after every step.

Invariants are checked against what the hosts have said and not against the core's own opinion, and the log is folded
again and compared with the living state.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.scenarios.invariants import check_history, durable
from tests.scenarios.lines import action_line, line

from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.allocation import recount
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.lifecycle.other_hosts import schedulable_hosts, takes_work
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import TERMINAL
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


class CheckedCore:
    """What steps, dies, starts again and is restored; each step returns what followed, as short lines."""

    def __init__(self, policies: Policies | None = None) -> None:
        self.policies = policies or Policies(secret_key=b"k")
        self.mono = 100.0
        self.jumped = 0.0
        """By how much the wall clock was set forward."""
        self.cluster = Cluster(epoch=1)
        self.reactor = Reactor(self.cluster, self.policies)
        self.log: list[ev.Event] = []
        self.sentences: list[str] = []
        """Of the events, as users read them."""
        self.sent: list[act.Action] = []
        """Every action so far."""
        self.sessions: dict[str, int] = {}
        self.greeted: set[int] = set()
        """Sessions that have had their welcome."""
        self.ready: set[tuple[str, str, int]] = set()
        """(job, worker, generation) that its host has said is prepared."""
        self.snapshots: dict[str, tuple[int, str]] = {}
        """Newest event and content of jobs that have ended."""
        self.kept: dict[str, str] = {}
        """What the store keeps of watches, by job, as it is written."""
        self.restored = False
        self._read: dict[str, tuple[int, Job]] = {}
        self._replayed: Cluster | None = None
        """What the log gave back when the last event was decided; nothing durable may change until the next."""

    @property
    def wall(self) -> float:
        return WALL + self.mono + self.jumped

    # --- its ends and starts -------------------------------------------------------------------------------------

    def restart_controller(self, *, down_s: float = 1.0, set_by_s: float = 0.0) -> None:
        """The controller dies and starts again: only the log and what the store keeps is left, and no session.

        Meanwhile its wall clock is set by ``set_by_s``.
        """
        stopped_at = Wall(self.wall)
        self.jumped += set_by_s
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
        """As the store does: written at once, reported to no one."""
        for action in actions:
            self.kept.pop(action.job_id, None)
            if action.kept is not None:
                self.kept[action.job_id] = codec.dump_watch(action.kept)

    def _replay(self, so_far: Cluster | None, entries: Iterable[Entry]) -> Cluster:
        """What the log gives back, the queue and the sums counted again as for a snapshot, which the rest follows."""
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
            if isinstance(action, act.Assign | act.AckExits | act.Welcome | act.StopOrphan | act.DeleteOutput):
                assert self.sessions.get(action.host) == action.session, "a message to a session that is over"
                is_welcome = isinstance(action, act.Welcome)
                assert is_welcome != (action.session in self.greeted), "a session begins with its one welcome"
                self.greeted.add(action.session)
