"""A job, its result, its events and its lines, from messages."""

from __future__ import annotations

import pytest

from holdfast._api import results
from holdfast._api.job_view import JobView
from holdfast._api.log_lines import LONGEST_LINE_BYTES, LogLines
from holdfast._api.results import host_of, result_of
from holdfast.errors import HoldfastError, JobFailed, WaitTimeout
from holdfast.v1 import host_pb2, job_pb2

OUT, ERR = job_pb2.LOG_STREAM_STDOUT, job_pb2.LOG_STREAM_STDERR


def exited(rank: int, generation: int, **fields: object) -> job_pb2.Exit:
    return job_pb2.Exit(rank=rank, generation=generation, **fields)  # type: ignore[arg-type]


def failed() -> job_pb2.CustomJob:
    job = job_pb2.CustomJob(id="j-1", display_name="tr\x1bain", state=job_pb2.JOB_STATE_FAILED, generation=2)
    job.error.message, job.error.exit_code, job.error.rank, job.error.raised = (
        "rank 2 failed",
        7,
        2,
        "ValueError: x",
    )
    late = exited(3, 2, exit_code=9, reason=job_pb2.EXIT_REASON_NONZERO_EXIT)
    job.workers.add(name="workerpool0-0", exits=[exited(0, 1, exit_code=1), exited(0, 2, exit_code=0)])
    job.workers.add(
        name="workerpool1-0",
        exits=[
            exited(2, 2, exit_code=7),
            exited(1, 2, signal=9),
            exited(3, 2, reason=job_pb2.EXIT_REASON_LOST_SHIM_DIED, late_exit=late),
            exited(4, 2, reason=job_pb2.EXIT_REASON_LOST_HOST),
        ],
    )
    return job


def test_exit_codes_are_those_of_the_last_launch_as_a_shell_says_them() -> None:
    result = result_of(failed())
    assert result.exit_codes == {0: 0, 1: 137, 2: 7, 3: 9, 4: None}
    assert [each.rank for each in result.exits] == [0, 1, 2, 3, 4]
    assert (result.exits[4].reason, result.restarts, result.exit_status, bool(result)) == ("LOST_HOST", 1, 7, False)
    assert result.error is not None and result.error.exception == "ValueError: x"


def test_the_exit_of_a_worker_that_was_never_relaunched_is_among_those_of_one_that_was() -> None:
    job = job_pb2.CustomJob(id="j-1", state=job_pb2.JOB_STATE_SUCCEEDED, generation=3)
    job.workers.add(name="workerpool0-0", exits=[exited(0, 1, exit_code=0)])
    again = [exited(1, 1, exit_code=1), exited(1, 2, exit_code=1), exited(1, 3, exit_code=0)]
    job.workers.add(name="workerpool1-0", exits=again)
    assert result_of(job).exit_codes == {0: 0, 1: 0}


def test_each_exit_is_looked_at_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """To search for the last launch once for each of 8,192 ranks takes more than a second."""
    looked_at: list[object] = []

    def counted(*values: object, **options: object) -> object:
        many = list(values[0]) if len(values) == 1 else []  # type: ignore[call-overload]
        looked_at.extend(many)
        return max(*([many] if many else values), **options)  # type: ignore[call-overload]

    monkeypatch.setattr(results, "max", counted, raising=False)
    job = job_pb2.CustomJob(workers=[job_pb2.Worker(exits=[exited(rank, 1) for rank in range(100)])])
    assert len(result_of(job).exits) == len(looked_at) == 100


def test_the_lines_of_a_traceback_keep_their_indentation() -> None:
    job = failed()
    job.error.details.extend(
        ["Traceback (most recent call last):", '  File "x\x1b.py", line 3\n', "    raise ValueError"]
    )
    error = result_of(job).error
    assert error is not None
    assert error.details == ("Traceback (most recent call last):", '  File "x?.py", line 3', "    raise ValueError")


def test_a_checked_failure_holds_the_result() -> None:
    with pytest.raises(
        JobFailed, match=r"Job j-1 FAILED: rank 2: ValueError: x \(rank 2 failed\) See: holdfast job show j-1"
    ) as raised:
        result_of(failed()).check()
    assert raised.value.result.exit_codes[2] == 7


def test_a_failure_in_words_has_the_exception_once() -> None:
    job = failed()
    assert str(result_of(job).error) == "rank 2: ValueError: x (rank 2 failed)"
    job.error.message = "Rank 2 raised ValueError: x."
    assert str(result_of(job).error) == "Rank 2 raised ValueError: x."
    job.error.raised = ""
    assert str(result_of(job).error) == job.error.message


def test_a_job_that_never_ran_has_a_result_without_exits() -> None:
    result = result_of(job_pb2.CustomJob(id="j", state=job_pb2.JOB_STATE_CANCELLED))
    assert (result.exits, result.run_s, result.exit_status, result.restarts) == ((), None, 130, 0)
    done = result_of(job_pb2.CustomJob(id="j", state=job_pb2.JOB_STATE_SUCCEEDED))
    assert done.check() is done and done.error is None


