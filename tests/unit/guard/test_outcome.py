"""What each task exits with, and what is said at the end."""

from __future__ import annotations

from holdfast.guard.outcome import of_task, summary
from holdfast.v1 import job_pb2


def failed(rank: int | None) -> job_pb2.CustomJob:
    job = job_pb2.CustomJob(state=job_pb2.JOB_STATE_FAILED)
    job.error.message = "it ended"
    if rank is not None:
        job.error.rank = rank
    for number in range(3):
        worker = job.workers.add(name=f"w{number}", host=f"n{number}")
        worker.exits.add(rank=number, generation=1, exit_code=143 if number != rank else 3)
    return job


def test_the_task_whose_rank_is_to_blame_has_its_code_and_the_victims_have_none() -> None:
    job = failed(2)

    assert [of_task(job, 3, f"n{host}", first=host == 0) for host in range(3)] == [0, 0, 3]


def test_where_no_rank_is_to_blame_the_first_task_has_the_status() -> None:
    job = failed(None)

    assert [of_task(job, 124, f"n{host}", first=host == 0) for host in range(3)] == [124, 0, 0]


def test_a_rank_that_no_task_has_leaves_the_status_to_the_first() -> None:
    job = failed(2)
    job.error.rank = 9

    assert [of_task(job, 3, f"n{host}", first=host == 0) for host in range(3)] == [3, 0, 0]


def test_success_is_every_tasks() -> None:
    assert of_task(job_pb2.CustomJob(state=job_pb2.JOB_STATE_SUCCEEDED), 0, "n0", first=True) == 0


def test_nothing_is_said_of_a_job_that_nothing_happened_to() -> None:
    assert summary(job_pb2.CustomJob(state=job_pb2.JOB_STATE_SUCCEEDED), "rec") == ""


def test_the_last_line_counts_recoveries_and_what_they_cost() -> None:
    job = job_pb2.CustomJob(state=job_pb2.JOB_STATE_SUCCEEDED)
    for seconds in (40, 1):
        job.recoveries.add().lost.seconds = seconds

    assert summary(job, "rec") == "2 recoveries, 41 s lost; see rec"


def test_the_last_line_of_a_failure_says_why() -> None:
    assert summary(failed(None), "rec") == "failed: it ended; see rec"
