"""Jobs that hang together: left alone for a while, told of once, then relaunched one at a time."""

from __future__ import annotations

from typing import Any

from tests.scenarios.hang_stories import job_of, newest, vectors_of_still
from tests.scenarios.training import Training, training

from holdfast.hang.pipeline.features import Motion
from holdfast.hang.pipeline.samples import State
from holdfast.hang.tuning import Action
from holdfast_controller.core.events import job as ev
from holdfast_controller.core.model.hang import HangOutcome
from holdfast_controller.core.step import actions as act

NOTHING = "nothing is killed for 10 min, since a switch or a file server may be at fault"
WHY = f"2 jobs turned suspect within 3 min: {NOTHING}"


def two(**rules: Any) -> tuple[Training, Training]:
    """Two jobs that have trained for five minutes, each on two hosts of its own."""
    first = training("a", hosts=4)
    return first, training("b", world=first.world, **rules)


def both_stand_still(first: Training, second: Training, for_s: float) -> list[str]:
    """What follows, dumps apart, of which none are answered."""
    told: list[str] = []
    for _ in range(round(for_s / 5)):
        told += first.stands_still(5)
        if job_of(second).launched:
            for vector in vectors_of_still(second):
                told += second.world.features(second.job, vector)
    return [line for line in told if " dump " not in line]


def notices(program: Training) -> list[ev.CommonCauseNoticed]:
    return [event for event in program.world.log if isinstance(event, ev.CommonCauseNoticed)]


def test_two_jobs_that_turn_suspect_together_are_left_alone_and_the_cluster_is_told_once() -> None:
    first, second = two()
    told = both_stand_still(first, second, 600)
    judged = [line for line in told if " hang " in line]
    assert sorted(judged) == [f"a hang WITHHELD: {WHY}", f"b hang WITHHELD: {WHY}"]
    assert not any("restarts" in line for line in told)
    assert [line for line in told if "common" in line] == [
        f"common cause of a b: {WHY}",
        f"> note hang.common_cause {WHY} a, b  ",
    ]


def test_hosts_that_the_jobs_share_are_named() -> None:
    first = training("a", 3, hosts=3, gpus=2)
    second = training("b", 3, world=first.world, gpus=2)
    both_stand_still(first, second, 120)
    assert [(event.jobs, event.hosts) for event in notices(first)] == [(("a", "b"), ("host-1",))]


def test_brake_is_bounded_and_then_one_job_at_a_time_is_relaunched() -> None:
    first, second = two()
    both_stand_still(first, second, 655)
    assert [job_of(program).generation for program in (first, second)] == [1, 1]
    told = both_stand_still(first, second, 15)
    assert [line for line in told if "restarts as" in line] == [
        "a restarts as g2: HANG of no rank in particular, free"
    ]
    words = "a, which hung at the same time, is relaunched first; this job's turn comes 5 min later"
    assert words in first.world.cluster.runtime["b"].health or newest(second).outcome is HangOutcome.SUPPRESSED
    assert not any("b restarts" in line for line in both_stand_still(first, second, 280))
    assert any("b restarts" in line for line in both_stand_still(first, second, 30))
    assert len(notices(first)) == 1


def test_job_that_hangs_again_after_its_turn_tells_that_the_fault_is_still_there() -> None:
    first, second = two()
    both_stand_still(first, second, 670)
    assert job_of(first).generation == 2
    first.restarts()
    told = both_stand_still(first, second, 600)
    again = [line for line in told if line.startswith("common cause")]
    assert again == [
        "common cause of a b: a hangs again 3 min after it was relaunched:"
        " what it shares with b is likely still at fault"
    ]


def test_job_that_moves_again_frees_the_other_after_a_minute() -> None:
    """What one has got over, the other may get over a moment later."""
    first, second = two()
    both_stand_still(first, second, 120)
    since_s = first.still_s
    told: list[str] = []
    began_s = first.world.mono
    while first.world.mono < began_s + 90:
        second.printed_s, second.still_s = first.world.mono, None
        for vector in second.vectors(Motion.WORKING):
            told += second.world.features("b", vector)
        first.still_s = since_s
        told += first.stands_still(5)
        if "a hang RESTARTED" in told:
            break
    assert 60 <= first.world.mono - began_s <= 75
    assert "b moves again" in told


def test_end_of_one_of_two_suspect_jobs_frees_the_other() -> None:
    first, second = two()
    both_stand_still(first, second, 100)
    first.world.cancel("b")
    assert first.stands_still(5)[0] == "a hang RESTARTED"


def test_job_that_is_only_told_of_its_hang_keeps_the_other_no_longer_than_the_brake() -> None:
    first, second = two(action=Action.NOTIFY)
    both_stand_still(first, second, 655)
    assert newest(second).outcome is HangOutcome.SUPPRESSED
    assert "a hang RESTARTED" in both_stand_still(first, second, 15)
    assert "b hang WOULD_RESTART" in both_stand_still(first, second, 310)


def test_cause_is_forgotten_once_its_jobs_are_well() -> None:
    first, second = two()
    both_stand_still(first, second, 120)
    assert len(first.world.cluster.shared_causes) == 1
    for _ in range(4):
        first.trains(5)
        second.trains(5)
    assert [job_of(program).generation for program in (first, second)] == [1, 1]
    assert first.world.cluster.shared_causes == []
    both_stand_still(first, second, 500)
    assert len(notices(first)) == 2


def test_storage_that_ranks_of_two_hosts_wait_for_is_no_fault_of_the_job_however_long(program: Training) -> None:
    for rank in (0, 1):
        program.changes[rank] = {"state": State.DISK, "mount": "/data"}
    told = program.stands_still(3600)
    words = "2 hosts wait for storage at /data: nothing is killed while the file server may be at fault"
    assert [line for line in told if "hang W" in line] == [f"a hang WITHHELD: {words}"]
    assert [line for line in told if line.startswith("common")] == [f"common cause of a at /data: {words}"]
    assert [(event.mount, event.hosts) for event in notices(program)] == [("/data", ("host-0", "host-1"))]
    notes = [action for action in program.world.sent if isinstance(action, act.Note)]
    assert [dict(note.fields)["mount"] for note in notes if note.event == "hang.common_cause"] == ["/data"]
    program.changes = {}
    assert any("RESTARTED" in line for line in program.stands_still(60))


def test_brake_begins_anew_after_a_restart_of_the_controller_and_is_bounded_still() -> None:
    first, second = two()
    both_stand_still(first, second, 300)
    first.world.restart_controller()
    for program, hosts in ((first, (0, 1)), (second, (2, 3))):
        for worker, host in enumerate(hosts):
            first.world.join(f"host-{host}", places=[first.world.place(program.job, worker, "RUNNING")])
    told = both_stand_still(first, second, 580)
    assert not any("RESTARTED" in line for line in told)
    assert any("RESTARTED" in line for line in both_stand_still(first, second, 80))
