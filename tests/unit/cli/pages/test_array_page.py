"""Arrays in lists and on their pages."""

from __future__ import annotations

import pytest

from holdfast.cli.pages.array_page import folded, write_array
from holdfast.v1 import job_pb2


def element(**counts: int) -> job_pb2.CustomJob:
    job = job_pb2.CustomJob(id="sweep-x7k2mq-1", display_name="sweep", state=job_pb2.JOB_STATE_FAILED, attempt=1)
    job.array.MergeFrom(job_pb2.JobArray(id="sweep-x7k2mq", index=1, count=20, at_once=4, **counts))
    job.error.message = "exited with 1"
    job.step = 7
    return job


@pytest.mark.parametrize(
    ("counts", "state"),
    [
        ({"running": 4, "waiting": 12, "done": 4}, "RUNNING"),
        ({"waiting": 19, "failed": 1}, "QUEUED"),
        ({"done": 19, "failed": 1}, "FAILED"),
        ({"done": 20}, "SUCCEEDED"),
    ],
)
def test_a_list_has_one_line_for_an_array_with_its_counts(counts: dict[str, int], state: str) -> None:
    shown = folded(element(**counts))
    assert shown.id == "sweep-x7k2mq" and job_pb2.JobState.Name(shown.state) == f"JOB_STATE_{state}"
    assert not shown.HasField("error") and not shown.HasField("step") and not shown.attempt
    every = {"running": 0, "waiting": 0, "done": 0, "failed": 0} | counts
    words = ", ".join(f"{count} {name}" for name, count in every.items())
    assert shown.summary.headline == f"Array of 20 jobs, 4 at once: {words}"


def test_a_job_by_itself_stays_as_it_is() -> None:
    job = job_pb2.CustomJob(id="train-1")
    assert folded(job) is job


def test_the_page_lists_its_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    write_array([element(done=19, failed=1)], 0.0, wide=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "sweep-x7k2mq  array of 20 jobs, 4 at once"
    assert lines[1].split() == ["now", "0", "running,", "0", "waiting,", "19", "done,", "1", "failed"]
    assert lines[-1].startswith("sweep-x7k2mq-1")
