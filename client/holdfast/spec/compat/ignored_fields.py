"""Fields of managed training services that a bare host has nothing like: kept, printed back, and warned about.

``warnings`` says of each that a job sets why nothing comes of it and what to do instead. A field that is set to
false or to nothing asks for nothing, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic.alias_generators import to_camel

from holdfast.errors import Violation
from holdfast.spec.models.job import JobFile, JobSpec, MachineSpec, WorkerPoolSpec

_OF_JOB = {
    "service_account": ("a bare host has no service accounts", "name an account of the hosts under runAs"),
    "network": ("ranks use their host's network", "an admin chooses the interface with the agent's data_interface"),
    "reserved_ip_ranges": ("ranks use their host's addresses", "remove it"),
    "persistent_resource_id": (
        "the cluster's hosts are there already",
        "choose among them with scheduling.hostSelector",
    ),
    "tensorboard": (
        "there is no TensorBoard service",
        "run tensorboard --logdir where AIP_TENSORBOARD_LOG_DIR (of baseOutputDirectory) can be read",
    ),
    "enable_dashboard_access": ("there is no dashboard", "see holdfast job show and holdfast job watch"),
    "experiment": ("there are no experiments", "use labels, and find jobs by them with holdfast job list --label"),
    "experiment_run": ("there are no experiments", "use labels"),
    "models": ("there is no model registry", "register what the job has left in AIP_MODEL_DIR yourself"),
    "protected_artifact_location_id": ("what a job writes stays where it writes it", "remove it"),
    "psc_interface_config": (
        "ranks use their host's network",
        "an admin chooses the interface with the agent's data_interface",
    ),
}
"""Field of the job spec: why nothing comes of it, and what to do instead."""

_OF_MACHINE = {
    "reservation_affinity": ("the hosts are there already", "choose among them with scheduling.hostSelector"),
    "multihost_gpu_node_count": ("a worker has one host", "ask for more workers with replicaCount"),
    "min_gpu_driver_version": (
        "hosts have the driver that they have",
        "have the hosts with a newer one labelled, and choose them with scheduling.hostSelector",
    ),
}

_OTHERS = {"nfs_mounts", "disk_spec", "lustre_mounts", "encryption_spec"}
KEPT = frozenset({*_OF_JOB, *_OF_MACHINE, *_OTHERS})
"""Names of all such fields that are kept whole."""


def warnings(job: JobFile | JobSpec, *, machine_types: bool = False) -> list[Violation]:
    """A warning for each field that is set and changes nothing here: its path, why, and what to do instead.

    ``machine_types``: the cluster has some, so that the name of one means something.
    """
    spec = job.job_spec if isinstance(job, JobFile) else job
    found = [
        Violation(f"jobSpec.{place}", f"is kept, but changes nothing: {why}", fix)
        for place, why, fix in _found(spec)
        if not (machine_types and place.endswith(".machineType"))
    ]
    if spec.scheduling.disable_retries and spec.scheduling.restart_job_on_worker_restart:
        problem = "is taken as false: scheduling.disableRetries allows no restart"
        found.append(Violation("jobSpec.scheduling.restartJobOnWorkerRestart", problem, "remove one of the two"))
    if isinstance(job, JobFile) and job.encryption_spec is not None and job.encryption_spec.kms_key_name:
        problem = "is kept, but changes nothing: nothing is encrypted for a job"
        found.append(Violation("encryptionSpec", problem, "encrypt the disks of the hosts and of the controller"))
    return found


def _found(job: JobSpec) -> Iterator[tuple[str, str, str]]:
    for index, pool in enumerate(job.worker_pool_specs):
        for place, why, fix in _of_pool(pool):
            yield f"workerPoolSpecs[{index}].{place}", why, fix
    output = job.base_output_directory
    if output is not None and not output.output_uri_prefix.startswith(("/", "file:")):
        yield (
            "baseOutputDirectory.outputUriPrefix",
            "nothing is copied there; the program gets it in AIP_MODEL_DIR and so on and writes there itself",
            "put what it needs for that on the hosts, or use a path that all hosts share",
        )
    for name, (why, fix) in _OF_JOB.items():
        if getattr(job, name):
            yield to_camel(name), why, fix


def _of_pool(pool: WorkerPoolSpec) -> Iterator[tuple[str, str, str]]:
    if _is_a_name_only(pool.machine_spec):
        yield (
            "machineSpec.machineType",
            "hosts have no machine types",
            "say what a worker needs with cpuCount, memoryMb and acceleratorCount",
        )
    for name, (why, fix) in _OF_MACHINE.items():
        if getattr(pool.machine_spec, name):
            yield f"machineSpec.{to_camel(name)}", why, fix
    if (package := pool.python_package_spec) is not None and package.executor_image_uri:
        yield (
            "pythonPackageSpec.executorImageUri",
            "packages are installed on the host itself, beside what its Python has",
            "have the host's Python hold what the image does, or name it in the packages' requirements",
        )
    for index, mount in enumerate(pool.nfs_mounts):
        yield (
            f"nfsMounts[{index}]",
            "nothing is mounted for a job",
            f"mount {mount.server}:{mount.path} on the hosts, at /mnt/nfs/{mount.mount_point.strip('/')}",
        )
    for index, lustre in enumerate(pool.lustre_mounts):
        yield (
            f"lustreMounts[{index}]",
            "nothing is mounted for a job",
            f"mount {lustre.filesystem} on the hosts, at /mnt/lustre/{lustre.mount_point.strip('/')}",
        )
    if disk := pool.disk_spec:
        for name in ("boot_disk_type", "boot_disk_size_gb"):
            if getattr(disk, name):
                yield f"diskSpec.{to_camel(name)}", "ranks use their host's disks", "remove it"


def _is_a_name_only(machine: MachineSpec) -> bool:
    return bool(machine.machine_type) and not (machine.cpu_count or machine.memory_mb or machine.accelerator_count)
