"""The job file as frozen pydantic models: field for field the messages of ``proto/holdfast/v1/spec.proto``.

Field names, limits and defaults are here and in ``lifecycle``; rules that join several fields are in ``rules``.
An instance is always valid, however it was made; ``holdfast.spec.parse`` also reports everything wrong at once.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, ValidationInfo, ValidatorFunctionWrapHandler, model_validator

from holdfast._base import projects
from holdfast._base.job_file.accounts import NAME_PATTERN, NAME_RULE
from holdfast._base.job_file.choices import SuccessPolicy
from holdfast._base.job_file.expand import MAX_BYTES
from holdfast.spec.models.base import RULES_FOLLOW, Model, both_spellings
from holdfast.spec.models.ignored import (
    DiskSpec,
    EncryptionSpec,
    Kept,
    LustreMount,
    NfsMount,
    OutputDirectory,
    PscInterfaceConfig,
    ReservationAffinity,
)
from holdfast.spec.models.lifecycle import FaultTolerance, HostSelector, Labels, Scheduling
from holdfast.spec.models.notifications import Notifications
from holdfast.spec.models.packaging import Digest, PackagedCode
from holdfast.spec.models.scalars import Choice, Flag, Many, Text, Whole
from holdfast.spec.models.secret_env import SecretEnv, VariableName
from holdfast.spec.rules import job as rules
from holdfast.spec.wording import Refused, plain

Name = Annotated[str, Text(max_chars=256)]
Uri = Annotated[str, Text(max_chars=4096, empty=False)]
Argument = Annotated[str, Text(max_bytes=MAX_BYTES, control=True)]
DisplayName = Annotated[str, Text(max_chars=128, empty=False)]
AnnotationKey = Annotated[str, Text(max_chars=320, empty=False)]
Annotation = Annotated[str, Text(max_bytes=65_536, control=True)]
Account = Annotated[str, Text(max_chars=64, pattern=NAME_PATTERN, must=f"be an account's name: {NAME_RULE}")]
Annotations = Annotated[dict[AnnotationKey, Annotation], Many(0, 64)]

MIG_PROFILE = r"(?:[1-9]c\.)?[1-9]g\.[1-9][0-9]{0,3}gb(?:[+-][a-z.]{1,16})*"
IMAGE = "registry.example/train:1"


class EnvVar(Model):
    """One environment variable."""

    name: VariableName = Field(examples=["LEARNING_RATE"])
    """Letters, digits and underscores."""
    value: Argument = ""
    """Always text. $(NAME) stands for an earlier variable's value, $$ for $."""


Env = Annotated[tuple[EnvVar, ...], Many(0, 100)]
Args = Annotated[tuple[Argument, ...], Many(0, rules.MAX_ARGS_CHARS)]


class ProcessSpec(Model):
    """A process on the bare host."""

    command: Annotated[tuple[Argument, ...], Many(1, 10_000, "put them under args")] = Field(
        examples=[["python", "train.py"]]
    )
    """The program and its leading arguments; found on the worker's PATH."""
    args: Args = ()
    """Further arguments; $(NAME) stands for a variable's value. At most 100,000 characters together."""
    env: Env = ()
    """Environment variables, at most 100, each name once."""
    working_directory: Annotated[
        str, Text(max_chars=4096, pattern="/.*", must='be an absolute path such as "/data"')
    ] = ""
    """Absolute path on each host; when empty, the copy of the packaged code, or the worker's scratch directory."""
    packaged_code: PackagedCode | None = None
    """Code that is brought to the hosts, and what has to be installed for it."""
    secret_env: SecretEnv = ()
    """Environment variables whose values come from the controller's store of secrets or from files on the hosts."""
    terminal: Annotated[bool, Flag()] = False
    """Each rank of this pool has a terminal to be typed into: see holdfast run --pty."""


class ContainerSpec(Model):
    """A container from an image."""

    image_uri: Annotated[
        str,
        Text(max_chars=4096, empty=False, pattern=r"[^-\s]\S*", must=f'be the name of an image, such as "{IMAGE}"'),
    ] = Field(examples=[IMAGE])
    """The image."""
    command: Annotated[tuple[Argument, ...], Many(0, 10_000, "put them under args")] = ()
    """Takes the place of the image's entry point, and of its arguments; the image's own when empty."""
    args: Args = ()
    """Arguments, in place of the image's; $(NAME) stands for a variable's value. At most 100,000 characters."""
    env: Env = ()
    """Environment variables, at most 100, each name once."""
    secret_env: SecretEnv = ()
    """Environment variables whose values come from the controller's store of secrets or from files on the hosts."""


