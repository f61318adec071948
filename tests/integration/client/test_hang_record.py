"""``holdfast hang record`` against a controller of the test's."""

from __future__ import annotations

import contextlib
import gzip
import os
import shlex
import signal
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process
from tests.integration.client.fake_controller import FakeController

from holdfast._session import hang_wire
from holdfast.hang.evidence.evidence import Evidence
from holdfast.hang.records import reader
from holdfast.hang.records.recording import WorkerSample, encode
from holdfast.hang.thresholds import HangSettings
from holdfast.v1 import hang_pb2, job_pb2

pytestmark = pytest.mark.anyio
HOLDFAST = str(Path(sys.executable).with_name("holdfast"))


def answer(worker: str, host: str, *times: float, job: str = "j1", of: str = "") -> hang_pb2.RecordSamplesResponse:
    lines = "".join(encode(WorkerSample(job, of or worker, 1, at_s)) + "\n" for at_s in times)
    return hang_pb2.RecordSamplesResponse(worker=worker, host=host, data=lines.encode())


@pytest.fixture
def sampled(controller: FakeController) -> FakeController:
    """Job j1 runs on two hosts and asks for a floor; some samples of either come at once."""
    job = job_pb2.CustomJob(id="j1", state=job_pb2.JOB_STATE_RUNNING, attempt=1, generation=1)
    wishes = job.job_spec.fault_tolerance.hang_detection
    wishes.floor.FromMilliseconds(5500)
    for setting in ("timeout", "ceiling", "startup_timeout", "lone_work_timeout", "external_timeout"):
        getattr(wishes, setting).FromSeconds(60)
    wishes.step_pattern = r"step=(\d+)"
    controller.add_job(job).owner = "user"
    controller.samples["j1"] += [
        answer("workerpool1-0", "host-1", 7.0),
        answer("workerpool0-0", "host-0", 100.0, 102.0),
        answer("workerpool0-0", "host-0", 104.0),
        hang_pb2.RecordSamplesResponse(worker="workerpool1-0", host="host-1", problem="host-1 is not connected"),
    ]
    return controller


def environment(controller: FakeController, tmp_path: Path) -> dict[str, str]:
    config = controller.write_settings(tmp_path / "client.toml")
    return {"PATH": os.environ["PATH"], "HOLDFAST_CONFIG": str(config), "HOME": str(tmp_path)}


