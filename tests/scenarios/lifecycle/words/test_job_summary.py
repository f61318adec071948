"""A job in words, in the situations that a user meets: is it healthy, what happened, what was done, what to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.scenarios.lifecycle.words import situations
from tests.scenarios.world import World

from holdfast_controller.core.model.clock import Mono, Now, Wall, moment
from holdfast_controller.core.model.recovery import EndReason
from holdfast_controller.core.views.interruptions import CAUSES
from holdfast_controller.core.views.job_summary import Condition

SITUATIONS: list[tuple[Callable[[], World], Condition, str, str, str, str]] = [
    (
        situations.queued_behind_quota,
        Condition.WAITS,
        "Over quota: project default uses 4 of its 4 GPUs; this job needs 4",
        "ann submitted it at 13:48:20 UTC",
        "Nothing had to be done",
        "Nothing: it starts by itself; end it now by: holdfast cancel a",
    ),
    (
        situations.queued_for_space,
        Condition.WAITS,
        "Needs 4 GPUs on one host (2 free on the best, host-1); the GPUs are held by b, c",
        "ann submitted it at 13:48:20 UTC",
        "Nothing had to be done",
        "Nothing: it starts by itself, or is given up at 1970-01-13 13:48 UTC (--max-wait); with --gpus 2 "
        "it would fit now; make room for it now by ending b, which is ann's too: holdfast cancel b",
    ),
    (
        situations.queued_behind_another,
        Condition.WAITS,
        "Behind b in the queue, which needs 4 GPUs on one host (0 free on the best); the GPUs are held by c",
        "ann submitted it at 13:48:20 UTC",
        "Nothing had to be done",
        "Nothing: it starts by itself, or is given up at 1970-01-13 13:48 UTC (--max-wait); end it now "
        "by: holdfast cancel a",
    ),
    (
        situations.no_host,
        Condition.WAITS,
        "No host has joined yet",
        "ann submitted it at 13:48:20 UTC",
        "Nothing had to be done",
        "Nothing: it starts by itself, or is given up at 1970-01-13 13:48 UTC (--max-wait); end it now "
        "by: holdfast cancel a",
    ),
    (
        situations.starting,
        Condition.WAITS,
        "Being prepared on host-0, host-1",
        "ann submitted it at 13:48:20 UTC",
        "Nothing had to be done",
        "Nothing: it goes on by itself",
    ),
    (
        situations.trains,
        Condition.WORKS,
        "Trains: step 48,120 of 120,000",
        "Nothing: it began to run at 13:48:20 UTC and was not interrupted",
        "Nothing had to be done",
        "Nothing",
    ),
    (
        situations.counts_epochs,
        Condition.WORKS,
        "Trains: 40 of 200",
        "Nothing: it began to run at 13:48:20 UTC and was not interrupted",
        "Nothing had to be done",
        "Nothing",
    ),
    (
        situations.evaluates,
        Condition.WORKS,
        "Evaluates: step 48,120",
        "Nothing: it began to run at 13:48:20 UTC and was not interrupted",
        "Nothing had to be done",
        "Nothing",
    ),
    (
        situations.trains_as_usual,
        Condition.WORKS,
        "Trains: step 4,964 of 120,000, 1.45 s a step, as usual",
        "Nothing: it began to run at 13:48:20 UTC and was not interrupted",
        "Nothing had to be done",
        "Nothing",
    ),
    (
        situations.trains_slower,
        Condition.WORKS,
        "Trains: step 4,270 of 120,000, 2.00 s a step; 33 % slower than at its best since 14:49:19 UTC: "
        "no rank stands out",
        "Nothing: it began to run at 13:48:20 UTC and was not interrupted",
        "Nothing had to be done",
        "Nothing",
    ),
    (
        situations.says_nothing,
        Condition.WORKS,
        "Runs: workerpool0-0 rank 0 and 1 more works (it works)",
        "Nothing: it began to run at 13:48:20 UTC and was not interrupted",
        "Nothing had to be done",
        "Nothing",
    ),
    (
        situations.suspected,
        Condition.RECOVERS,
        "Probably hangs since 13:53:20 UTC",
        "No rank of 2 has moved for 30 s, and nothing new was printed for 30 s; "
        "workerpool0-0 rank 0 waits for a peer (all_reduce) in train.py:1 `step`; workerpool1-0 rank 1 "
        "waits for a peer (all_reduce) in train.py:1 `step`",
        "Its subscribers were notified at 13:53:50 UTC; the stacks of all ranks are being taken",
        "Nothing: it is relaunched by itself unless it moves; now by: holdfast job restart a",
    ),
    (
        situations.hang_only_reported,
        Condition.NEEDS_YOU,
        "Hangs since 13:53:20 UTC, and is left so, as this job's hangs are only reported",
        "No rank of 2 has moved for 30 s, and nothing new was printed for 30 s; "
        "workerpool0-0 rank 0 waits for a peer (all_reduce) in train.py:1 `step`; workerpool1-0 rank 1 "
        "waits for a peer (all_reduce) in train.py:1 `step`",
        "Its subscribers were notified at 13:53:50 UTC; the stacks of all ranks are being taken",
        "See where it stands (holdfast job stacks a), and relaunch it by: holdfast job restart a",
    ),
    (
        situations.hang_held,
        Condition.NEEDS_YOU,
        "Hangs since 13:53:20 UTC, and action on hangs is off until 14:53:20 UTC",
        "No rank of 2 has moved for 30 s, and nothing new was printed for 30 s; "
        "workerpool0-0 rank 0 waits for a peer (all_reduce) in train.py:1 `step`; workerpool1-0 rank 1 "
        "waits for a peer (all_reduce) in train.py:1 `step`",
        "Its subscribers were notified at 13:53:50 UTC; the stacks of all ranks are being taken",
        "Turn it on again by: holdfast job hang-action a on",
    ),
    (
        situations.hang_relaunching,
        Condition.RECOVERS,
        "Restarting in place on host-0, host-1",
        "1 interruption at 13:53:20 UTC: it hung: workerpool0-0 rank 0 and workerpool1-0 rank 1 wait in all_reduce",
        "Is being relaunched in place as generation 2, since 13:54:20 UTC",
        "Nothing: it goes on by itself",
    ),
    (
        situations.hang_relaunched,
        Condition.WORKS,
        "Trains: step 700",
        "1 interruption at 13:53:20 UTC: it hung: workerpool0-0 rank 0 and workerpool1-0 rank 1 wait in all_reduce",
        "Noticed after 30 s, relaunched in place as generation 2; all ran again after 75 s",
        "Nothing",
    ),
    (
        situations.hang_again,
        Condition.NEEDS_YOU,
        "Trains: step 700; it was relaunched 2 times in a row because it hung, 3 at most",
        "2 interruptions, the last at 13:59:35 UTC: it hung: workerpool0-0 rank 0 and workerpool1-0 "
        "rank 1 wait in all_reduce",
        "Noticed after 30 s, relaunched in place as generation 3; all ran again after 3 min, back at "
        "step 700 after 5 s more",
        "See where it hung: holdfast job hangs a",
    ),
    (
        situations.relaunching,
        Condition.RECOVERS,
        "Restarting in place on host-0, host-1",
        "1 interruption at 13:48:20 UTC: workerpool1-0 rank 1: exited with code 7; it raised ValueError: bad batch",
        "Is being relaunched in place as generation 2, since 13:48:20 UTC",
        "Nothing: it goes on by itself",
    ),
    (
        situations.relaunched,
        Condition.WORKS,
        "Trains: step 48,120",
        "1 interruption at 13:48:20 UTC: workerpool1-0 rank 1: exited with code 7; it raised ValueError: bad batch",
        "Relaunched in place as generation 2; all ran again after 20 s",
        "Nothing",
    ),
    (
        situations.backs_off,
        Condition.RECOVERS,
        "Backs off after a failure until 13:49:20 UTC; at once by: holdfast job restart a",
        "1 interruption at 13:48:20 UTC: workerpool1-0 rank 1: exited with code 7; it raised ValueError: bad batch",
        "Is being relaunched in place as generation 2, since 13:48:20 UTC",
        "Nothing: it goes on by itself; now by: holdfast job restart a",
    ),
    (
        situations.fails_again,
        Condition.NEEDS_YOU,
        "Trains: step 4; it failed 2 times in a row in the same way; without progress it fails for good at 3",
        "2 interruptions, the last at 13:48:22 UTC: workerpool1-0 rank 1: exited with code 7; it raised "
        "ValueError: bad batch",
        "Relaunched in place as generation 3; all ran again after 0 s, not yet back at step 10",
        "See what it wrote last: holdfast logs a --generation 2 --tail 100",
    ),
    (
        situations.host_silent,
        Condition.RECOVERS,
        "Nothing is heard from host-1 since 13:48:20 UTC; its ranks may run on there, so the job waits "
        "for it, or for: holdfast host fence host-1",
        "It ran until host-1 fell silent at 13:48:20 UTC",
        "Nothing yet: its ranks may still run there, and none is started beside them",
        "Nothing: it goes on by itself; now by: holdfast host fence host-1",
    ),
    (
        situations.host_lost_waits_for_fence,
        Condition.NEEDS_YOU,
        "Nothing is heard from host-1 since 13:48:20 UTC; its ranks may run on there, so the job waits "
        "for it, or for: holdfast host fence host-1",
        "It ran until host-1 fell silent at 13:48:20 UTC",
        "Nothing yet: its ranks may still run there, and none is started beside them",
        "Once that host is switched off for certain, and not before: holdfast host fence host-1",
    ),
    (
        situations.host_lost_and_left,
        Condition.RECOVERS,
        "Needs 4 GPUs on one host (0 free on the best); 1 of 2 workers would fit now; host-1 is lost "
        "since 13:48:20 UTC, and what it held is free once it returns, or by: holdfast host fence host-1",
        "1 interruption at 13:48:20 UTC: workerpool1-0 rank 1: host-1 was lost",
        "Waits to be placed again in part, with its other workers kept where they are, as generation 2, "
        "since 13:49:26 UTC",
        "Nothing: it goes on by itself; now by: holdfast host fence host-1",
    ),
    (
        situations.outlives_kill,
        Condition.NEEDS_YOU,
        "host-1: pid 5 is in D state; it goes on once that is over, or by: holdfast host fence host-1",
        "1 interruption at 13:48:20 UTC: workerpool1-0 rank 1: exited with code 7; it raised ValueError: bad batch",
        "Is being relaunched in place as generation 2, since 13:48:20 UTC",
        "Once that host is switched off for certain, and not before: holdfast host fence host-1",
    ),
    (
        situations.held,
        Condition.WORKS,
        "Trains: step 48,120",
        "Nothing: it began to run at 13:48:20 UTC and was not interrupted",
        "Nothing had to be done",
        "Nothing; action on hangs is off until 14:48:21 UTC, turn it on by: holdfast job hang-action a on",
    ),
    (
        situations.drained,
        Condition.RECOVERS,
        "Being placed again; waits for its workers to be gone from host-0, host-1",
        "1 interruption at 13:48:20 UTC: host host-1 was drained",
        "Is being placed again in part, with its other workers kept where they are, as generation 2, "
        "since 13:48:20 UTC",
        "Nothing: it goes on by itself",
    ),
    (
        situations.draining(None),
        Condition.WORKS,
        "Trains: step 48,120; host-1 is being drained by ann (upgrade) and waits for the job to end",
        "Nothing: it began to run at 13:48:20 UTC and was not interrupted",
        "Nothing had to be done",
        "Nothing",
    ),
    (
        situations.draining(600.0),
        Condition.WORKS,
        "Trains: step 48,120; host-1 is being drained by ann (upgrade), and its workers move to other hosts at "
        "13:58:21 UTC",
        "Nothing: it began to run at 13:48:20 UTC and was not interrupted",
        "Nothing had to be done",
        "Nothing",
    ),
    (
        situations.preempted,
        Condition.WAITS,
        "Needs 4 GPUs on one host (0 free on the best); the GPUs are held by b",
        "1 interruption at 13:48:20 UTC: job b was placed first",
        "Waits to be placed again as generation 2, since 13:48:20 UTC",
        "Nothing: it starts by itself, or is given up at 1970-01-13 13:48 UTC (--max-wait); make room for "
        "it now by ending b, which is ann's too: holdfast cancel b",
    ),
    (
        situations.paused,
        Condition.WAITS,
        "Paused; it holds no hosts",
        "It ran from 13:48:20 UTC on, and was paused by ann",
        "Its ranks were stopped, and its hosts are free for others",
        "Go on with it by: holdfast job resume a",
    ),
    (
        situations.pausing,
        Condition.WAITS,
        "Being paused; waits for its workers to be gone from host-0, host-1",
        "Nothing: it began to run at 13:48:20 UTC and was not interrupted",
        "Nothing had to be done",
        "Nothing: it goes on by itself",
    ),
    (
        situations.succeeded,
        Condition.ENDED,
        "Succeeded after 62 min",
        "Nothing: it began to run at 13:48:20 UTC and was not interrupted",
        "Nothing had to be done",
        "Nothing",
    ),
    (
        situations.failed,
        Condition.ENDED,
        "Failed after 0 s: rank 1: ValueError: bad batch",
        "The replica workerpool1-0 exited with a non-zero status of 7. Termination reason: Error",
        "Restarts in place for the program's own errors are not allowed, and retries of the job are not allowed; "
        "it is not tried again",
        "See what it wrote last: holdfast logs a --rank 1 --tail 100",
    ),
    (
        situations.not_startable,
        Condition.ENDED,
        "Failed before it ran: The replica workerpool1-0 could not be started: host-1: no such directory /data",
        "The replica workerpool1-0 could not be started: host-1: no such directory /data",
        "A new launch would meet the same; it is not tried again",
        "Fix that in the job file or on its hosts, and submit it again",
    ),
    (
        situations.failed_after_restarts,
        Condition.ENDED,
        "Failed after 2 s: rank 1: ValueError: bad batch",
        "The replica workerpool1-0 exited with a non-zero status of 7. Termination reason: Error; before that, "
        "1 interruption",
        "1 of 1 restarts in place for the program's own errors are spent, and retries of the job are not allowed; "
        "it is not tried again",
        "See what it wrote last: holdfast logs a --rank 1 --tail 100",
    ),
    (
        situations.cancelled,
        Condition.ENDED,
        "Cancelled after 0 s: the job was cancelled by bob",
        "The job was cancelled by bob",
        "Nothing had to be done",
        "Nothing; submit it again with: holdfast job rerun a",
    ),
    (
        situations.cancelling,
        Condition.WAITS,
        "Ends as CANCELLED: waits for its workers to be gone from host-0, host-1",
        "Nothing: it began to run at 13:48:20 UTC and was not interrupted",
        "Nothing had to be done",
        "Nothing: it ends by itself",
    ),
    (
        situations.expired,
        Condition.ENDED,
        "Expired: the job waited 10 min for hosts, as long as it may: needs 4 GPUs "
        "on one host (0 free on the best)",
        "The job waited 10 min for hosts, as long as it may: needs 4 GPUs on one host (0 free on the best)",
        "Nothing had to be done",
        "Submit it again and let it wait for as long as it takes: holdfast job rerun a --max-wait 0",
    ),
]


@pytest.mark.parametrize(
    ("situation", "condition", "health", "happened", "done", "advice"),
    SITUATIONS,
    ids=[row[0].__name__ for row in SITUATIONS],
)
def test_four_questions_are_answered(
    situation: Callable[[], World], condition: Condition, health: str, happened: str, done: str, advice: str
) -> None:
    found = situations.summary(situation())
    assert (found.condition, found.health, found.happened, found.done, found.advice) == (
        condition,
        health,
        happened,
        done,
        advice,
    )
    assert found.advice.endswith(found.command)
    if condition is Condition.NEEDS_YOU:
        assert found.command.startswith("holdfast ") and found.headline.endswith(found.command)


@pytest.mark.parametrize(
    ("situation", "line"),
    [
        (situations.trains, "Trains: step 48,120 of 120,000"),
        (situations.relaunched, "Trains: step 48,120; 1 interruption"),
        (situations.hang_held, "Hangs since 13:53:20 UTC, and action on hangs is off until 14:53:20 UTC; "
         "turn it on again by: holdfast job hang-action a on"),
        (situations.failed, "Failed after 0 s: rank 1: ValueError: bad batch"),
    ],
)  # fmt: skip
def test_one_line_says_what_matters_most(situation: Callable[[], World], line: str) -> None:
    assert situations.summary(situation()).headline == line


def test_every_reason_of_an_interruption_has_words() -> None:
    assert set(CAUSES) == set(EndReason)
    assert not [words for words in CAUSES.values() if "holdfast" in words or words.endswith(".")]


@pytest.mark.parametrize(("ago_s", "words"), [(3600.0, "12:46:40 UTC"), (86_400.0, "1970-01-11 13:46 UTC")])
def test_times_of_other_days_have_a_date(ago_s: float, words: str) -> None:
    now = Now(Mono(0.0), Wall(1_000_000.0))
    assert moment(now.wall_in(-ago_s), now) == words
