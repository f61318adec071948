"""Planted bugs: each makes a part do what it never may, and some oracle has to notice.

``python -m tests.sim.planted`` looks for the first seed that finds each, and prints the table of the docs;
``planted_seeds.json`` keeps what it found, so that the tests need no search.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.sim import generator, translate
from tests.sim.bugs import Bugs
from tests.sim.clock import Clock
from tests.sim.engine import Violation
from tests.sim.plan import Plan
from tests.sim.world import World

from holdfast_agent.core import endings
from holdfast_agent.core import events as agent_ev
from holdfast_agent.core import place as agent_place
from holdfast_agent.core import reactor as agent_reactor
from holdfast_agent.core.model import ExitReason
from holdfast_controller.core import events as ev
from holdfast_controller.core import hosts, launch, leases
from holdfast_controller.core import reactor as controller_reactor
from holdfast_controller.core.actions import AckExit
from holdfast_controller.core.job import JobState
from holdfast_controller.core.model import Prepared
from holdfast_controller.core.steps import Step

SEEDS = Path(__file__).with_name("planted_seeds.json")
MOST_SEEDS = 10_000
Plant = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Planted:
    """One bug: what is wrong, and how it gets there."""

    what: str
    bugs: Callable[[], Bugs] = Bugs
    plant: Plant = field(default=nullcontext)


def run(bug: Planted, plan: Plan) -> Violation | None:
    """Carry a plan out with the bug in it; what an oracle says of it."""
    with bug.plant():
        try:
            World(plan, bug.bugs()).run()
        except Violation as violation:
            return violation
    return None


def _epoch_not_noted() -> AbstractContextManager[Any]:
    def raise_epoch(self: Any, epoch: int) -> Any:
        self.epoch = max(self.epoch, epoch)
        return []

    return patch.object(agent_reactor.Reactor, "_raise_epoch", raise_epoch)


def _no_fence() -> AbstractContextManager[Any]:
    sound = translate.assignment
    return patch.object(translate, "assignment", lambda *args: replace(sound(*args), fence_s=0.0))


def _lost_hosts_give_all_back() -> AbstractContextManager[Any]:
    sound = hosts._lose

    def lose(step: Step, name: str, silent_s: float) -> None:
        sound(step, name, silent_s)
        for job in hosts._jobs_on(step, name):
            hosts.lose_workers(step, job, name, f"{name} was lost", vouched=True)

    return patch.object(hosts, "_lose", lose)


def _emits(alter: Callable[[Step, Any], list[Any]]) -> AbstractContextManager[Any]:
    sound = Step.emit

    def emit(self: Step, event: Any) -> None:
        for other in alter(self, event):
            sound(self, other)

    return patch.object(Step, "emit", emit)


def _generation_again() -> AbstractContextManager[Any]:
    def alter(_: Step, event: Any) -> list[Any]:
        again = isinstance(event, ev.RestartDecided) and event.worker is None
        return [replace(event, generation=event.generation - 1) if again else event]

    return _emits(alter)


def _share_freed_at_once() -> AbstractContextManager[Any]:
    def alter(step: Step, event: Any) -> list[Any]:
        if not isinstance(event, ev.AttemptEnded | ev.JobEnding):
            return [event]
        job = step.cluster.jobs[event.job_id]
        members = (job.gang.members[index] for index in job.awaited)
        return [event, *(ev.WorkerEmptied(job.id, event.at, member.name) for member in members)]

    return _emits(alter)


def _cancels_what_has_ended() -> AbstractContextManager[Any]:
    sound = controller_reactor.on_cancel

    def on_cancel(step: Step, asked: Any) -> None:
        job = step.cluster.jobs.get(asked.job_id)
        if job is not None and job.terminal:
            step.emit(ev.JobEnding(job.id, step.now.wall, JobState.CANCELLED))
        sound(step, asked)

    return patch.object(controller_reactor, "on_cancel", on_cancel)


def _sent_is_delivered() -> AbstractContextManager[Any]:
    sound = agent_reactor.Reactor._keep

    def keep(self: Any, place: Any, generation: int, end: Any, *, port_taken: bool) -> Any:
        actions = sound(self, place, generation, end, port_taken=port_taken)
        self.outbox.pop((place.key, generation, end.rank))
        return [*actions, agent_ev.RememberAck(place.key, generation, end.rank)]

    return patch.object(agent_reactor.Reactor, "_keep", keep)


def _acks_what_it_drops() -> AbstractContextManager[Any]:
    def on_exit(step: Step, reported: Any) -> None:
        step.do(AckExit(reported.host, reported.session, reported.sequence))

    return patch.object(controller_reactor, "on_exit", on_exit)


def _does_not_wait_for_all() -> AbstractContextManager[Any]:
    sound = controller_reactor.on_prepared

    def on_prepared(step: Step, job: Any, index: int, report: Any) -> None:
        sound(step, job, index, report)
        prepared = step.cluster.runtime_of(job.id).prepared
        if prepared and not job.launched and not job.stopping:
            for other in range(len(job.places)):
                prepared.setdefault(other, Prepared(1, 1))
            launch.launch(step, job)

    return patch.object(controller_reactor, "on_prepared", on_prepared)


def _told_to_stop_is_gone() -> AbstractContextManager[Any]:
    sound = agent_reactor.Reactor.on_assigned

    def on_assigned(self: Any, event: Any, now: float) -> Any:
        actions = sound(self, event, now)
        place = self.places.get(event.assignment.key)
        if place is not None and isinstance(place.standing, agent_place.Stopping):
            gone = agent_ev.PlaceEmptied(place.key, place.standing.generation)
            actions += self.on_place_emptied(gone, now)
        return actions

    return patch.object(agent_reactor.Reactor, "on_assigned", on_assigned)


def _requests_are_forgotten() -> AbstractContextManager[Any]:
    sound = controller_reactor.on_submission

    def on_submission(step: Step, asked: Any) -> None:
        step.cluster.requests.clear()
        sound(step, asked)

    return patch.object(controller_reactor, "on_submission", on_submission)


def _wall_clock_decides() -> AbstractContextManager[Any]:
    return patch.object(Clock, "mono", lambda self: self.origin + self.rate * self.engine.now + self.jumped)


def _adopts_nothing() -> AbstractContextManager[Any]:
    sound = agent_reactor.Reactor.on_place_found
    return patch.object(
        agent_reactor.Reactor,
        "on_place_found",
        lambda self, event, now: sound(self, replace(event, shim_pid=0), now),
    )


def _one_secret_for_a_job() -> AbstractContextManager[Any]:
    sound = launch._rendezvous
    return patch.object(
        launch, "_rendezvous", lambda cluster, job, *args: replace(sound(cluster, job, *args), secret=job.id)
    )


def _unseen_is_not_started() -> AbstractContextManager[Any]:
    return patch.object(endings, "_why", lambda *_: (ExitReason.NOT_STARTED, "never started"))


def _says_nothing_after_a_hello() -> AbstractContextManager[Any]:
    sound = hosts.on_connected

    def on_connected(step: Step, hello: Any) -> None:
        sound(step, hello)
        step.touched.clear()

    return patch.object(hosts, "on_connected", on_connected)


def _stuck_is_empty() -> AbstractContextManager[Any]:
    def on_place_stuck(self: Any, event: Any, now: float) -> Any:
        return self.on_place_emptied(agent_ev.PlaceEmptied(event.key, event.generation), now)

    return patch.object(agent_reactor.Reactor, "on_place_stuck", on_place_stuck)


def _hello_outranks_exits() -> AbstractContextManager[Any]:
    reactor = controller_reactor.Reactor
    return patch.object(reactor, "_on_place_found", reactor._on_place)


PLANTED: dict[str, Planted] = {
    "database takes any epoch": Planted(
        "a controller of the past may commit", bugs=lambda: Bugs(ignores_epoch=True)
    ),
    "epoch not noted": Planted("obey a new epoch without making it durable", plant=_epoch_not_noted),
    "acts before commit": Planted("answer and order before the commit", bugs=lambda: Bugs(acts_before_commit=True)),
    "tells before fsync": Planted("tell an exit before it is durable", bugs=lambda: Bugs(tells_before_sync=True)),
    "forks before intent": Planted("spawn before the intent", bugs=lambda: Bugs(forks_before_intent=True)),
    "invents codes": Planted("137 for an end that nobody saw", bugs=lambda: Bugs(invents_codes=True)),
    "not started, it says": Planted("claim of a rank that ran that it never did", plant=_unseen_is_not_started),
    "no fence": Planted("forget the deadline of cut-off work", plant=_no_fence),
    "lost hosts give back": Planted(
        "start work of a silent host elsewhere though nothing stops it there", plant=_lost_hosts_give_all_back
    ),
    "double grant": Planted("free a job's share when it is told to stop", plant=_share_freed_at_once),
    "generation again": Planted("reuse a generation", plant=_generation_again),
    "hello outranks exits": Planted("believe a hello before the ends that follow it", plant=_hello_outranks_exits),
    "terminal overwritten": Planted("cancel a job that has ended", plant=_cancels_what_has_ended),
    "sent is delivered": Planted("drop an end from the outbox once it is sent", plant=_sent_is_delivered),
    "acks what it drops": Planted("acknowledge an end without recording it", plant=_acks_what_it_drops),
    "does not wait for all": Planted("launch when the first place is ready", plant=_does_not_wait_for_all),
    "told to stop is gone": Planted("take a place for empty once it is told to stop", plant=_told_to_stop_is_gone),
    "stuck is empty": Planted("take what outlives KILL for gone", plant=_stuck_is_empty),
    "one secret": Planted("use a rendezvous secret for two generations", plant=_one_secret_for_a_job),
    "requests forgotten": Planted("make a second job of a repeated request", plant=_requests_are_forgotten),
    "wall clock decides": Planted("time leases by the wall clock", plant=_wall_clock_decides),
    "no brake": Planted(
        "give hosts up although most are silent", plant=lambda: patch.object(leases, "brake", lambda *_: False)
    ),
    "adopts nothing": Planted("kill what a living shim looks after at the agent's start", plant=_adopts_nothing),
    "silent after a hello": Planted("say nothing to an agent that is back", plant=_says_nothing_after_a_hello),
}


def search(bug: Planted) -> tuple[int, str] | None:
    """The first seed that finds a bug, and the oracle that does."""
    for seed in range(MOST_SEEDS):
        found = run(bug, generator.draw(seed))
        if found is not None:
            return seed, found.oracle
    return None


def table(known: dict[str, list[Any]]) -> str:
    """As docs/internals/simulation.md shows it."""
    rows = [f"| {name} | {PLANTED[name].what} | {seed} | {oracle} |" for name, (seed, oracle) in known.items()]
    return "\n".join(["| bug | what it does | first seed | oracle |", "|---|---|---|---|", *rows]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Look for the seeds that find the planted bugs.")
    parser.add_argument("names", nargs="*", help="these only; the others keep their seeds")
    args = parser.parse_args()
    known: dict[str, list[Any]] = json.loads(SEEDS.read_text()) if SEEDS.exists() else {}
    for name in args.names or PLANTED:
        found = search(PLANTED[name])
        print(f"{name}: {found}", flush=True)
        if found is not None:
            known[name] = list(found)
    known = {name: known[name] for name in PLANTED if name in known}
    SEEDS.write_text(json.dumps(known, indent=1) + "\n")
    print(table(known))
    return 0 if len(known) == len(PLANTED) else 1


if __name__ == "__main__":
    sys.exit(main())
