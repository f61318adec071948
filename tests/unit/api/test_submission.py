"""From the arguments of ``submit`` to a job, and from wrong ones to a sentence that names what was meant."""

from __future__ import annotations

import inspect
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import spec
from holdfast._api.arguments import Arguments
from holdfast._api.submission import guessing, job_from
from holdfast._base.config import duration_s
from holdfast.cli.submission.packaging import Packed
from holdfast.errors import InvalidInput, InvalidSpec
from holdfast.v1 import job_pb2, spec_pb2

POOL = {"replicaCount": 1, "processSpec": {"command": ["true"]}}


def made(job: Any = None, **asked: Any) -> job_pb2.CustomJob:
    return job_from(job, asked, Packed())  # type: ignore[arg-type]


def test_arguments_make_the_job_that_the_options_of_run_make() -> None:
    job = made(
        command="python train.py --lr '0 1'",
        name="n",
        replicas=3,
        gpus=2,
        cpus=4,
        memory_mb=512,
        env={"LR": 0.1, "N": 3, "HERE": Path("/x")},
        labels={"a": "b"},
        max_restarts=2,
        restart_on_hang=True,
        hang_timeout="20m",
        grace=timedelta(seconds=30),
        project="vision",
        priority=2,
        timeout="2h",
        max_wait=0,
        after=["prep-1", "prep-2:any"],
        pause_if_unmet=True,
        run_as="ann",
        secrets={"KEY": "wandb"},
        workdir="/w",
    )
    spec_ = job.job_spec
    first, rest = spec_.worker_pool_specs
    assert (job.display_name, dict(job.labels), job.project) == ("n", {"a": "b"}, "vision")
    assert [first.replica_count, rest.replica_count, first.processes_per_worker] == [1, 2, 2]
    assert list(first.process_spec.command) == ["python", "train.py", "--lr", "0 1"]
    machine = first.machine_spec
    assert (machine.accelerator_count, machine.cpu_count, machine.memory_mb) == (2, 4, 512)
    env = {each.name: each.value for each in first.process_spec.env}
    assert (env["LR"], env["N"], env["HERE"]) == ("0.1", "3", "/x")
    assert (spec_.fault_tolerance.max_worker_restarts, spec_.fault_tolerance.max_job_retries) == (2, 0)
    assert spec_.fault_tolerance.hang_detection.timeout.seconds == 1200
    assert (spec_.scheduling.grace_period.seconds, spec_.scheduling.timeout.seconds) == (30, 7200)
    assert spec_.scheduling.HasField("max_wait_duration") and spec_.scheduling.priority == 2
    after = [(each.job, each.end) for each in spec_.scheduling.after]
    assert after == [("prep-1", spec_pb2.DEPENDENCY_END_OK), ("prep-2", spec_pb2.DEPENDENCY_END_ANY)]
    assert spec_.scheduling.pause_if_unmet
    assert (spec_.run_as, first.process_spec.secret_env[0].secret) == ("ann", "wandb")
    assert first.process_spec.working_directory == "/w"


def test_model_profile_and_class_of_hosts_may_be_named() -> None:
    job = made(command=["a"], gpus=1, gpu_type="H100", gpu_partition_size="1g.10gb", machine_type="big")
    machine = job.job_spec.worker_pool_specs[0].machine_spec
    assert (machine.accelerator_type, machine.gpu_partition_size, machine.machine_type) == (
        "H100",
        "1g.10gb",
        "big",
    )
    with pytest.raises(InvalidInput, match="gpu_type"):
        made({"jobSpec": {"workerPoolSpecs": [POOL]}}, gpu_type="H100")


def test_the_callers_own_variables_are_carried_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_NAME", "mine")
    env = made(command=["a"], env={"TOKEN_NAME": None}).job_spec.worker_pool_specs[0].process_spec.env
    assert {each.name: each.value for each in env}["TOKEN_NAME"] == "mine"


@pytest.mark.parametrize("kind", ["dict", "file", "path", "JobFile", "message"])
def test_a_job_comes_as_a_mapping_a_file_or_what_was_read(tmp_path: Path, kind: str) -> None:
    data = {"displayName": "d", "jobSpec": {"workerPoolSpecs": [POOL]}, "labels": {"x": "1"}}
    path = tmp_path / "job.json"
    path.write_text('{"displayName": "d", "labels": {"x": "1"}, "jobSpec": {"workerPoolSpecs": [')
    path.write_text(path.read_text() + '{"replicaCount": 1, "processSpec": {"command": ["true"]}}]}}')
    read = spec.parse(data)
    given = {"dict": data, "file": str(path), "path": path, "JobFile": read, "message": spec.job_to_proto(read)}[
        kind
    ]
    job = made(given, labels={"y": "2"}, name="other", priority=3)
    assert job.job_spec.worker_pool_specs[0].process_spec.command == ["true"]
    assert (job.display_name, dict(job.labels), job.job_spec.scheduling.priority) == (
        "other",
        {"x": "1", "y": "2"},
        3,
    )
    assert made(given).display_name == "d"
    if isinstance(given, job_pb2.CustomJob):
        assert dict(given.labels) == {"x": "1"}, "the caller's own stays as it was"


