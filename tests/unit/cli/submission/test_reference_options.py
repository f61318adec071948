"""Each option of the reference's command for new jobs is taken, kept with a warning or refused, as our page says.

The rows are those of docs/evidence/managed-services-fields.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast import spec
from holdfast._sdk import json_view
from holdfast.cli.app import root
from holdfast.v1 import job_pb2

PAGE = Path(__file__).parents[4] / "docs/evidence/managed-services-fields.md"
IMAGE = "--worker-pool-spec=machine-type=big,replica-count=1,container-image-uri=r.example/t:1"
POOL = "jobSpec.workerPoolSpecs[0]"
RING = "projects/p/locations/l/keyRings/r/cryptoKeys/k"


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it printed."""

    exit_code: int
    output: str


Submit = Callable[..., tuple[Ran, job_pb2.CustomJob | None]]


@pytest.fixture
def submit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Submit:
    """Runs the command up to the call of the controller; its output, and the job that it would send."""
    sent: list[job_pb2.CustomJob] = []
    monkeypatch.setattr("holdfast.cli.jobs.submit._submission", lambda job, packed, **options: job)

    def send(job: job_pb2.CustomJob) -> int:
        sent.append(job)
        return 0

    monkeypatch.setattr("holdfast.cli.jobs.submit.with_client", send)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/task.py").write_text("print()\n")
    (tmp_path / "trainer/__init__.py").write_text("")
    (tmp_path / "run").write_text("#!/bin/bash -e\necho\n")
    (tmp_path / "config.yaml").write_text(
        "workerPoolSpecs:\n"
        "- replicaCount: 1\n"
        "  machineSpec: {machineType: n1, acceleratorType: NVIDIA_L4, acceleratorCount: 2}\n"
        "  containerSpec: {imageUri: i, args: [a], command: [c]}\n"
        "- replicaCount: 2\n"
        "  pythonPackageSpec: {packageUris: ['https://x/y.whl'], pythonModule: m}\n"
        "network: n\n"
    )

    def run(*words: str) -> tuple[Ran, job_pb2.CustomJob | None]:
        sent.clear()
        result = CliRunner().invoke(root, ["submit", *words])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return Ran(result.exit_code, result.output + capfd.readouterr().err), sent[0] if sent else None

    return run


@dataclass(frozen=True)
class Row:
    """An option with its value, what it sets, and words of the warning."""

    option: str
    more: tuple[str, ...]
    path: str = ""
    value: Any = None
    warning: str = ""

    @property
    def name(self) -> str:
        return self.option.partition("=")[0]

    @property
    def outcome(self) -> str:
        return "kept" if self.warning else "taken"


