"""A cluster in virtual time: the controller's core, and hosts that say what they are told to.

Each move returns, as short lines, everything that followed: the events in order, then the actions (marked with
``>``). What is checked after each is in ``checked_core``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from tests.scenarios.checked_core import CheckedCore

from holdfast._base.job_file.choices import SuccessPolicy
from holdfast._session.assignment import Assignment, Launch
from holdfast._session.reports import Exit, ExitReason, ExitReport, ReportedState, WorkerId, WorkerReport
from holdfast.hang.evidence.evidence import Evidence
from holdfast.hang.pipeline.features import WorkerFeatures
from holdfast_controller.core.model.clock import NEVER, Wall
from holdfast_controller.core.model.gang import Gang, Pool, Retries, Task
from holdfast_controller.core.model.hosts.host import Gpu, Inventory, Maintenance
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.step import Policies

GIB = 1 << 30


def gang(workers: int = 2, *, gpus: int = 4, processes: int = 1, retries: int = 0, **rules: Any) -> Gang:
    """Pool 0 of one worker and pool 1 of the others; each fills a host of four GPUs; so many retries of the job."""
    pool = Pool(1, Task(("train",)), processes=processes, gpus=gpus)
    pools = (pool,) if workers == 1 else (pool, dataclasses.replace(pool, replicas=workers - 1))
    return Gang(pools, **{"success": SuccessPolicy.ALL, "retries": Retries(job_retries=retries), **rules})


def inventory(
    gpus: int = 4, *, model: str = "NVIDIA H100", cpus: int = 16, memory: int = 64, name: str = ""
) -> Inventory:
    return Inventory(cpus, memory * GIB, tuple(Gpu(f"GPU-{name}-{i}", i, model, 80 * GIB) for i in range(gpus)))


def launch_of(order: Assignment) -> Launch:
    """What an order starts; it has to start something."""
    assert order.launch is not None
    return order.launch


class World(CheckedCore):
    """Moves are methods; each returns what followed."""

    def __init__(self, hosts: int = 0, policies: Policies | None = None) -> None:
        super().__init__(policies)
        self.boots: dict[str, str] = {}
        self.labels: dict[str, dict[str, str]] = {}
        """Of hosts."""
        self.clocks: dict[str, float] = {}
        """What the monotonic clock of a host reads more than ours."""
        self.wall_clocks: dict[str, float] = {}
        """What the wall clock of a host reads more than ours; heartbeats of others don't say what theirs shows."""
        self._session = 0
        self._token = 0
        self._sequence = 0
        for number in range(hosts):
            self.join(f"host-{number}")

    # --- users ---------------------------------------------------------------------------------------------------

    def submit(self, job: str, what: Gang | None = None, *, request: str = "", owner: str = "ann") -> list[str]:
        self._token += 1
        asked = st.JobSubmission(self._token, owner, request, job, JobPlan(job, what or gang(), '{"spec":1}'))
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
        ahead = self.wall_clocks.get(host)
        sent_at = Wall(self.wall + ahead) if ahead is not None else NEVER
        return self.step(st.HostBeat(host, self.sessions[host], has, sent_at))

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
        plan = Maintenance(begins or NEVER, ends, "disk", "ann", drain, deadline_s)
        return self.step(st.MaintenanceAsked(self._token, host, plan))

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
        session: int | None = None,
        **about: Any,
    ) -> list[str]:
        """An exit in a message of its own; see ``ended``."""
        at, report = self.ended(job, rank, how, generation, **about)
        return self.step(st.ExitsReported(at, session or self.sessions[at], (report,)))

    def exits(self, *told: tuple[str, ExitReport]) -> list[str]:
        """Exits of one host in one message."""
        (at,) = {host for host, _ in told}
        return self.step(st.ExitsReported(at, self.sessions[at], tuple(report for _, report in told)))

    def ended(
        self,
        job: str,
        rank: int,
        how: str | int = 0,
        generation: int | None = None,
        *,
        host: str = "",
        port_taken: bool = False,
        end_time: float | None = None,
        message: str = "",
        said: tuple[str, ...] = (),
        host_fault: bool = False,
    ) -> tuple[str, ExitReport]:
        """The host of an exit, and its report.

        ``how`` is a code, or a reason without one, or ``SIGNALED:11``; ``end_time``: our clock's.
        """
        known = self.cluster.jobs[job]
        member = next(m for m in known.gang.members if rank in m.ranks)
        at = host or known.places[member.index].host
        number = generation if generation is not None else known.generation_of(member.index)
        self._sequence += 1
        at_time = (self.wall if end_time is None else end_time) + self.wall_clocks.get(at, 0.0)
        ended = Exit(
            *(1, number, rank, *_how(how)),
            message=message,
            end_time=at_time,
            stderr_tail=said,
            host_fault=host_fault,
        )
        return at, ExitReport(self._sequence, WorkerId(job, member.name), ended, port_taken)

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

    def state(self, job: str) -> JobState:
        return self.cluster.jobs[job].state


def _how(how: str | int) -> tuple[ExitReason, int | None, int | None]:
    if isinstance(how, int):
        return (ExitReason.NONZERO_EXIT if how else ExitReason.COMPLETED), how, None
    reason, _, signal = how.partition(":")
    if signal.startswith("code"):
        return ExitReason[reason], int(signal.removeprefix("code")), None
    return ExitReason[reason], None, int(signal) if signal else None
