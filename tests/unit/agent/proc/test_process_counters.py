"""A tree's counters only grow, and count nothing twice."""

from __future__ import annotations

from holdfast.hang.pipeline.samples import TreeSample
from holdfast_agent.core.proc.process_counters import Account, Counters, Growth, TreeTally


def test_growth_is_what_was_done_since_the_last_look_and_all_of_it_at_the_first() -> None:
    account = Account()
    assert account.take(Counters(100, 7, 4096, 2)) == Growth(100, 7, 4096, 2)
    assert account.take(Counters(130, 7, 8192, 2)) == Growth(30, 0, 4096, 0)


def test_counters_that_fall_are_no_growth() -> None:
    account = Account()
    account.take(Counters(100, 7, 4096, 2))
    assert account.take(Counters(0, 0, 0, 0)) == Growth(0, 0, 0, 0)


def test_child_that_was_waited_for_is_not_counted_again() -> None:
    parent = Account()
    parent.take(Counters(10, 0, 0, 0))
    parent.credit(Counters(200, 50, 1 << 20, 3))
    # Ten ticks and a page more than were known of the child.
    assert parent.take(Counters(10, 260, (1 << 20) + 4096, 0)) == Growth(0, 10, 4096, 0)


def test_credit_serves_the_look_after_next_where_the_parent_was_read_too_early_and_no_longer() -> None:
    parent = Account()
    parent.take(Counters())
    parent.credit(Counters(200, 0, 8192, 0))
    assert parent.take(Counters()) == Growth(0, 0, 0, 0)
    assert parent.take(Counters(0, 200, 8192, 0)) == Growth(0, 0, 0, 0)
    never_waited = Account()
    never_waited.credit(Counters(200, 0, 8192, 0))
    never_waited.take(Counters())
    never_waited.take(Counters())
    assert never_waited.take(Counters(0, 50, 4096, 0)) == Growth(0, 50, 4096, 0)


def test_sum_over_a_tree() -> None:
    tally = TreeTally(tick_s=0.01)
    tally.spawned()
    tally.add(Growth(100, 20, 4096, 2))
    tally.add_ticks(30)
    assert tally.sample() == TreeSample(1.5, 4096, 2, 1)
