"""Clients and admins: they call over a network that loses, doubles and reorders calls, and ask again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.sim.cluster.clock import WALL
from tests.sim.moves import PROJECTS, RESERVATIONS

from holdfast._base.job_file.choices import HangAction
from holdfast.errors import HoldfastError
from holdfast_controller.core.model.accounts.quota import Quota
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.dependencies import Dependency
from holdfast_controller.core.model.gang import Gang, HostSelector, Pool, Task
from holdfast_controller.core.model.hosts.host import Maintenance
from holdfast_controller.core.model.hosts.reservations import Reservation
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.reservation_commands import ReservationAsked, ReservationDeletionAsked
from holdfast_controller.core.step.share_commands import GuaranteeAsked, QuotaAsked, ShareAsked

if TYPE_CHECKING:
    from tests.sim.cluster.controller import Controller
    from tests.sim.cluster.world import World

AGAIN_S = 5.0
TRIES = 60
"""More than the longest time for which a controller stands still."""


def _resume(job_id: str, token: int) -> st.ResumeAsked:
    return st.ResumeAsked(token, "ann", job_id)


def _cancel(job_id: str, token: int) -> st.CancelAsked:
    return st.CancelAsked(token, "ann", job_id)


def _end_of(reservation: str, token: int) -> st.Input:
    return ReservationDeletionAsked(token, "bob", reservation)


class Users:
    """All of them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.open: set[str] = set()
        """Submissions that have no answer yet."""
        self._probe = ""

    def ask(self, what: str, make: Callable[[int], st.Input], then: Callable[[str], None] = lambda _: None) -> None:
        """Call until there is an answer, or for too long."""
        world, done = self.world, False

        def answered(subject: str, error: HoldfastError | None) -> None:
            def hear() -> None:
                nonlocal done
                if error is None:
                    then(subject)
                done = True
                self.open.discard(what)

            if not self._lost():
                world.engine.after(world.latency_s(), hear)

        def arrive() -> None:
            controller = world.answers()
            if controller is None or not controller.life.alive:
                return
            world.engine.after(0.0, lambda: controller.call(make, answered), controller.life, controller.die)

        def attempt(left: int) -> None:
            if done or not left:
                return
            for _ in range(2 if world.roll("duplicate") else 1):
                if not self._lost():
                    world.engine.after(world.latency_s(), arrive)
            world.engine.after(AGAIN_S, lambda: attempt(left - 1))

        attempt(TRIES)

    def _lost(self) -> bool:
        return self.world.weights.drop > 0 and self.world.dice.random() < 10 * self.world.weights.drop

    def submit(
        self,
        name: str,
        gang: Gang,
        runs_s: float = 0.0,
        after: tuple[Dependency, ...] = (),
        indices: tuple[int, ...] = (),
        at_once: int = 0,
    ) -> None:
        """Hand a job, or an array, in. Each call draws an id, as the servicer does; the request makes it one."""
        known = [each for each in after if ("ann", f"request of {each.job}") in self.world.oracles.answers]
        gang = replace(gang, after=tuple(replace(each, job=self.id_of(each.job)) for each in known))
        world, request = self.world, f"request of {name}"
        if runs_s:
            world.programs.lengths[name] = runs_s
        world.jobs[name] = gang
        if gang.hang.action is HangAction.RESTART:
            world.watched.add(name)
        self.open.add(request)
        calls = 0

        def make(token: int) -> st.Input:
            nonlocal calls
            calls += 1
            job_id = name if calls == 1 else f"{name}.{calls}"
            for made in (job_id, *(f"{job_id}-{index}" for index in indices)):
                world.jobs[made] = gang
                if name in world.watched:
                    world.watched.add(made)
            asked = st.JobSubmission(
                token, "ann", request, job_id, JobPlan(name, gang, "{}", indices=indices, at_once=at_once)
            )
            return st.Once("ann", request, "same", asked)

        self.ask(request, make, lambda subject: world.oracles.on_answered("ann", request, subject))

    def id_of(self, name: str) -> str:
        """Under which id a submission has become a job."""
        return self.world.oracles.answers.get(("ann", f"request of {name}"), name)

    def of_job(self, verb: str, name: str, *args: Any) -> None:
        """Cancel, pause, resume, restart or hold."""
        job_id = self.id_of(name)
        makes: dict[str, Callable[[int], st.Input]] = {
            "cancel": lambda token: st.CancelAsked(token, "ann", job_id),
            "cancel all": lambda token: st.CancelAsked(token, "ann", job_id.rpartition("-")[0]),
            "pause": lambda token: st.PauseAsked(token, "ann", job_id),
            "resume": lambda token: st.ResumeAsked(token, "ann", job_id),
            "restart": lambda token: st.RestartAsked(token, "ann", job_id),
            "hold": lambda token: st.HoldAsked(token, "ann", job_id, *args),
        }
        then = self.world.oracles.on_cancelled if verb.startswith("cancel") else lambda _: None
        self.ask(f"{verb} {name}", makes[verb], then)

    def of_host(self, verb: str, host: str, *args: Any) -> None:
        """Cordon, uncordon, drain or check; plan a drain, with times from now on, or call it off."""
        makes: dict[str, Callable[[int], st.Input]] = {
            "cordon": lambda token: st.CordonAsked(token, "bob", host, "disk"),
            "uncordon": lambda token: st.UncordonAsked(token, "bob", host),
            "drain": lambda token: st.DrainAsked(token, "bob", host, "upgrade", *args),
            "check": lambda token: st.HostCheckAsked(token, "bob", host, *args),
            "plan": lambda token: self._plan(token, host, *args),
            "call off": lambda token: st.MaintenanceCancelled(token, "bob", host),
        }
        self.ask(f"{verb} {host}", makes[verb])

    def _plan(self, token: int, host: str, in_s: float, for_s: float, deadline_s: float | None) -> st.Input:
        start = Wall(WALL + self.world.engine.now + in_s)
        plan = Maintenance(start, Wall(start + for_s), "new fans", "bob", True, deadline_s)
        return st.MaintenanceAsked(token, host, plan)

    def weigh(self, project: str, weight: float | None) -> None:
        """Give a project a weight in fair share, or none."""
        self.ask(f"weight of {project}", lambda token: ShareAsked(token, "bob", project, weight))

    def guarantee(self, project: str, gpus: int) -> None:
        """Guarantee a project GPUs, or none."""
        make = lambda token: GuaranteeAsked(token, "bob", project, gpus)  # noqa: E731
        self.ask(f"guarantee of {project}", make)

    def reserve(
        self, name: str, project: str, in_s: float, for_s: float, hosts: tuple[str, ...], count: int
    ) -> None:
        """Reserve hosts for a project, by the clock of the admin, which is right."""
        start = Wall(WALL + self.world.engine.now + in_s)
        self.ask(
            f"reservation {name}",
            lambda token: ReservationAsked(
                token, Reservation(name, project, start, Wall(start + for_s), HostSelector(frozenset(hosts)), count)
            ),
        )

    def limit(self, project: str, gpus: int | None) -> None:
        """Let a project hold so many GPUs, or what it can."""
        limits = Quota(gpus=gpus)
        self.ask(f"quota of {project}", lambda token: QuotaAsked(token, "bob", project, limits, clear=gpus is None))

    def fence_now(self, host: str, controller: Controller) -> None:
        """The admin stands beside the machine and calls once: it is off while this is answered."""
        make = lambda token: st.FenceAsked(token, "bob", host, "switched off")  # noqa: E731
        call = lambda: controller.call(make, lambda *_: None)  # noqa: E731
        self.world.engine.after(0.0, call, controller.life, controller.die)

    # --- the end ------------------------------------------------------------------------------------------------

    def clear_up(self, *, first: bool) -> None:
        """Give hosts back, resume what is paused; what hangs for ever is cancelled after a while."""
        for host in self.world.hosts:
            self.of_host("call off", host)
            self.of_host("uncordon", host)
        for name in RESERVATIONS:
            self.ask(f"end of {name}", partial(_end_of, name))
        for project in PROJECTS:
            self.limit(project, None)
        for job_id, job in self.world.oracles.ledger.jobs.items():
            if job.ended:
                continue
            self.ask(f"resume {job_id}", partial(_resume, job_id))
            if first and self._hangs(job_id):
                self.ask(f"cancel {job_id}", partial(_cancel, job_id))

    def _hangs(self, job_id: str) -> bool:
        return any(
            process.hung and process.key.job == job_id
            for host in self.world.hosts.values()
            for process in host.table.all_running()
        )

    def probe(self) -> None:
        """A job that needs every GPU of every host."""
        world = self.world
        pool = Pool(len(world.hosts), Task(("probe",)), gpus=world.plan.gpus)
        self._probe = "probe"
        self.submit("probe", Gang((pool,)), 1.0)

    @property
    def probe_ended(self) -> bool:
        """Whether that job has succeeded."""
        job = self.world.oracles.ledger.jobs.get(self.id_of("probe"))
        return job is not None and job.ended == "SUCCEEDED"