def test_a_bare_file_is_named_after_it(tmp_path: Path) -> None:
    path = tmp_path / "sweep one.yaml"
    path.write_text("workerPoolSpecs: [{replicaCount: 1, processSpec: {command: [a]}}]")
    assert made(path).display_name == "sweep-one"


def test_packing_writes_nothing_into_the_callers_mapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.whl").write_bytes(b"x")
    task = {"executorImageUri": "i", "packageUris": ["p.whl"], "pythonModule": "m"}
    packed = Packed()
    try:
        job_from({"workerPoolSpecs": [{"replicaCount": 1, "pythonPackageSpec": task}]}, Arguments(), packed)
        assert len(packed.bundles) == 1
    finally:
        packed.remove()
    assert task["packageUris"] == ["p.whl"] and "bundle" not in task


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, r"command: is missing, .*submit\('train.yaml'\)"),
        ({"command": ["a"], "after": 7}, "after: 7 is no id of a job"),
        ({"command": ["a"], "after": [":any"]}, "after: ':any' is no id of a job"),
        ({"command": []}, "command: is no list of words"),
        ({"command": ["a", 1]}, "command: is no list of words"),
        ({"command": "a | b"}, r"command: has signs of a shell.*\['bash', '-c', 'a | b'\]"),
        ({"command": "a 'b"}, "command: can't be read: No closing quotation"),
        ({"command": ["a"], "gpus": "8"}, "gpus: '8' is no whole number from 0"),
        ({"command": ["a"], "gpus": True}, "gpus: True is no whole number"),
        ({"command": ["a"], "gpus": 1 << 40}, "gpus: 1099511627776 is no whole number"),
        ({"command": ["a"], "replicas": 0}, "replicas: 0 is no whole number from 1"),
        (
            {"command": ["a"], "env": ["A=1"]},
            r"env: \['A=1'\] is no mapping \(give a dict, such as {\"LR\": \"0.1\"}",
        ),
        ({"command": ["a"], "env": "A=1"}, "env: 'A=1' is no mapping"),
        ({"command": ["a"], "labels": ["a=b"]}, r"labels: \['a=b'\] is no mapping"),
        ({"command": ["a"], "secrets": "KEY"}, "secrets: 'KEY' is no mapping"),
        ({"command": ["a"], "env": {"RANK": "1"}}, "env: RANK tells each rank which one it is"),
        ({"command": ["a"], "env": {"A=B": "1"}}, "env: 'A=B' is no name"),
        ({"command": ["a"], "env": {"A": ["x"]}}, r"env\['A'\]: \['x'\] is no text"),
        ({"command": ["a"], "env": {"NO_SUCH_VARIABLE": None}}, "env: NO_SUCH_VARIABLE is not set here"),
        ({"command": ["torchrun", "t"], "processes_per_worker": 2}, "processes_per_worker: torchrun .*Leave proc"),
        ({"command": ["a"], "timeout": "soon"}, "timeout: 'soon' is no duration"),
        ({"command": ["a"], "grace": -1}, "grace: -1 is no duration"),
        ({"command": ["a"], "hang_timeout": float("nan")}, "hang_timeout: nan is no duration"),
        ({"command": ["a"], "labels": {"a": 1}}, "labels: 'a': 1 is no pair of texts"),
        ({"command": ["a"], "requirements": ["x"]}, "requirements: goes with package="),
        ({"command": ["a"], "package": "/no/such"}, "package: there is no folder /no/such"),
        ({"job": "missing.yaml"}, r"job: there is no file 'missing.yaml'.*command=\['python', 'train.py'\]"),
        ({"job": 3}, "job: a int is no job"),
        ({"job": {"workerPoolSpecs": [POOL]}, "gpus": 1}, "gpus: goes with command=, and a job was given"),
    ],
)
def test_a_wrong_argument_is_named_with_what_to_write(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        made(**asked)


def test_an_array_is_refused_with_what_makes_one() -> None:
    job = {"displayName": "x", "jobSpec": {"workerPoolSpecs": [POOL], "scheduling": {"array": "1-3"}}}
    with pytest.raises(InvalidInput, match="makes an array, and submit returns one job"):
        made(job)


def test_an_unknown_field_of_a_job_is_named_with_the_one_that_was_meant() -> None:
    with pytest.raises(InvalidSpec, match=r"workerPoolSpecs\[0\].replicas: is no known field .*replicaCount"):
        made({"workerPoolSpecs": [{"replicas": 1, "processSpec": {"command": ["a"]}}]})


@pytest.mark.parametrize("client", [holdfast.Client, holdfast.AsyncClient])
def test_an_unknown_argument_is_answered_with_the_one_that_was_meant(client: type) -> None:
    submit = client.submit  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"submit\(\) has no argument 'gpu'. Did you mean gpus=\?"):
        submit(None, command=["a"], gpu=1)
    shown = inspect.signature(submit).parameters
    assert shown["gpus"].kind is inspect.Parameter.KEYWORD_ONLY and "asked" not in shown
    text = inspect.getdoc(holdfast.Client.submit) or ""
    assert all(f"``{name}``" in text for name in Arguments.__annotations__)


