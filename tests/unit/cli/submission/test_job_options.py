"""Options that say when and where a job runs, written into the job."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from holdfast.cli.app import root
from holdfast.cli.kit.parameters import key_value
from holdfast.cli.submission.job_options import JobOptions, job_options, secret_of
from holdfast.v1 import job_pb2, spec_pb2


def test_what_is_not_given_leaves_the_job_as_it_is() -> None:
    job = job_pb2.CustomJob(display_name="d")
    before = job.SerializeToString()
    JobOptions().apply(job)
    assert job.SerializeToString() == before
    assert not job.HasField("job_spec")


def test_zeros_are_said_and_not_left_out() -> None:
    job = job_pb2.CustomJob()
    JobOptions(max_wait_s=0.0, max_retries=0).apply(job)
    assert job.job_spec.scheduling.HasField("max_wait_duration")
    assert job.job_spec.fault_tolerance.HasField("max_job_retries")
    assert not job.job_spec.scheduling.HasField("timeout")


def test_times_keep_their_fractions() -> None:
    job = job_pb2.CustomJob()
    JobOptions(timeout_s=90.5).apply(job)
    assert job.job_spec.scheduling.timeout.ToMilliseconds() == 90_500


def test_labels_are_added_to_those_of_the_file() -> None:
    job = job_pb2.CustomJob(labels={"team": "nlp", "run": "7"})
    JobOptions(labels=(("team", "vision"), ("lr", "0.1")), host_labels=(("rack", "a"),)).apply(job)
    assert dict(job.labels) == {"team": "vision", "run": "7", "lr": "0.1"}
    assert dict(job.job_spec.scheduling.host_selector.labels) == {"rack": "a"}


def test_a_label_may_hold_anything_after_the_first_equals_sign() -> None:
    assert key_value("a=b=c") == ("a", "b=c")
    assert key_value("a=") == ("a", "")


@pytest.mark.parametrize("value", ["a", "=b", ""])
def test_a_label_without_a_key_or_value_is_refused(value: str) -> None:
    with pytest.raises(click.BadParameter, match="is not KEY=VALUE"):
        key_value(value)


def test_a_secret_goes_to_every_pool_in_place_of_one_of_that_variable() -> None:
    job = job_pb2.CustomJob()
    first, second = job.job_spec.worker_pool_specs.add(), job.job_spec.worker_pool_specs.add()
    first.process_spec.secret_env.add(name="KEY", secret="old")
    second.container_spec.image_uri = "image:1"
    JobOptions(secrets=(("KEY", "wandb"), ("TOKEN", "/etc/keys/t"))).apply(job)
    for task in (first.process_spec, second.container_spec):
        assert [(each.name, each.secret, each.file) for each in task.secret_env] == [
            ("KEY", "wandb", ""),
            ("TOKEN", "", "/etc/keys/t"),
        ]


def test_a_secret_is_of_the_name_of_its_variable_unless_said_otherwise() -> None:
    assert secret_of("KEY") == ("KEY", "KEY")
    assert secret_of("KEY=wandb") == ("KEY", "wandb")
    assert secret_of("KEY=/a=b") == ("KEY", "/a=b")


@pytest.mark.parametrize("value", ["", "=wandb", "KEY="])
def test_a_secret_without_a_variable_or_a_name_is_refused(value: str) -> None:
    with pytest.raises(click.BadParameter, match="NAME=SECRET"):
        secret_of(value)


@pytest.mark.parametrize("word", ["none", "node", "exclusive"])
def test_a_binding_is_written_as_the_job_file_has_it(word: str) -> None:
    job = job_pb2.CustomJob()
    JobOptions(numa_binding=word).apply(job)
    assert job.job_spec.scheduling.numa_binding == spec_pb2.NumaBinding.Value(f"NUMA_BINDING_{word.upper()}")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (["--replicas", "x"], "'x' is no whole number; give 1 or more."),
        (["--replicas", "0"], "0 is too small; give 1 or more."),
        (["--priority", "7"], "7 is too large; give 1 to 3."),
        (["--gpus", "-1"], "-1 is too small; give 0 or more."),
        (["--spares", "1.5"], "'1.5' is no whole number; give 0 or more."),
    ],
)
def test_a_number_that_can_not_be_is_refused_with_what_can(given: list[str], problem: str) -> None:
    result = CliRunner().invoke(root, ["run", *given, "--", "true"])
    assert result.exit_code == 2
    assert result.output.splitlines()[-1] == f"Error: Invalid value for '{given[0]}': {problem}"


def test_hosts_are_named_by_patterns_too() -> None:
    @click.command()
    @job_options
    def shown(options: JobOptions) -> None:
        click.echo(f"{options.on_hosts} {options.avoid_hosts}")

    given = ["--on-host", "gpu-[1-2]", "--on-host", "login", "--avoid-host", "n[1,3]"]
    assert CliRunner().invoke(shown, given).output == "('gpu-1', 'gpu-2', 'login') ('n1', 'n3')\n"
    wrong = CliRunner().invoke(shown, ["--on-host", "gpu-[1"])
    assert "Invalid value for '--on-host': 'gpu-[1' is no name of a host" in wrong.output
