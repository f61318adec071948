"""The agent's decisions: whole lists of actions, emptiness too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.agent.desired import FACTS, KEY, LAUNCH, desired

from holdfast._session.assignment import Phase
from holdfast._session.reports import Exit, ExitReason, ExitReport, ReportedState, WorkerId, WorkerReport
from holdfast_agent.core.launch.environment import plan_ranks
from holdfast_agent.core.worker import actions as act
from holdfast_agent.core.worker import events as ev
from holdfast_agent.core.worker.reactor import Reactor

EXITED_7 = Exit(1, 1, 1, ExitReason.NONZERO_EXIT, 7, message="exited with code 7", end_time=5.0)
EXITED_0 = Exit(1, 1, 0, ExitReason.COMPLETED, 0, message="exited with code 0", end_time=5.0)


class Agent:
    """A reactor whose steps the tests read aloud."""

    def __init__(self, *, connected: bool = True) -> None:
        self.reactor, self.now = Reactor(FACTS), 100.0
        if connected:
            self.on(ev.Welcomed(1))

    def on(self, event: ev.Event) -> list[act.Action]:
        return self.reactor.step(event, self.now)

    def prepared(self, generation: int = 1) -> None:
        self.on(ev.Assigned(desired(Phase.PREPARE, generation)))
        self.on(ev.WorkerPrepared(KEY, generation, 20000, 20001, 77))

    def running(self, generation: int = 1) -> None:
        self.prepared(generation)
        self.on(ev.Assigned(desired(Phase.RUN, generation)))
        for rank in (0, 1):
            self.on(ev.RankStarted(KEY, generation, rank, 1000 + rank))


def report(state: str, generation: int = 1, **fields: Any) -> act.SendReport:
    return act.SendReport(replace(WorkerReport(KEY, 1, generation, ReportedState[state], shim_pid=77), **fields))


PIDS = ((0, 1000), (1, 1001))


def test_first_assignment_prepares_which_is_reported_once_it_takes_long() -> None:
    assignment = desired(Phase.PREPARE)
    agent = Agent()
    assert agent.on(ev.Assigned(assignment)) == [act.RememberAttempt(KEY, 1, 1), act.Prepare(assignment)]
    assert agent.on(ev.Assigned(assignment)) == []
    long = report("PREPARING", shim_pid=0, message="installing requirements")
    assert agent.on(ev.PreparationTakesLong(KEY, 1, "installing requirements")) == [long]
    assert agent.on(ev.Assigned(assignment)) == [long], "an assignment that comes again is answered"


def test_prepared_place_waits_for_its_run() -> None:
    agent = Agent()
    agent.on(ev.Assigned(desired(Phase.PREPARE)))
    ready = report("PREPARED", port=20000, master_port=20001)
    assert agent.on(ev.WorkerPrepared(KEY, 1, 20000, 20001, 77)) == [ready]
    assert agent.on(ev.Assigned(desired(Phase.PREPARE))) == [ready]


def test_run_launches_once_however_often_it_is_said() -> None:
    agent = Agent()
    agent.prepared()
    run = desired(Phase.RUN)
    assert agent.on(ev.Assigned(run)) == [act.LaunchRanks(KEY, 1, plan_ranks(run, FACTS))]
    assert agent.on(ev.Assigned(run)) == []
    assert agent.on(ev.RankStarted(KEY, 1, 0, 1000)) == []
    assert agent.on(ev.RankStarted(KEY, 1, 1, 1001)) == [report("RUNNING", pids=PIDS)]
    assert agent.on(ev.Assigned(run)) == [report("RUNNING", pids=PIDS)]


@pytest.mark.parametrize("problem", ["", "no room"])
def test_what_was_never_launched_is_said_to_be_empty_when_it_is_forgotten_at_once(problem: str) -> None:
    """The share of a job that has ended meanwhile is free once that was said."""
    agent = Agent()
    if problem:
        agent.on(ev.Assigned(desired(Phase.PREPARE)))
        agent.on(ev.PreparationFailed(KEY, 1, problem))
    else:
        agent.prepared()
    assert act.Forget(KEY) in agent.on(ev.Assigned(desired(Phase.FORGET)))
    (said,) = agent.on(ev.WorkerForgotten(KEY))
    assert isinstance(said, act.SendReport)
    assert (said.report.state, said.report.generation) == (ReportedState.EMPTY, 1)


def test_rank_that_fails_to_start_counts_as_accounted_for() -> None:
    agent = Agent()
    agent.prepared()
    agent.on(ev.Assigned(desired(Phase.RUN)))
    agent.on(ev.RankStarted(KEY, 1, 0, 1000))
    end = Exit(1, 1, 1, ExitReason.CANNOT_START, message="no such file")
    assert agent.on(ev.RankExited(KEY, end)) == [
        act.SendExit(ExitReport(1, KEY, end)),
        report("RUNNING", pids=((0, 1000),)),
    ]


def test_exit_is_sent_once_and_remembered_when_acknowledged() -> None:
    agent = Agent()
    agent.running()
    assert agent.on(ev.RankExited(KEY, EXITED_7)) == [act.SendExit(ExitReport(1, KEY, EXITED_7))]
    assert agent.on(ev.RankExited(KEY, EXITED_7)) == []
    assert agent.on(ev.ExitAcked(1)) == [act.RememberAck(KEY, 1, 1)]
    assert agent.on(ev.ExitAcked(1)) == []


def test_unacknowledged_exit_is_sent_in_every_session_with_its_numbers_anew() -> None:
    agent = Agent()
    agent.running()
    agent.on(ev.RankExited(KEY, EXITED_7))
    assert agent.on(ev.Disconnected()) == []
    assert agent.on(ev.RankExited(KEY, EXITED_0)) == []
    assert agent.on(ev.Welcomed(1)) == [
        act.SendExit(ExitReport(1, KEY, EXITED_7)),
        act.SendExit(ExitReport(2, KEY, EXITED_0)),
    ]
    agent.on(ev.ExitAcked(1))
    agent.on(ev.Disconnected())
    assert agent.on(ev.Welcomed(1)) == [act.SendExit(ExitReport(1, KEY, EXITED_0))]


def test_next_generation_stops_the_old_one_proves_it_empty_and_only_then_prepares() -> None:
    agent = Agent()
    agent.running()
    newer = desired(Phase.PREPARE, 2, grace_s=3.0, stop_reason=ExitReason.HANG_KILLED)
    assert agent.on(ev.Assigned(newer)) == [
        act.StopRanks(KEY, 1, 3.0, ExitReason.HANG_KILLED),
        report("STOPPING", pids=PIDS),
    ]
    assert agent.on(ev.Assigned(newer)) == [report("STOPPING", pids=PIDS)]
    assert agent.on(ev.WorkerEmptied(KEY, 1)) == [
        act.FreePorts(KEY),
        report("EMPTY"),
        act.Prepare(newer, known_good=True),
    ]
    assert agent.on(ev.WorkerPrepared(KEY, 2, 20002, 20003, 77)) == [
        report("PREPARED", 2, port=20002, master_port=20003)
    ]


def test_shorter_grace_is_passed_on_and_a_longer_one_is_not() -> None:
    agent = Agent()
    agent.running()
    agent.on(ev.Assigned(desired(Phase.STOP, grace_s=30.0)))
    sooner = agent.on(ev.Assigned(desired(Phase.STOP, grace_s=1.0)))
    assert sooner == [act.StopRanks(KEY, 1, 1.0, ExitReason.STOPPED), report("STOPPING", pids=PIDS)]
    assert agent.on(ev.Assigned(desired(Phase.STOP, grace_s=60.0))) == [report("STOPPING", pids=PIDS)]


def test_stop_of_a_prepared_place_gives_its_ports_back() -> None:
    agent = Agent()
    agent.prepared()
    assert agent.on(ev.Assigned(desired(Phase.STOP))) == [act.FreePorts(KEY), report("EMPTY")]


def test_forget_waits_for_every_acknowledgement() -> None:
    agent = Agent()
    agent.running()
    for end in (EXITED_0, EXITED_7):
        agent.on(ev.RankExited(KEY, end))
    agent.on(ev.WorkerEmptied(KEY, 1))
    assert agent.on(ev.Assigned(desired(Phase.FORGET))) == [report("EMPTY")]
    assert agent.on(ev.ExitAcked(1)) == [act.RememberAck(KEY, 1, 0)]
    assert agent.on(ev.ExitAcked(2)) == [act.RememberAck(KEY, 1, 1), act.Forget(KEY)]
    assert agent.on(ev.WorkerForgotten(KEY)) == []
    assert agent.reactor.workers == {}


def test_forgetting_an_unknown_place_leaves_nothing_and_is_answered() -> None:
    agent = Agent()
    assert agent.on(ev.Assigned(desired(Phase.FORGET, 4))) == [act.Forget(KEY)]
    [answer] = agent.on(ev.WorkerForgotten(KEY))
    assert isinstance(answer, act.SendReport)
    assert (answer.report.state.name, answer.report.generation) == ("EMPTY", 4)


def test_new_wish_while_forgetting_starts_afresh() -> None:
    agent = Agent()
    agent.on(ev.Assigned(desired(Phase.FORGET, 1)))
    newer = desired(Phase.PREPARE, 2)
    assert agent.on(ev.Assigned(newer)) == [act.RememberAttempt(KEY, 2, 1)]
    assert agent.on(ev.WorkerForgotten(KEY)) == [
        act.RememberAttempt(KEY, 2, 1),
        act.Prepare(newer),
    ]


def test_epoch_of_the_past_is_refused_and_a_new_one_made_durable_first() -> None:
    agent = Agent(connected=False)
    assert agent.on(ev.Welcomed(5)) == [act.PersistEpoch(5)]
    assert agent.on(ev.Assigned(desired(Phase.PREPARE, epoch=4))) == [
        act.Note("assignment.refused", KEY, "epoch 4 is over; 5 has begun")
    ]
    assert agent.reactor.workers == {}
    assert agent.on(ev.Assigned(desired(Phase.PREPARE, epoch=6)))[0] == act.PersistEpoch(6)
    agent.on(ev.Disconnected())
    assert agent.on(ev.Welcomed(5)) == [act.CloseSession("epoch 5 is over; 6 has begun")]


def test_generation_of_the_past_is_ignored_and_answered() -> None:
    agent = Agent()
    agent.running(3)
    assert agent.on(ev.Assigned(desired(Phase.STOP, 2))) == [
        act.Note("assignment.outdated", KEY, "generation 2 < 3"),
        report("RUNNING", 3, pids=PIDS),
    ]


def test_failed_preparation_is_said_and_tried_again_only_when_asked() -> None:
    agent = Agent()
    agent.on(ev.Assigned(desired(Phase.PREPARE)))
    failed = report("CANNOT_PREPARE", message="host-0: no", shim_pid=0)
    assert agent.on(ev.PreparationFailed(KEY, 1, "host-0: no")) == [failed]
    again = desired(Phase.PREPARE)
    assert agent.on(ev.Assigned(again)) == [act.Prepare(again)]


def test_wish_that_moved_on_during_preparation_is_followed_when_that_ends() -> None:
    agent = Agent()
    agent.on(ev.Assigned(desired(Phase.PREPARE, 1)))
    agent.on(ev.Assigned(desired(Phase.STOP, 1)))
    assert agent.on(ev.WorkerPrepared(KEY, 1, 20000, 20001, 77)) == [act.FreePorts(KEY), report("EMPTY")]
    assert agent.on(ev.WorkerPrepared(KEY, 1, 20000, 20001, 77)) == []


def test_run_of_a_place_that_was_prepared_in_an_earlier_life_takes_the_known_ports() -> None:
    agent = Agent()
    run = desired(Phase.RUN)
    assert agent.on(ev.Assigned(run)) == [
        act.RememberAttempt(KEY, 1, 1),
        act.Prepare(run, ports=(20000, 20001)),
    ]
    launched = agent.on(ev.WorkerPrepared(KEY, 1, 20000, 20001, 77))
    assert launched == [act.LaunchRanks(KEY, 1, plan_ranks(run, FACTS))]


def test_refused_launch_is_a_failed_preparation() -> None:
    agent = Agent()
    agent.prepared()
    agent.on(ev.Assigned(desired(Phase.RUN)))
    assert agent.on(ev.LaunchRefused(KEY, 1, "No space left on device")) == [
        act.FreePorts(KEY),
        report("CANNOT_PREPARE", message="host-0: No space left on device"),
    ]


def test_launch_that_grows_too_long_is_refused_with_the_reason() -> None:
    agent = Agent()
    agent.prepared()
    process = replace(LAUNCH.task, args=tuple("$(MASTER_ADDR)" * 20_000 for _ in range(1)))
    run = desired(Phase.RUN)
    assert run.launch is not None
    actions = agent.on(ev.Assigned(replace(run, launch=replace(run.launch, task=process))))
    assert actions[0] == act.FreePorts(KEY)
    assert isinstance(actions[1], act.SendReport)
    assert actions[1].report.state is ReportedState.CANNOT_PREPARE


def test_stuck_place_is_said_once_and_may_still_empty() -> None:
    agent = Agent()
    agent.running()
    agent.on(ev.Assigned(desired(Phase.STOP)))
    stuck = report("STUCK", message="outlive KILL: 5 (D)", pids=PIDS)
    assert agent.on(ev.WorkerStuck(KEY, 1, "outlive KILL: 5 (D)")) == [stuck]
    assert agent.on(ev.WorkerStuck(KEY, 1, "outlive KILL: 5 (D)")) == []
    assert agent.on(ev.WorkerEmptied(KEY, 1)) == [act.FreePorts(KEY), report("EMPTY")]


def test_lost_shim_is_followed_up_and_every_rank_accounted_for_without_a_code() -> None:
    agent = Agent()
    agent.running()
    assert agent.on(ev.ShimLost(KEY)) == [
        act.ClearOrphans(KEY, 1),
        report("STOPPING", pids=PIDS, shim_pid=0),
    ]
    journal = ev.Journal(1, (0, 1), started=((0, 1000), (1, 1001)), exits=(EXITED_0,))
    message = "its shim died, so it is unknown how it ended"
    lost = Exit(0, 1, 1, ExitReason.LOST_SHIM_DIED, message=message)
    assert agent.on(ev.OrphansCleared(KEY, 1, journal, found=1)) == [
        act.SendExit(ExitReport(1, KEY, EXITED_0)),
        act.RecordExits(KEY, 1, (lost,)),
    ]
    assert lost.exit_code is None
    assert lost.signal is None
    assert agent.on(ev.RankExited(KEY, lost)) == [act.SendExit(ExitReport(2, KEY, replace(lost, attempt=1)))]
    assert agent.on(ev.WorkerEmptied(KEY, 1)) == [act.FreePorts(KEY), report("EMPTY", shim_pid=0)]


def test_shim_that_dies_before_its_intent_leaves_ranks_that_never_started() -> None:
    agent = Agent()
    agent.prepared()
    agent.on(ev.Assigned(desired(Phase.RUN)))
    agent.on(ev.ShimLost(KEY))
    [record] = agent.on(ev.OrphansCleared(KEY, 1, None, found=0))
    assert isinstance(record, act.RecordExits)
    assert [exit_.reason for exit_ in record.exits] == [ExitReason.NOT_STARTED] * 2
    assert record.launched == (0, 1)


def test_idle_shims_death_is_nobodys_business() -> None:
    agent = Agent()
    agent.prepared()
    assert agent.on(ev.ShimLost(KEY)) == []


def test_shim_that_greets_again_is_told_again_what_it_may_have_missed() -> None:
    agent = Agent()
    agent.prepared()
    run = desired(Phase.RUN)
    agent.on(ev.Assigned(run))
    assert agent.on(ev.ShimGreeted(KEY, 77, 0, live=False)) == [act.LaunchRanks(KEY, 1, plan_ranks(run, FACTS))]
    assert agent.on(ev.ShimGreeted(KEY, 77, 1, live=True)) == []
    agent.on(ev.Assigned(desired(Phase.STOP)))
    assert agent.on(ev.ShimGreeted(KEY, 77, 1, live=True)) == [act.StopRanks(KEY, 1, 10.0, ExitReason.STOPPED)]


def test_place_without_a_wish_is_left_alone() -> None:
    agent = Agent()
    agent.on(ev.WorkerFound(KEY, (), (ev.Journal(1, (0,), started=((0, 8),)),), frozenset(), 77))
    assert agent.on(ev.ShimGreeted(KEY, 77, 1, live=True)) == []
    assert agent.on(ev.Assigned(desired(Phase.STOP, key=WorkerId("job-2", "workerpool0-0")))) != []
    assert agent.reactor.workers[KEY].state.kind.reported is ReportedState.RUNNING


def test_launch_that_was_under_way_when_the_agent_died_is_found_running() -> None:
    agent = Agent(connected=False)
    agent.on(ev.WorkerFound(KEY, (), (), frozenset(), 77))
    assert agent.on(ev.ShimGreeted(KEY, 77, 1, live=True)) == []
    assert agent.reactor.workers[KEY].state.kind.reported is ReportedState.RUNNING


@pytest.mark.parametrize(
    ("tail", "after_s", "reason", "taken"),
    [
        ("OSError: [Errno 98] Address already in use", 1.0, ExitReason.NONZERO_EXIT, True),
        ("The server socket has failed to bind: EADDRINUSE", 59.0, ExitReason.NONZERO_EXIT, True),
        ("OSError: [Errno 98] Address already in use", 61.0, ExitReason.NONZERO_EXIT, False),
        ("OSError: [Errno 98] Address already in use", 1.0, ExitReason.STOPPED, False),
        ("ValueError", 1.0, ExitReason.NONZERO_EXIT, False),
    ],
)
def test_port_is_blamed_only_early_and_by_the_ranks_own_words(
    tail: str, after_s: float, reason: ExitReason, taken: bool
) -> None:
    agent = Agent()
    agent.running()
    agent.now += after_s
    end = Exit(1, 1, 0, reason, 1, end_time=5.0, stderr_tail=(tail,))
    [sent] = agent.on(ev.RankExited(KEY, end))
    assert isinstance(sent, act.SendExit)
    assert sent.report.port_taken is taken


def test_place_of_an_earlier_life_in_which_nothing_was_launched_is_forgotten() -> None:
    agent = Agent(connected=False)
    assert agent.on(ev.WorkerFound(KEY, (), (), frozenset(), 0)) == [act.Forget(KEY)]
    assert agent.on(ev.WorkerForgotten(KEY)) == []
    assert KEY not in agent.reactor.workers


def test_place_of_an_earlier_life_whose_shim_never_launched_is_forgotten_once_it_says_so() -> None:
    agent = Agent(connected=False)
    assert agent.on(ev.WorkerFound(KEY, (), (), frozenset(), 77)) == []
    assert agent.on(ev.ShimGreeted(KEY, 77, 0, live=False)) == [act.Forget(KEY)]
