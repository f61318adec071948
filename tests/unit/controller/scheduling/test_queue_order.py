"""The queue while jobs come and go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast_controller.core.model.queue import Queue


def test_who_reads_the_queue_sees_it_as_it_was_though_jobs_come_and_go_meanwhile() -> None:
    queue = Queue()
    for number in range(5):
        queue.add(f"j{number}", (False, 0, False, number))
    seen = []
    for job_id in queue:
        seen.append(job_id)
        queue.discard(job_id)
        queue.add(f"later-{job_id}", (False, 0, False, 100 + len(seen)))
    assert seen == ["j0", "j1", "j2", "j3", "j4"]
    assert list(queue) == [f"later-j{number}" for number in range(5)]


LINES = st.sampled_from(["", "one", "two", "three"])
JOBS = st.lists(st.tuples(LINES, st.none() | st.sampled_from(["one of r", "two of r", "two"]), st.integers(0, 9)))


@given(JOBS, st.dictionaries(st.sampled_from(["one", "two", "three", "one of r", "two of r"]), st.integers(0, 20)))
def test_jobs_that_stand_apart_come_in_their_turn_until_their_own_line_is_passed(
    jobs: list[tuple[str, str | None, int]], passed_after: dict[str, int]
) -> None:
    queue, apart, lines = Queue(), dict[str, str](), dict[str, str]()
    turns = {}
    for number, (line, own, priority) in enumerate(jobs):
        name = f"j{number}"
        turns[name] = (False, priority, False, number)
        queue.add(name, turns[name], line)
        lines[name] = own or line
        if own:
            apart[name] = own
    passed, seen = set[str](), list[str]()
    for name in queue.in_turn(passed, apart):
        seen.append(name)
        passed |= {line for line, after in passed_after.items() if len(seen) >= after}
    served, gone = list[str](), set[str]()
    for name in sorted(turns, key=lambda name: turns[name]):
        if lines[name] not in gone:
            served.append(name)
            gone |= {line for line, after in passed_after.items() if len(served) >= after}
    assert seen == served
