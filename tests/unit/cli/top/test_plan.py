"""The controller is asked soon after a change, seldom without one, and never too often."""

from __future__ import annotations

from holdfast.cli.top.plan import LEAST_S, MOST_S, Plan, What


def questions(plan: Plan, until: float, *, busy: bool) -> dict[What, int]:
    """Count what is asked in so many seconds; ``busy``: something changes all the time."""
    found, now = dict.fromkeys(What, 0), 0.0
    while now < until:
        for what in plan.due(now):
            plan.asked(what, now)
            found[what] += 1
        if busy:
            plan.changed(*What)
        wait = plan.next(now)
        assert wait > 0
        now += wait
    return found


def test_everything_is_asked_for_at_first() -> None:
    assert Plan().due(0.0) == [*What]


def test_a_cluster_that_changes_all_the_time_is_asked_within_bounds() -> None:
    found = questions(Plan(), 300.0, busy=True)
    assert found == {what: 300 / LEAST_S[what] for what in What}


def test_a_quiet_cluster_is_asked_seldom() -> None:
    found = questions(Plan(), 300.0, busy=False)
    assert found == {what: 300 / MOST_S[what] for what in What}


def test_a_long_list_of_jobs_is_asked_for_less_often() -> None:
    plan = Plan()
    plan.pages = 5
    assert questions(plan, 300.0, busy=True)[What.JOBS] == 20
    assert questions(plan, 300.0, busy=False)[What.JOBS] <= 30


def test_a_change_counts_once_and_the_user_does_not_wait() -> None:
    plan = Plan()
    for what in What:
        plan.asked(what, 100.0)
    plan.changed(What.STATUS)
    assert plan.due(104.0) == [] and plan.due(105.0) == [What.STATUS]
    plan.asked(What.STATUS, 105.0)
    assert What.STATUS not in plan.due(111.0)
    plan.now(What.JOBS)
    assert plan.due(100.1) == [What.JOBS]
