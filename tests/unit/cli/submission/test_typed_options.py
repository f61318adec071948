"""An error about a job names what was typed: the option where one set the field, else the field of the file."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from holdfast._api.submission import refused as refused_by
from holdfast.cli.app import root
from holdfast.cli.submission.typed_options import _PARAMETERS, WORKERS, as_typed
from holdfast.errors import InvalidInput, InvalidSpec, NeverFits, Violation

FILE = "jobSpec: {workerPoolSpecs: [{replicaCount: 1, processSpec: {command: [x]}}], scheduling: {timeout: 1h}}\n"


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[InvalidInput]:
    """The errors with which the controller refuses whatever is sent."""
    errors: list[InvalidInput] = []

    def call(work: object) -> object:
        raise errors.pop()

    for command in ("run", "submit", "rerun"):
        monkeypatch.setattr(f"holdfast.cli.jobs.{command}.with_client", call)
    return errors


def typed(*words: str) -> int:
    return CliRunner().invoke(root, words).exit_code


@pytest.mark.parametrize(
    ("path", "words", "shown"),
    [
        ("jobSpec.scheduling.maxWaitDuration", ["--max-wait", "1h"], "--max-wait: p"),
        ("jobSpec.workerPoolSpecs[1].processSpec.command[0]", [], "COMMAND: p"),
        ("jobSpec.workerPoolSpecs[0].processSpec.env[1].name", [], "--env: p"),
        ("jobSpec.faultTolerance.hangDetection.timeout", [], "--hang-timeout: p"),
        ("displayName", [], "--name: p"),
        ("jobSpec.workerPoolSpecs[0].machineSpec.gpuPartitionSize", [], "--gpu-partition-size: p"),
        ("jobSpec.workerPoolSpecs[1].machineSpec.machineType", [], "--machine-type: p"),
        ("jobSpec.workerPoolSpecs[0].machineSpec.acceleratorType", [], "--gpu-type: p"),
        ("labels[team]", [], "--label: team p"),
        ("labels.labels", [], "--label: labels p"),
        ('labels["a b"]', [], '--label: "a b" p'),
        ("labels", [], "--label: p"),
        ("jobSpec.scheduling.hostSelector.labels.rack", [], "--label-selector: rack p"),
        ("jobSpec.workerPoolSpecs[0].image", [], "jobSpec.workerPoolSpecs[0].image: p"),
        ("jobSpec.workerPoolSpecs", [], "p"),
    ],
)
def test_a_run_is_refused_in_the_words_of_its_command_line(
    refused: list[InvalidInput], capfd: pytest.CaptureFixture[str], path: str, words: list[str], shown: str
) -> None:
    refused.append(InvalidSpec([Violation(path, "p", "do")]))
    assert typed("run", *words, "--", "x") == 2
    what = "The job spec" if shown.startswith("job") else "The command line"
    assert capfd.readouterr().err == f"error: {what} has 1 problem:\n  {shown} (do)\n"


def test_what_is_wrong_in_each_pool_of_a_run_is_said_once(
    refused: list[InvalidInput], capfd: pytest.CaptureFixture[str]
) -> None:
    pools = (f"jobSpec.workerPoolSpecs[{pool}].processSpec.command" for pool in range(2))
    refused.append(InvalidSpec([Violation(path, "p", "do") for path in pools]))
    assert typed("run", "--replicas", "2", "--", "x") == 2
    assert capfd.readouterr().err == "error: The command line has 1 problem:\n  COMMAND: p (do)\n"


def test_of_a_file_with_options_each_field_has_the_name_that_was_typed(
    refused: list[InvalidInput], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(FILE)
    wrong = [Violation(f"jobSpec.scheduling.{name}", "p") for name in ("timeout", "maxWaitDuration")]
    refused.append(NeverFits([*wrong, Violation("labels[a]", "p")], what="The job"))
    assert typed("submit", str(file), "--max-wait", "1h", "--label", "a=b") == 2
    assert capfd.readouterr().err.splitlines() == [
        "error: The job has 3 problems:",
        "  jobSpec.scheduling.timeout: p",
        "  --max-wait: p",
        "  labels[a]: p",
    ]


def test_each_parameter_is_one_of_run() -> None:
    found = {parameter.name for parameter in root.commands["run"].params}
    assert set(_PARAMETERS.values()) <= {*found, WORKERS}


def test_an_error_that_names_no_field_of_an_option_is_left_as_it_is() -> None:
    error = InvalidInput([Violation("", "the job id x is taken")])
    with click.Context(click.Command("run")), pytest.raises(InvalidInput) as raised, as_typed():
        raise error
    assert str(raised.value) == str(error)


def test_what_a_program_asks_for_is_refused_by_the_name_of_its_argument() -> None:
    wrong = [Violation(path, "p") for path in ("jobSpec.scheduling.maxWaitDuration", "jobSpec.workerPoolSpecs")]
    of_command = refused_by(NeverFits(wrong), None, {"command": "x", "max_wait": "9999d"})
    assert isinstance(of_command, NeverFits)
    assert str(of_command) == "The call of submit has 2 problems:\n  max_wait: p\n  p"
    of_file = refused_by(InvalidSpec(wrong), "job.yaml", {"max_wait": "9999d", "timeout": None})
    assert str(of_file) == "The job spec has 2 problems:\n  max_wait: p\n  jobSpec.workerPoolSpecs: p"
