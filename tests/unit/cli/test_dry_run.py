"""A dry run says what the submission would have said, what was understood, and what would become of it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner

from holdfast import spec
from holdfast.cli.app import root
from holdfast.cli.jobs.dry_run import understood
from holdfast.v1 import job_pb2


class Tries:
    """A client whose controller would start every job on h1."""

    async def dry_run(self, job: job_pb2.CustomJob, on_warning: object) -> job_pb2.DryRunJobResponse:
        planned = job_pb2.PlannedWorker(name="workerpool0-0", host="h1")
        return job_pb2.DryRunJobResponse(starts=True, workers=[planned])


def invoke(monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    """What it prints on stdout."""

    def with_client(work: Callable[[Any], Awaitable[int]]) -> int:
        return anyio.run(work, Tries())

    for module in ("run", "submit"):
        monkeypatch.setattr(f"holdfast.cli.jobs.{module}.with_client", with_client)
    result = CliRunner().invoke(root, words, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a script in it and PYTHONPATH set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "/src")
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "train.py").touch()
    return tmp_path


def test_of_submit_has_the_notes_of_a_submission(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (here / "job.yaml").write_text(
        "workerPoolSpecs: [&pool {replicaCount: 1, machineSpec: {acceleratorCount: 4}, processesPerWorker: 4,"
        " processSpec: {command: [python, train.py]}}, *pool]"
    )
    out = invoke(monkeypatch, "submit", "--dry-run", "--array", "20", "job.yaml")
    err = capfd.readouterr().err
    assert [line.removeprefix("holdfast: ") for line in err.splitlines()] == [
        "array 20 is the index 20 only; 20 jobs are 1-20",
        "train.py is in this directory, and submit does not carry your directory: set processSpec.workingDirectory, "
        "or use holdfast run",
        "PYTHONPATH is set here and not sent: the job's env can name it",
        "command: python train.py",
        "directory: one of the worker's own, which is empty",
        "an array of 1 job, each with 2 workers, 8 ranks, 8 GPUs",
    ]
    assert out.splitlines()[0] == "The first job of the array would start now:"


def test_of_an_array_says_of_how_many_jobs_it_tells_the_first(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    out = invoke(monkeypatch, "run", "--dry-run", "--array", "1-20%4", "--gpus", "2", "--", "python", "train.py")
    last = capfd.readouterr().err.splitlines()[-1]
    assert last == "holdfast: an array of 20 jobs, 4 at once, each with 1 worker, 2 ranks, 2 GPUs"
    assert out.splitlines()[0] == "The first job of the array would start now:"


def test_of_submit_as_json_has_the_notes_too(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (here / "job.yaml").write_text("workerPoolSpecs: [{replicaCount: 1, processSpec: {command: [python]}}]")
    assert json.loads(invoke(monkeypatch, "submit", "--dry-run", "-o", "json", "job.yaml"))["starts"]
    assert capfd.readouterr().err == "holdfast: PYTHONPATH is set here and not sent: the job's env can name it\n"


def test_of_run_tries_the_job_that_run_would_submit(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    out = invoke(monkeypatch, "run", "--dry-run", "--gpus", "2", "--", "python", "train.py", "$X")
    err = capfd.readouterr().err
    assert err.splitlines()[-3:] == [
        "holdfast: command: python train.py '$X'",
        f"holdfast: directory: {here}",
        "holdfast: 1 worker, 2 ranks, 2 GPUs",
    ]
    assert out.splitlines()[0] == "python train.py '$X' would start now:"


@pytest.mark.parametrize(
    ("task", "lines"),
    [
        ({"containerSpec": {"imageUri": "i", "args": ["a"]}}, ["image: i", "command: a"]),
        ({"containerSpec": {"imageUri": "i"}}, ["image: i"]),
        (
            {"pythonPackageSpec": {"executorImageUri": "i", "packageUris": ["file:///p.whl"], "pythonModule": "m"}},
            ["module: m"],
        ),
    ],
)
def test_other_kinds_of_tasks_are_named_as_they_are(task: dict[str, object], lines: list[str]) -> None:
    job = spec.job_to_proto(spec.parse({"workerPoolSpecs": [{"replicaCount": 1, **task}]}, name="x"))
    assert list(understood(job)) == [*lines, "1 worker, 1 rank, 0 GPUs"]
