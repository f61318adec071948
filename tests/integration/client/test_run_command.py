"""``holdfast run`` as a user types it: a process of its own against a controller of the test's."""

from __future__ import annotations

import functools
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from tests.integration.client.fake_controller import FakeController

from holdfast.cli.jobs import following
from holdfast.cli.kit.console import Console
from holdfast.client import Client
from holdfast.errors import InvalidSpec, Violation
from holdfast.v1 import job_pb2

pytestmark = pytest.mark.anyio

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))


@dataclass(frozen=True)
class Result:
    code: int
    out: bytes
    err: str


class Command:
    """Runs ``holdfast`` with the settings of the controller and nothing else of the tester's."""

    def __init__(self, controller: FakeController, tmp_path: Path) -> None:
        config = controller.write_settings(tmp_path / "client.toml")
        self.cwd = tmp_path
        self.env = {"PATH": os.environ["PATH"], "HOLDFAST_CONFIG": str(config), "HOME": str(tmp_path)}

    async def __call__(self, *words: str, input: bytes | None = None) -> Result:
        with anyio.fail_after(60):
            done = await anyio.run_process(
                [HOLDFAST, *words], env=self.env, cwd=self.cwd, check=False, input=input or b""
            )
        return Result(done.returncode, done.stdout, done.stderr.decode())

    @contextmanager
    def started(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        process = subprocess.Popen(
            [HOLDFAST, *words],
            env=self.env,
            cwd=self.cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()


@pytest.fixture
def holdfast(controller: FakeController, tmp_path: Path) -> Command:
    return Command(controller, tmp_path)


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(30):
        while not condition():  # noqa: ASYNC110 (what a server holds has no event to wait for)
            await anyio.sleep(0.02)


async def result_of(process: subprocess.Popen[bytes]) -> Result:
    with anyio.fail_after(30):
        out, err = await anyio.to_thread.run_sync(process.communicate)
    return Result(process.returncode, out, err.decode())


def script(controller: FakeController, *, end: str = "SUCCEEDED", error: job_pb2.JobError | None = None) -> None:
    """What becomes of the next job: it runs, says hello and ends."""

    async def on_create(job: job_pb2.CustomJob) -> None:
        controller.event(job.id, "GangStarted", "generation 1 is running", "RUNNING")
        controller.write(job.id, b"hello\n")
        controller.write(job.id, b"warning\n", err=True)
        if error is not None:
            job.error.CopyFrom(error)
        controller.event(job.id, "JobEnded", end, end)

    controller.on_create = on_create


@pytest.mark.parametrize(
    ("state", "error", "status"),
    [
        ("SUCCEEDED", None, 0),
        ("FAILED", job_pb2.JobError(exit_code=7), 7),
        ("FAILED", job_pb2.JobError(), 125),
        ("FAILED", job_pb2.JobError(code=4, exit_code=143), 124),
        ("CANCELLED", None, 130),
    ],
)
async def test_run_exits_as_the_job_ended(
    controller: FakeController, holdfast: Command, state: str, error: job_pb2.JobError | None, status: int
) -> None:
    script(controller, end=state, error=error)
    result = await holdfast("run", "--", "python", "train.py")
    assert result.code == status, result.err
    assert result.out == b"hello\n"
    assert "warning\n" in result.err


async def test_arguments_arrive_as_typed_and_the_spec_is_whole(
    controller: FakeController, holdfast: Command
) -> None:
    script(controller)
    words = (
        "--replicas",
        "2",
        "--gpus",
        "2",
        "--max-restarts",
        "0",
        "--timeout",
        "2h",
        "--env",
        "A=1",
        "--name",
        "n",
    )
    result = await holdfast("run", *words, "--", "sh", "-c", "echo $(date) $$ --gpus 9")
    assert result.code == 0, result.err
    job = controller.jobs["j1"]
    assert job.display_name == "n"
    assert [pool.replica_count for pool in job.job_spec.worker_pool_specs] == [1, 1]
    process = job.job_spec.worker_pool_specs[0].process_spec
    assert list(process.command) == ["sh", "-c", "echo $$(date) $$$$ --gpus 9"]
    assert process.working_directory == str(holdfast.cwd)
    assert {each.name: each.value for each in process.env} == {
        "PATH": os.environ["PATH"].replace("$", "$$"),
        "A": "1",
    }
    assert job.job_spec.scheduling.timeout.seconds == 7200
    assert job.job_spec.fault_tolerance.max_worker_restarts == 0


async def test_detached_prints_the_id_and_nothing_else(controller: FakeController, holdfast: Command) -> None:
    result = await holdfast("run", "--detach", "--", "sleep", "9")
    assert (result.code, result.out, result.err) == (0, b"j1\n", "")


async def test_notes_tell_the_story_on_stderr(controller: FakeController, holdfast: Command) -> None:
    async def on_create(job: job_pb2.CustomJob) -> None:
        controller.event(job.id, "JobQueued", "queued: needs 2 GPUs; 1 is free")
        controller.event(job.id, "JobPlaced", "placed on host-0", "PENDING")
        controller.event(job.id, "GangLaunched", "generation 1 launched", "RUNNING")
        controller.event(job.id, "GangStarted", "generation 1 is running")
        controller.event(job.id, "JobEnded", "SUCCEEDED", "SUCCEEDED")

    controller.on_create = on_create
    result = await holdfast("run", "--", "python", "train.py")
    assert result.out == b""
    lines = result.err.splitlines()
    assert lines[:4] == [
        "holdfast: job j1: python train.py",
        "holdfast: queued: needs 2 GPUs; 1 is free",
        "holdfast: placed on host-0",
        "holdfast: generation 1 is running",
    ]
    assert lines[4].startswith("holdfast: succeeded after ")


def fail_third_rank(controller: FakeController) -> None:
    """Four ranks on two workers; rank 3 fails, rank 2 is gone before it, and then the rest is stopped."""

    async def on_create(job: job_pb2.CustomJob) -> None:
        controller.event(job.id, "GangStarted", "generation 1 is running", "RUNNING")
        for rank, worker in enumerate(("workerpool0-0", "workerpool0-0", "workerpool1-0", "workerpool1-0")):
            controller.write(job.id, b"step of rank %d\n" % rank, worker=worker, rank=rank)
        controller.write(job.id, b"ValueError: nan\n", worker="workerpool1-0", rank=3, err=True)
        for rank, reason in ((2, "NONZERO_EXIT"), (3, "NONZERO_EXIT"), (0, "STOPPED")):
            worker = "workerpool1-0" if rank > 1 else "workerpool0-0"
            number = job_pb2.ExitReason.Value(f"EXIT_REASON_{reason}")
            exit_ = job_pb2.Exit(attempt=1, generation=1, rank=rank, reason=number)
            exited = job_pb2.JobEvent(rank_exited=job_pb2.JobEvent.RankExited(worker=worker, exit=exit_))
            controller.event(job.id, "RankExited", f"{worker} rank {rank} {reason}", what=exited)
        error = job_pb2.JobError(rank=3, message="rank 3 exited")
        ending = job_pb2.JobEvent(ending=job_pb2.JobEvent.Ending(error=error))
        controller.event(job.id, "JobEnding", "ending as FAILED", what=ending)
        job.error.CopyFrom(job_pb2.JobError(code=3, message="rank 3 exited with 7", exit_code=7))
        controller.event(job.id, "JobEnded", "FAILED", "FAILED")

    controller.on_create = on_create


async def test_rank_0_and_the_rank_that_is_to_blame_are_shown(
    controller: FakeController, holdfast: Command
) -> None:
    fail_third_rank(controller)
    result = await holdfast("run", "--replicas", "2", "--processes-per-worker", "2", "--", "x")
    assert result.code == 7, result.err
    assert b"step of rank 0\n" in result.out
    assert b"[workerpool1-0 r3] step of rank 3\n" in result.out
    assert b"rank 1\n" not in result.out and b"rank 2\n" not in result.out
    assert "[workerpool1-0 r3] ValueError: nan\n" in result.err
    assert "holdfast: workerpool1-0 rank 3 NONZERO_EXIT\n" in result.err
    assert "rank 2 NONZERO_EXIT" not in result.err
    assert "rank 3 exited with 7" in result.err
    assert "holdfast job show j1" in result.err


async def test_a_cause_that_is_found_late_is_shown_by_its_own_end_not_by_a_later_one(
    controller: FakeController, holdfast: Command
) -> None:
    async def on_create(job: job_pb2.CustomJob) -> None:
        for generation in (1, 2):
            exit_ = job_pb2.Exit(generation=generation, rank=1, reason=job_pb2.EXIT_REASON_NONZERO_EXIT)
            exited = job_pb2.JobEvent(rank_exited=job_pb2.JobEvent.RankExited(worker="workerpool1-0", exit=exit_))
            controller.event(job.id, "RankExited", f"rank 1 ended in launch {generation}", what=exited)
        ranks = [job_pb2.RankName(worker="workerpool1-0", rank=1)]
        found = job_pb2.JobEvent.CauseFound(generation=2, related=job_pb2.Related(ranks=ranks))
        controller.event(job.id, "CauseFound", "first to fail was rank 1", what=job_pb2.JobEvent(cause_found=found))
        controller.event(job.id, "JobEnded", "SUCCEEDED", "SUCCEEDED")

    controller.on_create = on_create
    result = await holdfast("run", "--replicas", "2", "--", "x")
    assert "holdfast: rank 1 ended in launch 1\nholdfast: first to fail was rank 1\n" in result.err
    assert "launch 2" not in result.err


async def test_the_blamed_rank_is_shown_though_all_other_output_has_been_read(
    controller: FakeController, holdfast: Command
) -> None:
    controller.late_watch = True
    fail_third_rank(controller)
    result = await holdfast("run", "--replicas", "2", "--processes-per-worker", "2", "--", "x")
    assert b"[workerpool1-0 r3] step of rank 3\n" in result.out


async def test_output_of_generations_that_ended_before_anyone_looked_is_shown(
    controller: FakeController, holdfast: Command
) -> None:
    async def on_create(job: job_pb2.CustomJob) -> None:
        controller.write(job.id, b"in the first\n", generation=1)
        controller.write(job.id, b"in the second\n", generation=2)
        controller.event(job.id, "JobEnded", "SUCCEEDED", "SUCCEEDED")

    controller.on_create = on_create
    result = await holdfast("run", "--", "x")
    assert result.out == b"in the first\nin the second\n"


async def test_all_shows_every_rank_with_its_name(controller: FakeController, holdfast: Command) -> None:
    fail_third_rank(controller)
    result = await holdfast("run", "--all", "--replicas", "2", "--processes-per-worker", "2", "--", "x")
    assert result.code == 7
    assert sorted(result.out.splitlines()) == [
        b"[workerpool0-0 r0] step of rank 0",
        b"[workerpool0-0 r1] step of rank 1",
        b"[workerpool1-0 r2] step of rank 2",
        b"[workerpool1-0 r3] step of rank 3",
    ]


async def test_ctrl_c_leaves_the_job_alone_and_says_how_to_come_back(
    controller: FakeController, holdfast: Command
) -> None:
    with holdfast.started("run", "--", "sleep", "99") as process:
        await until(lambda: controller.open_streams == 2)
        process.send_signal(signal.SIGINT)
        result = await result_of(process)
    assert result.code == 0
    for words in (
        "detached; job j1 keeps running",
        "holdfast logs -f j1",
        "holdfast job watch j1",
        "holdfast cancel j1",
    ):
        assert words in result.err
    assert "Traceback" not in result.err
    assert "CancelJob" not in [name for name, _ in controller.calls]
    await until(lambda: controller.open_streams == 0)


async def test_ctrl_c_works_while_nobody_reads_the_output(controller: FakeController, holdfast: Command) -> None:
    async def on_create(job: job_pb2.CustomJob) -> None:
        controller.event(job.id, "GangStarted", "generation 1 is running", "RUNNING")
        for _ in range(8):
            controller.write(job.id, b"x" * 65536)

    controller.on_create = on_create
    with holdfast.started("run", "--", "flood") as process:
        await until(lambda: controller.open_streams == 2)
        await anyio.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert isinstance(process.stderr, io.BufferedReader)
        seen = b""
        with anyio.fail_after(20):
            while b"holdfast cancel j1" not in seen:
                seen += await anyio.to_thread.run_sync(process.stderr.read1)
        process.send_signal(signal.SIGINT)
        with anyio.fail_after(20):
            assert await anyio.to_thread.run_sync(process.wait) == -signal.SIGINT


async def test_a_run_outlives_its_controller(controller: FakeController, holdfast: Command) -> None:
    with holdfast.started("run", "--", "python", "train.py") as process:
        await until(lambda: controller.open_streams == 2)
        controller.event("j1", "GangStarted", "generation 1 is running", "RUNNING")
        controller.write("j1", b"before\n")
        await anyio.sleep(0.3)
        await controller.stop()
        controller.write("j1", b"meanwhile\n")
        await anyio.sleep(0.5)
        await controller.start()
        await until(lambda: controller.open_streams == 2)
        controller.write("j1", b"after\n")
        controller.jobs["j1"].error.exit_code = 9
        controller.event("j1", "JobEnded", "FAILED", "FAILED")
        result = await result_of(process)
    assert result.code == 9, result.err
    assert result.out == b"before\nmeanwhile\nafter\n"
    assert result.err.count("waiting for the controller to come back") == 1
    assert result.err.count("the controller is back") == 1


async def test_a_run_whose_reader_is_gone_still_exits_as_the_job(
    controller: FakeController, holdfast: Command
) -> None:
    script(controller, end="FAILED", error=job_pb2.JobError(exit_code=7))
    with holdfast.started("run", "--", "x") as process:
        assert process.stdout is not None
        process.stdout.close()
        with anyio.fail_after(30):
            assert await anyio.to_thread.run_sync(process.wait) == 7


async def test_refusals_are_sentences_with_a_status(controller: FakeController, holdfast: Command) -> None:
    controller.failures = [InvalidSpec([Violation("jobSpec.scheduling.timeout", "must be above 0")])]
    result = await holdfast("run", "--timeout", "0", "--", "x")
    assert result.code == 2
    assert result.err.startswith("error: The command line has 1 problem:\n  --timeout: must be above 0")


@pytest.mark.parametrize(
    "words",
    [
        ("run",),
        ("run", "--gpus", "-1", "--", "x"),
        ("run", "--gpu", "1", "--", "x"),
        ("run", "--timeout", "soon", "--", "x"),
        ("run", "--env", "NOT_SET_ANYWHERE", "--", "x"),
        ("run", "--processes-per-worker", "2", "--", "torchrun", "x"),
        ("rum",),
    ],
)
async def test_what_cannot_be_meant_is_a_usage_error(
    controller: FakeController, holdfast: Command, words: tuple[str, ...]
) -> None:
    result = await holdfast(*words)
    assert result.code == 2
    assert "Traceback" not in result.err and "rror" in result.err
    assert controller.jobs == {}


async def test_no_controller_is_our_failure(controller: FakeController, holdfast: Command) -> None:
    await controller.stop()
    result = await holdfast("run", "--", "x")
    assert result.code == 125
    assert result.err.startswith("error: No controller answers at 127.0.0.1:")


async def test_a_job_that_shows_nothing_says_what_it_waits_for(
    controller: FakeController, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(following, "SILENT_S", 0.3)
    job = controller.add_job(job_pb2.CustomJob(display_name="still", generation=1))
    controller.event(job.id, "GangStarted", "generation 1 is running", "RUNNING")
    job.health = "starting up: silence is noticed after 3600 s"
    async with Client(controller.settings()) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(functools.partial(following.follow, client, job, Console(), show_all=False))
        said = ""
        with anyio.fail_after(30):
            while "holdfast job restart" not in said:
                await anyio.sleep(0.1)
                said += capfd.readouterr().err
        controller.event(job.id, "JobEnded", "SUCCEEDED", "SUCCEEDED")
    assert "starting up: silence is noticed after 3600 s" in said