def test_a_program_in_place_of_a_job_file_is_answered_with_how_to_run_it(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("import torch\n")
    with pytest.raises(
        InvalidInput, match=r"is a program, not a job file \(run it with: submit\(command=\['python'"
    ):
        made(str(program))


@pytest.mark.parametrize(
    "call", [holdfast.Client.logs, holdfast.AsyncClient.logs, holdfast.Job.logs, holdfast.AsyncJob.logs]
)
def test_one_rank_s_output_is_asked_for_as_ranks(call: Any) -> None:
    with pytest.raises(TypeError, match=r"logs\(\) has no argument 'rank'. Did you mean ranks=\?"):
        call(None, rank=0)


def test_what_is_far_from_any_argument_is_answered_with_all_of_them() -> None:
    @guessing
    def call(self: object, *, one: int = 0, other: int = 0) -> int:
        return one + other

    assert call(None, one=1, other=2) == 3
    with pytest.raises(TypeError, match=r"no argument 'zzzzz'. There are: one, other\."):
        call(None, zzzzz=1)  # type: ignore[call-arg]


def test_the_current_directory_counts_unless_code_is_sent_along(tmp_path: Path) -> None:
    assert made(command=["a"]).job_spec.worker_pool_specs[0].process_spec.working_directory == os.getcwd()
    packed = Packed()
    try:
        job = job_from(None, Arguments(command=["a"], package=tmp_path), packed)
        assert job.job_spec.worker_pool_specs[0].process_spec.working_directory == ""
    finally:
        packed.remove()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"command": 5}, "command: is no list of words"),
        ({"command": {"a": 1}}, "command: is no list of words"),
        *(
            ({name: 5}, f"{name}: 5 is no text")
            for name in ("name", "project", "run_as", "gpu_type", "machine_type")
        ),
        ({"gpu_partition_size": b"x"}, "gpu_partition_size: b'x' is no text"),
        ({"project": "\udcff"}, "project: '\\udcff' is no valid Unicode"),
        ({"labels": {"a": "\udcff"}}, "labels['a']: '\\udcff' is no valid Unicode"),
        ({"secrets": {"A": None}}, "secrets: 'A': None is no pair of texts"),
        ({"after": "x\udcff"}, "after: 'x\\udcff' is no id of a job"),
        ({"workdir": 5}, "workdir: 5 is no path"),
        ({"package": b"."}, "package: b'.' is no path"),
        (
            {"package": ".", "requirements": "numpy"},
            "requirements: 'numpy' is no list of texts (such as ['numpy'])",
        ),
        ({"restart_on_hang": "no"}, "restart_on_hang: 'no' is neither True nor False"),
        ({"pause_if_unmet": 0}, "pause_if_unmet: 0 is neither True nor False"),
        ({"timeout": 1e30}, "timeout: 1e+30 is no duration"),
        ({"grace": 10**400}, "grace: the number is too large for a duration"),
    ],
)
def test_an_argument_of_another_kind_is_named(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        made(**{"command": ["true"], **asked})
    assert said in str(refused.value)


def test_all_wrong_arguments_are_listed() -> None:
    with pytest.raises(InvalidInput) as refused:
        made(command=["true"], gpus=-1, timeout="soon", name=3, env={"A": b"x"})
    assert [each.path for each in refused.value.violations] == ["gpus", "timeout", "name", "env['A']"]


def test_a_mapping_that_holds_itself_is_refused() -> None:
    endless: dict[str, Any] = {}
    endless["jobSpec"] = endless
    with pytest.raises(InvalidInput, match="job: is nested more than 64 deep"):
        made(endless)


def test_no_number_is_too_large_to_be_refused() -> None:
    with pytest.raises(ValueError, match="too large for a duration"):
        duration_s(10**400)
