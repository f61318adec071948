"""The job file as frozen pydantic models: field for field the messages of ``proto/holdfast/v1/spec.proto``.

Field names, limits and defaults stand here; rules that join several fields are in ``rules``. An instance is always
valid, however it was made; ``holdfast.spec.parse`` is the way that reports everything wrong at once.
"""

from __future__ import annotations

import enum
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from holdfast.expand import MAX_BYTES
from holdfast.spec import rules
from holdfast.spec.scalars import Choice, Many, Refused, Seconds, Text, Whole

DAY_S = 86_400.0

Name = Annotated[str, Text(max_chars=256)]
Uri = Annotated[str, Text(max_chars=4096, empty=False)]
Argument = Annotated[str, Text(max_bytes=MAX_BYTES, control=True)]
VariableName = Annotated[
    str,
    Text(
        max_chars=1024,
        empty=False,
        pattern="[A-Za-z_][A-Za-z0-9_]*",
        must="be letters, digits and underscores, not starting with a digit",
    ),
]
Label = Annotated[str, Text(max_chars=64)]
LabelKey = Annotated[str, Text(max_chars=64, empty=False)]

IMAGE = "registry.example/train:1"


class Model(BaseModel):
    """Frozen, no unknown fields, camelCase outside and snake_case inside."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
    )


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
    """Absolute path on each host; the worker's own scratch directory when empty."""


class ContainerSpec(Model):
    """A container from an image. Stored, but no cluster runs it yet."""

    image_uri: Uri = Field(examples=[IMAGE])
    """The image."""
    command: Annotated[tuple[Argument, ...], Many(0, 10_000, "put them under args")] = ()
    """Takes the place of the image's entry point."""
    args: Args = ()
    """Arguments, at most 100,000 characters together."""
    env: Env = ()
    """Environment variables, at most 100, each name once."""


class PythonPackageSpec(Model):
    """A Python package, installed and run as a module. Stored, but no cluster runs it yet."""

    executor_image_uri: Uri = Field(examples=[IMAGE])
    """The image in which the package is installed."""
    package_uris: Annotated[tuple[Uri, ...], Many(1, 100)] = Field(
        examples=[["https://files.example/trainer.tar.gz"]]
    )
    """The package and what it depends on, at most 100."""
    python_module: Annotated[str, Text(max_chars=1024, empty=False)] = Field(examples=["trainer.task"])
    """The module to run."""
    args: Args = ()
    """Arguments, at most 100,000 characters together."""
    env: Env = ()
    """Environment variables, at most 100, each name once."""


class MachineSpec(Model):
    """What one worker needs of its host."""

    machine_type: Name = ""
    """A name for people; placement goes by the counts below."""
    accelerator_type: Name = ""
    """GPU model, such as NVIDIA_H100_80GB; any model when empty."""
    accelerator_count: Annotated[int, Whole(0, 1024)] = 0
    """GPUs for each worker."""
    cpu_count: Annotated[int, Whole(0, 65_536)] = 0
    """Cores reserved for each worker; none when 0."""
    memory_mb: Annotated[int, Whole(0, 2**30, bits=64)] = 0
    """Memory reserved for each worker, in MiB; none when 0."""


class WorkerPoolSpec(Model):
    """Workers that share one spec, and exactly one kind of task."""

    machine_spec: MachineSpec = Field(default_factory=MachineSpec)
    """What each worker needs of its host."""
    replica_count: Annotated[int, Whole(1, rules.MAX_RANKS, bits=64)] = Field(examples=[1])
    """Workers in this pool; 1 in pool 0, the primary."""
    process_spec: ProcessSpec | None = None
    """A process on the bare host."""
    container_spec: ContainerSpec | None = None
    """A container; validated and stored, but refused at submit."""
    python_package_spec: PythonPackageSpec | None = None
    """A Python package; validated and stored, but refused at submit."""
    processes_per_worker: Annotated[int, Whole(1, 1024)] = 1
    """Ranks (processes) of each worker; 1 where the command is itself a launcher such as torchrun."""


class Scheduling(Model):
    """Times and limits of the whole job."""

    timeout: Annotated[float, Seconds(3650 * DAY_S, zero=False)] = 7 * DAY_S
    """Longest run time."""
    grace_period: Annotated[float, Seconds(3600.0)] = 10.0
    """Time between SIGTERM and SIGKILL."""
    end_grace: Annotated[float, Seconds(DAY_S)] = 300.0
    """Time the other workers get to finish after the primary exited 0."""


