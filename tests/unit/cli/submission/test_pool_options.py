"""Worker pools on the command line, as another service has them."""

from __future__ import annotations

import pytest

from holdfast import spec
from holdfast.cli.submission.pool_options import as_options, spec_of
from holdfast.errors import InvalidInput


def test_pools_of_containers() -> None:
    found = spec_of(
        [
            "machine-type=n1-standard-4,replica-count=1,container-image-uri=registry.example/train:1",
            "machine-type=big,replica-count=3,accelerator-type=T4,accelerator-count=2,container-image-uri=r/t",
        ]
    )
    primary, workers = spec.parse(found, name="d").job_spec.worker_pool_specs
    assert primary.container_spec == spec.ContainerSpec(image_uri="registry.example/train:1")
    assert (workers.replica_count, workers.machine_spec.accelerator_count) == (3, 2)


def test_all_that_a_machine_spec_says_may_be_asked_for() -> None:
    text = "machine-type=big,gpu-partition-size=1g.10gb,accelerator-type=H100,cpu-count=4,memory-mb=2048"
    (pool,) = spec.parse(spec_of([f"{text},container-image-uri=r/t"]), name="d").job_spec.worker_pool_specs
    assert pool.machine_spec == spec.MachineSpec(
        machine_type="big",
        accelerator_type="H100",
        accelerator_count=1,
        cpu_count=4,
        memory_mb=2048,
        gpu_partition_size="1g.10gb",
    )


@pytest.mark.parametrize("key", ["gpu-partition-size=tiny", "cpu-count=x", "memory-mb=-1"])
def test_what_no_machine_has_is_refused_in_the_words_of_the_option(key: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        spec.parse(spec_of([f"{key},container-image-uri=r/t"]), name="d")
    (found,) = map(as_options, caught.value.violations)
    assert found.path == f"--worker-pool-spec[0] {key.partition('=')[0]}"


def test_pools_of_python_packages_share_the_packages() -> None:
    text = "machine-type=a,executor-image-uri=r/e,python-module=trainer.task"
    for pool in spec.parse(spec_of([text, text], "gs://b/x.tar.gz,gs://b/y.tar.gz")).job_spec.worker_pool_specs:
        assert pool.replica_count == 1
        assert pool.python_package_spec == spec.PythonPackageSpec(
            executor_image_uri="r/e",
            package_uris=("gs://b/x.tar.gz", "gs://b/y.tar.gz"),
            python_module="trainer.task",
        )


def test_what_a_package_needs_is_asked_for() -> None:
    with pytest.raises(InvalidInput, match=r"packageUris: is missing"):
        spec.parse(spec_of(["python-module=trainer.task,executor-image-uri=r/e"]))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("machine-type", "--worker-pool-spec[0]: 'machine-type' is not KEY=VALUE"),
        ("", "--worker-pool-spec[0]: '' is not KEY=VALUE"),
        ("machinetype=a", "--worker-pool-spec[0]: machinetype is no known key (did you mean machine-type?)"),
        ("colour=red", "--worker-pool-spec[0]: colour is no known key (machine-type, accelerator-type,"),
        ("replica-count=1,replica-count=2", "--worker-pool-spec[0]: replica-count is given twice"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        spec_of([text])
    assert str(caught.value.violations[0]).startswith(complaint)