class PythonPackageSpec(Model):
    """A Python package, installed on each host and run as a module."""

    executor_image_uri: Annotated[str, Text(max_chars=4096)] = Field(default="", examples=[IMAGE])
    """Kept; packages are installed on the host itself, beside what its Python has."""
    package_uris: Annotated[tuple[Uri, ...], Many(1, 100)] = Field(
        examples=[["https://files.example/trainer.tar.gz"]]
    )
    """The package and what it depends on: http(s):// or file:// URIs, or paths within the bundle. At most 100."""
    python_module: Annotated[str, Text(max_chars=1024, empty=False)] = Field(examples=["trainer.task"])
    """The module to run."""
    args: Args = ()
    """Arguments, at most 100,000 characters together."""
    env: Env = ()
    """Environment variables, at most 100, each name once."""
    bundle: Digest = ""
    """SHA-256 of the uploaded packages, written by `holdfast submit` where packageUris names local files."""
    secret_env: SecretEnv = ()
    """Environment variables whose values come from the controller's store of secrets or from files on the hosts."""


class Accelerator(Text):
    """The name of a GPU model. The reference's default value, which names none, is read as empty."""

    def read(self, value: object) -> str:
        return "" if value == "ACCELERATOR_TYPE_UNSPECIFIED" else super().read(value)


class MachineSpec(Model):
    """The resources that one worker needs of its host."""

    machine_type: Name = ""
    """A class of hosts that admins have declared; a name for people where they have declared none."""
    accelerator_type: Annotated[str, Accelerator(max_chars=256)] = ""
    """GPU model, such as NVIDIA_H100_80GB; any model when empty."""
    accelerator_count: Annotated[int, Whole(0, 1024)] = 0
    """GPUs for each worker."""
    cpu_count: Annotated[int, Whole(0, 65_536)] = 0
    """Cores reserved for each worker; none when 0."""
    memory_mb: Annotated[int, Whole(0, 2**30, bits=64)] = 0
    """Memory reserved for each worker, in MiB; none when 0."""
    gpu_partition_size: Annotated[
        str, Text(max_chars=64, pattern=MIG_PROFILE, must="be a MIG profile such as 1g.10gb")
    ] = Field(default="", examples=["1g.10gb"])
    """Profile of MIG instances that admins have made, each of which counts as one GPU; whole GPUs when empty."""
    reservation_affinity: ReservationAffinity | None = None
    """Kept; a job has the hosts that are there."""
    multihost_gpu_node_count: Annotated[int, Whole(0, 2**31 - 1)] = 0
    """Kept; a worker has one host."""
    min_gpu_driver_version: Kept = ""
    """Kept; hosts have the driver that they have."""