def test_a_jobs_line_tells_how_it_is_and_drives_no_terminal() -> None:
    view = JobView(failed())
    assert repr(view) == "<JobView j-1 FAILED 'tr?ain' 0 ranks restarts=1 (rank 2: ValueError: x (rank 2 failed))>"
    waits = job_pb2.CustomJob(id="j", display_name="t", state=job_pb2.JOB_STATE_QUEUED, wait_reason="needs 8 GPUs")
    pool = waits.job_spec.worker_pool_specs.add(replica_count=1)
    pool.machine_spec.accelerator_count = 1
    assert repr(JobView(waits)) == "<JobView j QUEUED 't' 1 GPU (needs 8 GPUs)>"
    assert (JobView(waits).started_at, JobView(waits).ended, JobView(waits).project) == (None, False, "default")


def test_a_jobs_words_are_the_controllers() -> None:
    job = job_pb2.CustomJob(id="j")
    old = JobView(job)
    assert (old.headline, old.advice, old.needs_you) == ("", "", False)
    job.summary.headline, job.summary.advice = "Hangs", "Relaunch it by: holdfast job restart j"
    job.summary.condition = job_pb2.JOB_CONDITION_NEEDS_YOU
    new = JobView(job)
    assert (new.headline, new.advice, new.needs_you) == ("Hangs", "Relaunch it by: holdfast job restart j", True)


def test_a_timeout_is_also_pythons() -> None:
    assert issubclass(WaitTimeout, TimeoutError) and issubclass(WaitTimeout, HoldfastError)


def chunk(
    data: bytes, offset: int = 0, rank: int = 0, stream: job_pb2.LogStream.ValueType = OUT
) -> job_pb2.StreamLogsResponse:
    return job_pb2.StreamLogsResponse(
        worker="workerpool0-0", rank=rank, generation=1, stream=stream, offset=offset, data=data
    )


def test_lines_of_each_stream_are_whole_and_apart() -> None:
    lines = LogLines()
    assert [line.text for line in lines.take(chunk(b"one\ntw"))] == ["one"]
    assert lines.take(chunk(b"err", stream=ERR)) == lines.take(chunk(b"r1", rank=1)) == []
    (two,) = lines.take(chunk(b"o\n", 6))
    assert (two.text, two.rank, two.stream, two.worker, two.generation) == ("two", 0, "stdout", "workerpool0-0", 1)
    assert [(line.text, line.rank, line.stream) for line in lines.finish()] == [
        ("err", 0, "stderr"),
        ("r1", 1, "stdout"),
    ]


def test_a_bar_shows_its_last_state_and_bytes_that_are_no_text_are_replaced() -> None:
    (bar, other) = LogLines().take(chunk(b"1%\r50%\r100%\r\n\xff\n"))
    assert (bar.text, other.text) == ("100%", "\N{REPLACEMENT CHARACTER}")


def test_a_gap_and_a_problem_are_notes() -> None:
    lines = LogLines()
    lines.take(chunk(b"a\n"))
    note, line = lines.take(chunk(b"b\n", offset=102))
    assert (note.stream, note.text, line.text) == ("note", "100 bytes are gone; the log's bound cut them", "b")
    problem = job_pb2.StreamLogsResponse(worker="workerpool0-0", rank=0, problem="host-0 is away")
    assert [(each.stream, each.text) for each in lines.take(problem)] == [("note", "host-0 is away")]


def test_a_line_without_an_end_comes_in_pieces() -> None:
    lines, size = LogLines(), LONGEST_LINE_BYTES
    got = [line for at in range(5) for line in lines.take(chunk(b"x" * size, at * size))] + lines.finish()
    assert sum(len(line.text) for line in got) == 5 * size
    assert max(len(line.text) for line in got) == size


def test_a_host_counts_what_is_free_and_says_why_it_takes_nothing() -> None:
    host = host_pb2.Host(
        name="h", state=host_pb2.HOST_STATE_READY, cordoned=True, cordon_reason="disk", cpu_reserved=3
    )
    host.inventory.cpu_count, host.inventory.memory_bytes = 8, 100
    host.inventory.gpus.add(model="H100", job_id="j")
    host.inventory.gpus.add(model="H100")
    host.inventory.gpus.add(model="H100", problem="fell off the bus")
    assert host_of(host).gpus_free == 0  # by a controller that says no state of GPUs
    host.cordoned = False
    assert host_of(host).gpus_free == 1
    host.cordoned, host.inventory.gpus[0].state = True, host_pb2.GPU_STATE_FREE
    found = host_of(host)
    assert (found.gpus, found.gpus_free, found.gpu_model, found.cpus_free) == (3, 1, "H100", 5)
    assert (found.state, found.problem, found.memory_free_bytes) == ("READY", "disk", 100)