class HangAction(enum.Enum):
    """What a confirmed hang leads to. Values are the names in the contract."""

    NOTIFY = "HANG_ACTION_NOTIFY"
    RESTART = "HANG_ACTION_RESTART"
    OFF = "HANG_ACTION_OFF"


Learned = Annotated[float | None, Seconds(30 * DAY_S, zero=False, optional=True)]
"""A time that the job's own rhythm decides unless it is set."""


class HangDetection(Model):
    """What is done about a hang, and how long is too long. What is unset is learned from the job."""

    action: Annotated[HangAction | None, Choice(HangAction, "HANG_ACTION_", None)] = None
    """NOTIFY: explained and told. RESTART: killed and relaunched in place. OFF: nobody looks. The cluster's
    default unless set."""
    timeout: Learned = None
    """Silence of the output after which a hang is noticed and, unless ceiling says otherwise, acted on."""
    floor: Learned = None
    """The least silence that counts, whatever the job's rhythm."""
    ceiling: Learned = None
    """Silence after which a hang is acted on though only one family of signals shows it."""
    startup_timeout: Learned = None
    """How long the start may take while every rank is blocked."""
    lone_work_timeout: Learned = None
    """How long one rank may work while all others wait."""
    step_pattern: Annotated[str, Text(max_chars=1024)] = ""
    """Regular expression whose first group is the step in a line of output."""


class FaultTolerance(Model):
    """How failures of workers are answered."""

    max_worker_restarts: Annotated[int, Whole(0, 1000)] = 5
    """In-place restarts for each worker's failures; 0 for none."""
    hang_detection: HangDetection = Field(default_factory=HangDetection)
    """What is done about a hang."""
    max_hang_restarts: Annotated[int, Whole(0, 1000)] = 3
    """Hang restarts in a row without progress; 0 for none."""


class SuccessPolicy(enum.Enum):
    """When a job counts as done. Values are the names in the contract."""

    PRIMARY = "SUCCESS_POLICY_PRIMARY"
    ALL = "SUCCESS_POLICY_ALL"


EXAMPLE_POOLS = [{"replicaCount": 1, "processSpec": {"command": ["python", "train.py"]}}]
POOLS_FIX = "pool 0 is the primary, 1 the workers, 2 parameter servers, 3 evaluators"


class JobSpec(Model):
    """What a job runs and how: the contract's CustomJobSpec."""

    worker_pool_specs: Annotated[tuple[WorkerPoolSpec, ...], Many(1, 4, POOLS_FIX)] = Field(
        examples=[EXAMPLE_POOLS]
    )
    """Pool 0 is the primary, one worker; 1 the workers, 2 parameter servers, 3 evaluators."""
    scheduling: Scheduling = Field(default_factory=Scheduling)
    """Times and limits of the whole job."""
    fault_tolerance: FaultTolerance = Field(default_factory=FaultTolerance)
    """How failures of workers are answered."""
    success_policy: Annotated[SuccessPolicy, Choice(SuccessPolicy, "SUCCESS_POLICY_", SuccessPolicy.PRIMARY)] = (
        SuccessPolicy.PRIMARY
    )
    """PRIMARY: done when the primary exits 0. ALL: when every rank has exited 0."""

    @model_validator(mode="after")
    def _keeps_the_rules(self) -> JobSpec:
        for broken in rules.broken(self.model_dump(exclude_none=True)):
            raise Refused(broken.problem, broken.fix)
        return self


class JobFile(Model):
    """A job as a user submits it: the contract's CustomJob without what the controller adds."""

    OUTPUT_ONLY: ClassVar[frozenset[str]] = frozenset(
        {"id", "name", "owner", "state", "error", "create_time", "start_time", "end_time", "update_time", "cursor"}
        | {"attempt", "generation", "wait_reason", "workers", "recoveries", "web_access_uris"}
        | {"hangs", "held_until", "health"}
    )
    """What ``job show`` prints beside the fields below: taken and ignored, so that its output can be submitted."""

    display_name: Annotated[str, Text(max_chars=128, empty=False)]
    """At most 128 characters; the file's name unless set."""
    job_spec: JobSpec = Field(examples=[{"workerPoolSpecs": EXAMPLE_POOLS}])
    """What the job runs and how."""
    labels: Annotated[dict[LabelKey, Label], Many(0, 64)] = Field(default_factory=dict)
    """At most 64; keys and values of at most 64 characters."""


def model_in(annotation: Any) -> type[Model] | None:
    """The model inside a field's annotation (``X``, ``X | None``, ``tuple[X, ...]``), or None for scalars."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return annotation
    arguments = getattr(annotation, "__args__", ())
    return next((found for arg in arguments if (found := model_in(arg)) is not None), None)
