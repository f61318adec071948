"""``holdfast template``: what is said of versions that aren't there, and of a job that is waited for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from click.testing import CliRunner

from holdfast.cli.app import root
from holdfast.cli.jobs import schedules, templates
from holdfast.errors import NotFound
from holdfast.v1 import job_pb2, schedule_pb2


@pytest.mark.parametrize("versions", [[1, 2], [7]])
@pytest.mark.parametrize("words", [["show", "train@9"], ["run", "train@9", "--set", "a[0]=1"]])
def test_a_version_that_a_template_lacks_is_told_from_a_template_that_is_not_there(
    words: list[str], versions: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Kept:
        async def list_templates(self, *, project: str, name: str) -> list[schedule_pb2.Template]:
            there = versions if name == "train" else []
            return [schedule_pb2.Template(name=name, version=number) for number in there]

    def with_client(work: Callable[[Any], Awaitable[object]]) -> object:
        return anyio.run(work, SimpleNamespace(schedules=Kept()))

    monkeypatch.setattr(templates, "with_client", with_client)
    with pytest.raises(NotFound, match=f"The template train has no version '9'; its newest is {versions[-1]}"):
        CliRunner().invoke(root.commands["template"], words, catch_exceptions=False)
    with pytest.raises(NotFound, match="There is no template 'other' in project default"):
        CliRunner().invoke(root.commands["template"], ["show", "other@9"], catch_exceptions=False)


def test_one_version_of_a_template_is_not_removed() -> None:
    refused = CliRunner().invoke(root, ["template", "remove", "train@1"])
    assert refused.exit_code == 2
    assert refused.stderr.rstrip().endswith("none of them alone: holdfast template remove train")


@pytest.mark.parametrize(("name", "said"), [("j1", "job j1: train"), ("", "array a1: train")])
def test_a_template_that_is_run_and_waited_for_says_which_job_it_became(
    name: str, said: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def create(*_: object, **more: object) -> job_pb2.CustomJob:
        array = None if name else job_pb2.JobArray(id="a1")
        return job_pb2.CustomJob(id=name or "a1-1", display_name="train", array=array)

    async def ended(*_: object, **more: object) -> int:
        return 0

    def with_client(work: Callable[[Any], Awaitable[object]]) -> object:
        return anyio.run(work, SimpleNamespace())

    monkeypatch.setattr(templates, "create_job", create)
    monkeypatch.setattr("holdfast.cli.jobs.following.follow", ended)
    monkeypatch.setattr("holdfast.cli.jobs.waiting.array_ended", ended)
    monkeypatch.setattr(templates, "with_client", with_client)
    assert CliRunner().invoke(root, ["template", "run", "train", "--wait"]).exit_code == 0
    assert capfd.readouterr().err == f"holdfast: {said}\n"


@pytest.mark.parametrize(("words", "project"), [([], "vision"), (["--project", "default"], "default")])
def test_a_project_that_is_named_holds_rather_than_the_job_files(
    words: list[str], project: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[str] = []

    class Kept:
        async def create_template(self, name: str, job: job_pb2.CustomJob) -> schedule_pb2.Template:
            made.append(job.project)
            return schedule_pb2.Template(name=name, version=1)

        async def create(self, name: str, cron: str, job: job_pb2.CustomJob, **_: object) -> schedule_pb2.Schedule:
            made.append(job.project)
            return schedule_pb2.Schedule(name=name, time_zone="UTC")

    def with_client(work: Callable[[Any], Awaitable[object]]) -> object:
        return anyio.run(work, SimpleNamespace(schedules=Kept()))

    for module in (templates, schedules):
        monkeypatch.setattr(module, "with_client", with_client)
    file = tmp_path / "job.yaml"
    file.write_text(
        "project: vision\njobSpec: {workerPoolSpecs: [{replicaCount: 1, processSpec: {command: ['true']}}]}\n"
    )
    for command in (["template", "create", "t"], ["schedule", "create", "s", "--cron", "@daily"]):
        CliRunner().invoke(root, [*command, str(file), *words], catch_exceptions=False)
    assert made == [project] * 2