OPTIONS = [
    Row("--display-name=d", (IMAGE,), "displayName", "d"),
    Row("--project=vision", (IMAGE,), "project", "vision"),
    Row("--config=config.yaml", (), f"{POOL}.containerSpec.imageUri", "i"),
    Row(IMAGE, (), f"{POOL}.containerSpec.imageUri", "r.example/t:1"),
    Row("--args=--lr=1,--to=a b", (IMAGE,), f"{POOL}.containerSpec.args", ["--lr=1", "--to=a b"]),
    Row("--command=python,-m,x", (IMAGE,), f"{POOL}.containerSpec.command", ["python", "-m", "x"]),
    Row("--labels=team=vision,a=b=c", (IMAGE,), "labels", {"team": "vision", "a": "b=c"}),
    Row(
        "--python-package-uris=https://x/a.whl,https://x/b.whl",
        ("--worker-pool-spec=executor-image-uri=e,python-module=m",),
        f"{POOL}.pythonPackageSpec.packageUris",
        ["https://x/a.whl", "https://x/b.whl"],
    ),
    Row("--enable-web-access", (IMAGE,), "jobSpec.enableWebAccess", True),
    Row("--enable-dashboard-access", (IMAGE,), "jobSpec.enableDashboardAccess", True, "there is no dashboard"),
    Row("--network=n", (IMAGE,), "jobSpec.network", "n", "ranks use their host's network"),
    Row("--service-account=a", (IMAGE,), "jobSpec.serviceAccount", "a", "no service accounts"),
    Row("--persistent-resource-id=r", (IMAGE,), "jobSpec.persistentResourceId", "r", "there already"),
    Row(f"--kms-key={RING}", (IMAGE,), "encryptionSpec.kmsKeyName", RING, "nothing is encrypted"),
    *(
        Row(each, (IMAGE, *others), "encryptionSpec.kmsKeyName", RING, "nothing is encrypted")
        for each, others in (
            ("--kms-keyring=r", ("--kms-key=k", "--kms-location=l", "--kms-project=p")),
            ("--kms-location=l", ("--kms-key=k", "--kms-keyring=r", "--kms-project=p")),
            ("--kms-project=p", ("--kms-key=k", "--kms-keyring=r", "--kms-location=l")),
        )
    ),
    Row("--region=here", (IMAGE,), warning="--region: changes nothing"),
    Row("--account=a", (IMAGE,), warning="--account: changes nothing"),
    Row("--impersonate-service-account=a", (IMAGE,), warning="--impersonate-service-account: changes nothing"),
    Row("--billing-project=p", (IMAGE,), warning="--billing-project: changes nothing"),
    Row("--configuration=c", (IMAGE,), warning="--configuration: changes nothing"),
    Row("--verbosity=debug", (IMAGE,), warning="--verbosity: changes nothing"),
    Row("--format=json", (IMAGE,), warning="--format: changes nothing"),
    Row("--quiet", (IMAGE,)),
]

KEYS = [
    Row("machine-type=n1-standard-4", (), f"{POOL}.machineSpec.machineType", "n1-standard-4", "no machine types"),
    Row("replica-count=1", (), f"{POOL}.replicaCount", 1),
    Row("accelerator-type=NVIDIA_TESLA_T4", (), f"{POOL}.machineSpec.acceleratorCount", 1),
    Row("accelerator-count=4", (), f"{POOL}.machineSpec.acceleratorCount", 4),
    Row("container-image-uri=i", (), f"{POOL}.containerSpec.imageUri", "i"),
    Row(
        "executor-image-uri=e",
        ("python-module=m",),
        f"{POOL}.pythonPackageSpec.executorImageUri",
        "e",
        "packages are installed on the host itself",
    ),
    Row("output-image-uri=o", ("script=run",), warning="output-image-uri: changes nothing"),
    Row("python-module=m", (), f"{POOL}.pythonPackageSpec.pythonModule", "m"),
    Row(
        "local-package-path=.",
        ("python-module=trainer.task",),
        f"{POOL}.processSpec.command",
        ["python3", "-m", "trainer.task"],
    ),
    Row("script=trainer/task.py", (), f"{POOL}.processSpec.command", ["python3", "trainer/task.py"]),
    Row(
        "requirements=numpy;pandas>=2",
        ("script=run",),
        f"{POOL}.processSpec.packagedCode.requirements",
        ["numpy", "pandas>=2"],
    ),
    Row("extra-packages=trainer", ("script=run",), f"{POOL}.processSpec.packagedCode.packages", ["trainer"]),
    Row("extra-dirs=trainer", ("script=run",), f"{POOL}.processSpec.command", ["/bin/bash", "-e", "run"]),
]
PACKAGES = "--python-package-uris=https://x/y.whl"


def at(data: Any, path: str) -> Any:
    for step in re.findall(r"\w+", path):
        data = data[int(step) if step.isdigit() else step]
    return data


def check(row: Row, result: Ran, job: job_pb2.CustomJob | None) -> None:
    assert job is not None and result.exit_code == 0, result.output
    read = spec.job_from_proto(job)  # as the controller does
    if row.path:
        assert at(json_view.job(job), row.path) == row.value
    said = [*result.output.splitlines(), *map(str, spec.warnings(read))]
    assert any(row.warning in line for line in said) if row.warning else not result.output


@pytest.mark.parametrize("row", OPTIONS, ids=lambda row: row.name)
def test_each_option(submit: Submit, row: Row) -> None:
    check(row, *submit(row.option, *row.more))