async def record(controller: FakeController, tmp_path: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    env = environment(controller, tmp_path)
    with anyio.fail_after(60):
        return await anyio.run_process(
            [HOLDFAST, "hang", "record", "j1", *words], env=env, cwd=tmp_path, check=False
        )


@contextlib.asynccontextmanager
async def recording(controller: FakeController, tmp_path: Path, *words: str) -> AsyncIterator[Process]:
    """A command that goes on."""
    env = environment(controller, tmp_path)
    async with await anyio.open_process(
        [HOLDFAST, "hang", "record", "j1", *words], env=env, cwd=tmp_path
    ) as process:
        yield process


async def told(process: Process, words: str) -> None:
    """Return once it has said that on stderr, having taken whatever came before it."""
    assert process.stderr is not None
    said = b""
    while words.encode() not in said:
        said += await process.stderr.receive()


def times(path: Path) -> list[float]:
    return [sample.at_s for sample in reader.read(path)]


async def test_a_file_for_each_worker_that_replays_with_the_jobs_own_wishes(
    sampled: FakeController, tmp_path: Path
) -> None:
    done = await record(sampled, tmp_path, "--for", "2s")
    assert done.returncode == 0, done.stderr
    assert b"recording job j1 for 2.0s into hang-j1; Ctrl-C ends it" in done.stderr
    assert b"workerpool1-0: host-1 is not connected" in done.stderr
    assert done.stdout.decode().splitlines() == [
        "workerpool0-0 on host-0: 3 samples over 4.0s, 1 KiB, hang-j1/workerpool0-0.jsonl.gz",
        "workerpool1-0 on host-1: 1 sample over 0ms, 1 KiB, hang-j1/workerpool1-0.jsonl.gz",
        "Replay with: holdfast hang replay hang-j1/workerpool0-0.jsonl.gz hang-j1/workerpool1-0.jsonl.gz "
        "--timeout 60s --floor 5.5s --ceiling 60s --startup-timeout 60s --lone-work-timeout 60s "
        "--external-timeout 60s --step-pattern 'step=(\\d+)'",
    ]
    assert times(tmp_path / "hang-j1/workerpool0-0.jsonl.gz") == [100.0, 102.0, 104.0]
    assert times(tmp_path / "hang-j1/workerpool1-0.jsonl.gz") == [7.0]

    kept = HangSettings(
        timeout_s=60.0,
        floor_s=5.5,
        ceiling_s=60.0,
        startup_timeout_s=60.0,
        lone_work_timeout_s=60.0,
        external_timeout_s=60.0,
        step_pattern=r"step=(\d+)",
    )
    for worker in ("workerpool0-0", "workerpool1-0"):
        assert reader.settings_of(tmp_path / f"hang-j1/{worker}.jsonl.gz") == kept

    words = shlex.split(done.stdout.decode().partition("Replay with: holdfast ")[2])
    replayed = await anyio.run_process([HOLDFAST, *words], cwd=tmp_path, check=False)
    assert replayed.returncode == 0, replayed.stderr
    assert b"began" in replayed.stdout


async def test_recording_ends_with_the_job(sampled: FakeController, tmp_path: Path) -> None:
    async with anyio.create_task_group() as tasks:

        async def end() -> None:
            while not any(method == "RecordSamples" for method, _ in sampled.calls):  # noqa: ASYNC110
                await anyio.sleep(0.05)
            sampled.jobs["j1"].state = job_pb2.JOB_STATE_SUCCEEDED
            sampled.changed()

        tasks.start_soon(end)
        done = await record(sampled, tmp_path, "--for", "1h", "--out", "new/folder")
    assert done.returncode == 0, done.stderr
    assert times(tmp_path / "new/folder/workerpool0-0.jsonl.gz") == [100.0, 102.0, 104.0]


async def test_recording_goes_on_when_the_controller_is_back(sampled: FakeController, tmp_path: Path) -> None:
    with anyio.fail_after(60):
        async with recording(sampled, tmp_path, "--for", "1h") as process:
            await told(process, "host-1 is not connected")
            await sampled.stop()
            asleep = hang_pb2.RecordSamplesResponse(
                worker="workerpool1-0", host="host-1", problem="host-1 is asleep"
            )
            sampled.samples["j1"] = [answer("workerpool0-0", "host-0", 106.0), asleep]
            await sampled.start()
            await told(process, "host-1 is asleep")
            sampled.jobs["j1"].state = job_pb2.JOB_STATE_SUCCEEDED
            sampled.changed()
            assert await process.wait() == 0
    assert times(tmp_path / "hang-j1/workerpool0-0.jsonl.gz") == [100.0, 102.0, 104.0, 106.0]


async def test_samples_that_come_again_are_kept_once(sampled: FakeController, tmp_path: Path) -> None:
    sampled.samples["j1"] += [answer("workerpool0-0", "host-0", 100.0, 102.0, 104.0, 106.0)]
    done = await record(sampled, tmp_path, "--for", "2s")
    assert done.returncode == 0
    assert times(tmp_path / "hang-j1/workerpool0-0.jsonl.gz") == [100.0, 102.0, 104.0, 106.0]


async def test_ctrl_c_keeps_what_came(sampled: FakeController, tmp_path: Path) -> None:
    with anyio.fail_after(60):
        async with recording(sampled, tmp_path, "--out", "x") as process:
            await told(process, "host-1 is not connected")
            process.send_signal(signal.SIGINT)
            assert process.stdout is not None
            summary = await process.stdout.receive()
            assert await process.wait() == 0
    assert b"workerpool0-0 on host-0: 3 samples" in summary
    assert times(tmp_path / "x/workerpool0-0.jsonl.gz") == [100.0, 102.0, 104.0]


async def test_older_recordings_are_left_alone(sampled: FakeController, tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x/workerpool0-0.jsonl.gz").write_bytes(b"precious")
    done = await record(sampled, tmp_path, "--out", "x")
    assert done.returncode == 125
    assert b"x/workerpool0-0.jsonl.gz is there already" in done.stderr
    assert b"--out" in done.stderr
    assert (tmp_path / "x/workerpool0-0.jsonl.gz").read_bytes() == b"precious"
    (tmp_path / "file").touch()
    done = await record(sampled, tmp_path, "--out", "file/x")
    assert done.returncode == 125
    assert b"can't be written" in done.stderr and b"Traceback" not in done.stderr


async def test_without_a_sample_nothing_is_left_behind(sampled: FakeController, tmp_path: Path) -> None:
    sampled.samples["j1"].clear()
    done = await record(sampled, tmp_path, "--for", "1s")
    assert (done.returncode, done.stdout) == (125, b"")
    assert b"No sample came of job j1" in done.stderr
    assert not (tmp_path / "hang-j1").exists()


async def test_samples_of_others_are_refused_and_what_came_before_is_kept(
    sampled: FakeController, tmp_path: Path
) -> None:
    for wrong in (
        answer("workerpool0-0", "host-0", 1.0, job="j2"),
        answer("workerpool0-0", "host-0", 1.0, of="workerpool1-0"),
        answer("../up", "host-0", 1.0),
        hang_pb2.RecordSamplesResponse(worker="workerpool0-0", host="host-0", data=b"nonsense\n"),
    ):
        sampled.samples["j1"][4:] = [wrong]
        out = f"out-{sampled.calls and len(sampled.calls)}"
        done = await record(sampled, tmp_path, "--for", "2s", "--out", out)
        assert done.returncode == 125, wrong
        assert b"Traceback" not in done.stderr
        assert times(tmp_path / out / "workerpool0-0.jsonl.gz") == [100.0, 102.0, 104.0]
    assert not (tmp_path / "up.jsonl.gz").exists()


async def test_worker_that_moves_to_another_host_is_recorded_up_to_there(
    sampled: FakeController, tmp_path: Path
) -> None:
    sampled.samples["j1"] += [answer("workerpool0-0", "host-5", 1.0), answer("workerpool0-0", "host-5", 3.0)]
    done = await record(sampled, tmp_path, "--for", "2s")
    assert done.returncode == 0
    assert done.stderr.count(b"it has moved from host-0 to host-5; its recording ends here") == 1
    assert times(tmp_path / "hang-j1/workerpool0-0.jsonl.gz") == [100.0, 102.0, 104.0]


async def test_what_was_kept_with_a_hang_is_written_also_of_a_job_that_has_ended(
    sampled: FakeController, tmp_path: Path
) -> None:
    job = sampled.jobs["j1"]
    job.state = job_pb2.JOB_STATE_FAILED
    job.hangs.add(number=1)
    job.hangs.add(number=2)
    for worker, host in (("workerpool0-0", "host-0"), ("workerpool1-0", "host-1")):
        content = hang_wire.pack(Evidence("j1", worker, host, 1, 0.0))
        lines = gzip.compress(answer(worker, host, 1.0).data) + gzip.compress(answer(worker, host, 3.0).data)
        sampled.evidence["j1", 1].append(
            hang_pb2.GetHangEvidenceResponse(worker=worker, content=content, samples=lines)
        )
    sampled.evidence["j1", 1][0].dumps = b"garbage"
    sampled.evidence["j1", 1][1].dumps = hang_wire.pack_dumps({3: zlib.compress(b"a dump")})
    done = await record(sampled, tmp_path, "--hang", "1")
    assert done.returncode == 0, done.stderr
    out = done.stdout.decode().splitlines()
    assert out[0] == "workerpool0-0 on host-0: 2 samples over 2.0s, 1 KiB, hang-j1/workerpool0-0.jsonl.gz"
    assert out[-1].startswith("Replay with: holdfast hang replay hang-j1/workerpool0-0.jsonl.gz ")
    assert times(tmp_path / "hang-j1/workerpool1-0.jsonl.gz") == [1.0, 3.0]
    assert b"workerpool0-0: its flight recorders can't be read" in done.stderr
    assert (tmp_path / "hang-j1/nccl_trace_rank_3").read_bytes() == b"a dump"
    done = await record(sampled, tmp_path, "--hang", "2", "--out", "none")
    assert done.returncode == 125
    assert b"No samples are kept of hang 2 of job j1" in done.stderr
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("words", [("--for", "0"), ("--for", "soon")])
async def test_no_time_is_wrong_usage(sampled: FakeController, tmp_path: Path, words: tuple[str, ...]) -> None:
    done = await record(sampled, tmp_path, *words)
    assert done.returncode == 2
    assert b"--for" in done.stderr


async def test_ended_job_cannot_be_recorded(sampled: FakeController, tmp_path: Path) -> None:
    sampled.jobs["j1"].state = job_pb2.JOB_STATE_FAILED
    done = await record(sampled, tmp_path)
    assert done.returncode == 125
    assert b"The job j1 has ended" in done.stderr
    assert not (tmp_path / "hang-j1").exists()
