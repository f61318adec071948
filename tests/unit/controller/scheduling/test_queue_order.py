"""The queue while jobs come and go."""

from __future__ import annotations

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