@pytest.mark.parametrize("row", KEYS, ids=lambda row: row.name)
def test_each_key_of_a_pool(submit: Submit, row: Row) -> None:
    words = ",".join((row.option, *row.more))
    image = (
        "" if any(key in words for key in ("image-uri=i", "python-module", "script")) else ",container-image-uri=i"
    )
    packages = (PACKAGES,) if re.search(r"python-module=m\b", words) else ()
    check(row, *submit(f"--worker-pool-spec={words}{image}", *packages))


def test_the_page_has_each_option_and_key() -> None:
    rows = re.findall(r"^\| `(--[\w-]+|[\w-]+=)` \| (taken|kept|refused)\b", PAGE.read_text(), re.MULTILINE)
    assert dict(rows) == {row.name: row.outcome for row in OPTIONS} | {f"{row.name}=": row.outcome for row in KEYS}


def test_pools_of_the_command_line_go_before_those_of_the_config(submit: Submit) -> None:
    _, job = submit("--config=config.yaml", IMAGE, "--network=other", "--args=b")
    assert job is not None
    [pool] = job.job_spec.worker_pool_specs
    assert (pool.container_spec.image_uri, list(pool.container_spec.args)) == ("r.example/t:1", ["b"])
    assert (job.display_name, job.job_spec.network) == ("config", "other")


def test_options_go_before_what_the_config_says_of_its_pools(submit: Submit) -> None:
    words = ("--args=^;^x,y;z", "--command=d,e", "--python-package-uris=https://x/z.whl", "--enable-web-access")
    result, job = submit("--config=config.yaml", *words)
    assert job is not None, result.output
    first, second = job.job_spec.worker_pool_specs
    assert (list(first.container_spec.args), list(first.container_spec.command)) == (["x,y", "z"], ["d", "e"])
    assert list(second.python_package_spec.args) == ["x,y", "z"]
    assert list(second.python_package_spec.package_uris) == ["https://x/z.whl"]
    assert (job.job_spec.network, job.job_spec.enable_web_access) == ("n", True)


def test_a_role_is_skipped_by_an_empty_pool(submit: Submit) -> None:
    _, job = submit(IMAGE, "--worker-pool-spec=", IMAGE.replace("count=1", "count=2"))
    assert job is not None
    assert [pool.replica_count for pool in job.job_spec.worker_pool_specs] == [1, 0, 2]
    assert spec.to_dict(spec.job_from_proto(job))["jobSpec"]["workerPoolSpecs"][1] == {}


def test_all_pools_run_the_code_of_the_first_but_skipped_ones(submit: Submit) -> None:
    first = "--worker-pool-spec=machine-type=a,local-package-path=.,script=run"
    _, job = submit(first, "--worker-pool-spec=", "--worker-pool-spec=replica-count=3", "--args=-v")
    assert job is not None
    chief, skipped, servers = job.job_spec.worker_pool_specs
    assert chief.process_spec == servers.process_spec
    assert (list(chief.process_spec.args), servers.replica_count) == (["-v"], 3)
    assert skipped.WhichOneof("task") is None


@pytest.mark.parametrize(
    ("first_line", "command"),
    [
        ("#!/bin/bash -e", ["/bin/bash", "-e"]),
        ("#!/usr/bin/env bash", ["/usr/bin/env", "bash"]),
        ("#!/bin/sh", ["/bin/sh"]),
        ("#!/usr/bin/env python3", ["python3"]),
        ("#!/opt/python3.11/bin/python3.11 -u", ["python3"]),
        ("#! /usr/bin/perl", ["/usr/bin/perl"]),
        ("#!/home/python/bin/bash", ["/home/python/bin/bash"]),
        ("#!", ["bash"]),
        ("echo hello", ["bash"]),
        ("", ["bash"]),
    ],
)
def test_a_script_without_an_ending_runs_by_its_first_line(
    submit: Submit, tmp_path: Path, first_line: str, command: list[str]
) -> None:
    (tmp_path / "run").write_text(f"{first_line}\r\necho\n")
    _, job = submit("--script=run")
    assert job is not None
    assert list(job.job_spec.worker_pool_specs[0].process_spec.command) == [*command, "run"]