class WorkerPoolSpec(Model):
    """Workers that share one spec, and exactly one kind of task. An empty pool skips its role: it has no worker."""

    machine_spec: MachineSpec = Field(default_factory=MachineSpec)
    """What each worker needs of its host."""
    replica_count: Annotated[int, Whole(1, rules.MAX_RANKS, bits=64)] = Field(examples=[1])
    """Workers in this pool; 1 in pool 0, the primary. Required, but in an empty pool."""
    process_spec: ProcessSpec | None = None
    """A process on the bare host."""
    container_spec: ContainerSpec | None = None
    """A container from an image."""
    python_package_spec: PythonPackageSpec | None = None
    """A Python package, installed and run as a module."""
    processes_per_worker: Annotated[int, Whole(1, 1024)] = 1
    """Ranks (processes) of each worker; 1 where the command is itself a launcher such as torchrun."""
    nfs_mounts: Annotated[tuple[NfsMount, ...], Many(0, 100)] = ()
    """Kept; nothing is mounted."""
    disk_spec: DiskSpec | None = None
    """Kept; a worker uses its host's disks."""
    lustre_mounts: Annotated[tuple[LustreMount, ...], Many(0, 100)] = ()
    """Kept; nothing is mounted."""
    host_selector: HostSelector = Field(default_factory=HostSelector)
    """Hosts that these workers may and may not use, of those that the job may."""

    @model_validator(mode="wrap")
    @classmethod
    def _skip(cls, data: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Self:
        """Takes a pool that says nothing as one without workers; the rules refuse it where it is the primary's."""
        if info.context is RULES_FOLLOW and isinstance(data, dict) and len(data) <= 1:
            name, count = next(iter(data.items()), ("", 0))
            if name in ("", *both_spellings(["replica_count"])) and str(plain(count)) == "0":
                return cls.model_construct({"replica_count"} if data else set(), replica_count=0)
        return handler(data)  # type: ignore[no-any-return]


EXAMPLE_POOLS = [{"replicaCount": 1, "processSpec": {"command": ["python", "train.py"]}}]
POOLS_FIX = "pool 0 is the primary, 1 the workers, 2 parameter servers, 3 evaluators"


class JobSpec(Model):
    """The programs that a job runs and how: the contract's CustomJobSpec."""

    worker_pool_specs: Annotated[tuple[WorkerPoolSpec, ...], Many(1, 4, POOLS_FIX)] = Field(
        examples=[EXAMPLE_POOLS]
    )
    """Pool 0 is the primary, one worker; 1 the workers, 2 parameter servers, 3 evaluators. {} skips a role."""
    scheduling: Scheduling = Field(default_factory=Scheduling)
    """Times and limits of the whole job."""
    fault_tolerance: FaultTolerance = Field(default_factory=FaultTolerance)
    """How failures of workers are answered."""
    success_policy: Annotated[SuccessPolicy, Choice(SuccessPolicy, "SUCCESS_POLICY_", SuccessPolicy.PRIMARY)] = (
        SuccessPolicy.PRIMARY
    )
    """PRIMARY: done when the primary exits 0. ALL: when every rank has exited 0."""
    base_output_directory: OutputDirectory | None = None
    """Where AIP_MODEL_DIR, AIP_CHECKPOINT_DIR and AIP_TENSORBOARD_LOG_DIR point."""
    service_account: Kept = ""
    """Kept; ranks run as the user that their host's admin chose."""
    network: Kept = ""
    """Kept; ranks use their host's network."""
    reserved_ip_ranges: Annotated[tuple[Kept, ...], Many(0, 100)] = ()
    """Kept; ranks use their host's addresses."""
    persistent_resource_id: Kept = ""
    """Kept; hosts are chosen with hostSelector."""
    tensorboard: Kept = ""
    """Kept; there is no TensorBoard service."""
    enable_web_access: Annotated[bool, Flag()] = False
    """The job's owner may open shells beside its ranks: see holdfast job shell."""
    enable_dashboard_access: Annotated[bool, Flag()] = False
    """Kept; there is no dashboard."""
    experiment: Kept = ""
    """Kept; use labels."""
    experiment_run: Kept = ""
    """Kept; use labels."""
    models: Annotated[tuple[Kept, ...], Many(0, 100)] = ()
    """Kept; there is no model registry."""
    notifications: Notifications = ()
    """Receivers of the job's notifications, beside those that the cluster notifies of every job."""
    protected_artifact_location_id: Kept = ""
    """Kept; what a job writes stays where it writes it."""
    psc_interface_config: PscInterfaceConfig | None = None
    """Kept; ranks use their host's network."""
    run_as: Account = ""
    """Account of the hosts that ranks run as: one that an admin has mapped you to; the first of them when empty."""
    progress_total: Annotated[int, Whole(0, 2**53, bits=64)] = 0
    """Steps of the whole training, where the program doesn't say itself: shown beside the step it has reached."""

    @model_validator(mode="after")
    def _keeps_the_rules(self, info: ValidationInfo) -> JobSpec:
        if info.context is RULES_FOLLOW:
            return self
        for broken in rules.broken(self.model_dump(exclude_unset=True, exclude_none=True)):
            raise Refused(broken.problem, broken.fix)
        return self


class JobFile(Model):
    """A job as a user submits it: the contract's CustomJob without what the controller adds."""

    IGNORED = frozenset(
        {"id", "name", "owner", "state", "error", "create_time", "start_time", "end_time", "update_time", "cursor"}
        | {
            "attempt",
            "generation",
            "wait_reason",
            "waits_for",
            "array",
            "workers",
            "recoveries",
            "web_access_uris",
            "account",
        }
        | {"hangs", "held_until", "health", "warnings", "archive_problems", "satisfies_pzs", "satisfies_pzi"}
        | {"step", "step_total", "phase", "saved_step", "summary", "expected_end"}
        | {"gpu_count", "host_count", "hang_count", "recovery_count", "spare_hosts", "exit_groups"}
    )
    """What ``job show`` prints beside the fields below: taken and ignored, so that its output can be submitted."""

    display_name: DisplayName
    """At most 128 characters; the file's name unless set."""
    job_spec: JobSpec = Field(examples=[{"workerPoolSpecs": EXAMPLE_POOLS}])
    """What the job runs and how."""
    labels: Labels = Field(default_factory=dict)
    """At most 64; keys and values of at most 64 characters."""
    annotations: Annotations = Field(default_factory=dict)
    """Notes of users and programs, at most 64 of at most 64 KiB each; those of fault-tolerance/ are acted on."""
    project: Annotated[
        str,
        Text(
            max_chars=projects.MOST_CHARS,
            empty=False,
            pattern=projects.PATTERN,
            must=projects.MUST,
        ),
    ] = "default"
    """Project that the job's resources are counted for."""
    encryption_spec: EncryptionSpec | None = None
    """Kept; nothing is encrypted for a job."""


def to_dict(job: JobFile | JobSpec) -> dict[str, Any]:
    """The fields that the user set, in camelCase: whole numbers as such, durations as ``"3600s"``; no defaults.

    ``parse`` makes an equal job of it again.
    """
    return job.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