MACHINE = "--worker-pool-spec=machine-type=a"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((MACHINE,), "--worker-pool-spec[0]: names nothing to run (add container-image-uri=IMAGE, or"),
        (
            (f"{MACHINE},executor-image-uri=e",),
            "--worker-pool-spec[0]: has an executor-image-uri, but no python-module to run (add python-module=NAME,",
        ),
        (
            (f"{MACHINE},executor-image-uri=e,python-module=m",),
            "--worker-pool-spec[0]: has a python-module, but no packages that hold it (add --python-package-uris=URI",
        ),
        (
            (f"{MACHINE},container-image-uri=i,python-module=m", PACKAGES),
            "--worker-pool-spec[0]: has both a container image and something else to run (keep one of them)",
        ),
        (
            (f"{MACHINE},container-image-uri=i,script=run",),
            "--worker-pool-spec[0]: has both a container image and something else to run (keep one of them)",
        ),
        ((IMAGE, MACHINE), "--worker-pool-spec[1]: names nothing to run"),
        ((IMAGE, PACKAGES), "--python-package-uris: no pool has a python-module to run"),
        (("--script=run", PACKAGES), "--python-package-uris: no pool runs a Python package"),
        (("--worker-pool-spec=",), "--worker-pool-spec[0]: '' is not KEY=VALUE"),
        (
            (IMAGE.replace("count=1", "count=2"),),
            "--worker-pool-spec[0] replica-count: must be 1, not 2: pool 0 is the primary (put the other one into",
        ),
        (
            (f"{IMAGE},accelerator-count=many",),
            '--worker-pool-spec[0] accelerator-count: must be a whole number, not "many"',
        ),
        ((f"{IMAGE},accelerator-type=TPU_V3",), "--worker-pool-spec[0] accelerator-type: names a TPU"),
        ((f"{MACHINE},script=no.py",), "--worker-pool-spec[0] script: there is no no.py in ."),
        (
            (f"{MACHINE},local-package-path=none,script=run",),
            "--worker-pool-spec[0] local-package-path: there is no folder none",
        ),
        (
            (f"{MACHINE},local-package-path=.,python-module=trainer.no",),
            "--worker-pool-spec[0] python-module: there is neither trainer/no.py nor",
        ),
        ((IMAGE, "--labels=team"), "--labels: 'team' is not KEY=VALUE"),
        ((IMAGE, "--kms-keyring=r"), "Give --kms-key too"),
        ((IMAGE, "--kms-key=k"), "Give --kms-keyring and --kms-location too"),
        (("--config=none.yaml",), "none.yaml has 1 problem:\n  cannot be read"),
        (
            (),
            "Give one of FILE, --config and --worker-pool-spec. For code alone, give --script or --python-module.",
        ),
        (("job.yaml", "--config", "job.yaml"), "Give one of FILE, --config and --worker-pool-spec."),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_the_command(
    submit: Submit, words: tuple[str, ...], complaint: str
) -> None:
    result, job = submit(*words)
    assert (result.exit_code, job) == (2, None)
    assert complaint in result.output


def test_a_module_takes_no_command(submit: Submit) -> None:
    result, job = submit("--worker-pool-spec=executor-image-uri=e,python-module=m", PACKAGES, "--command=x")
    assert job is not None
    assert "--command: changes nothing: every pool runs a Python module" in result.output


def test_a_job_of_the_command_line_prints_as_a_file_that_makes_the_same(submit: Submit, tmp_path: Path) -> None:
    _, job = submit("--config=config.yaml", "--labels=a=b", f"--kms-key={RING}", "--args=x")
    assert job is not None
    (tmp_path / "again.json").write_text(json.dumps(json_view.job(job)))
    _, again = submit("again.json")
    assert job is not None and again is not None
    again.project = job.project  # printed as the default
    assert again == job
