"""Options of ``run`` and ``submit`` that say when and where a job runs; what is not given leaves it as it is."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast._base.dataclass import dataclass
from holdfast.cli.kit.host_names import expand
from holdfast.cli.kit.parameters import Count, conditions, duration, key_value

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration

    from holdfast.v1 import job_pb2, spec_pb2

    Task = spec_pb2.ProcessSpec | spec_pb2.ContainerSpec | spec_pb2.PythonPackageSpec
C = TypeVar("C", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Options of a job as the user gave them. Times in seconds."""

    project: str | None = None
    priority: int | None = None
    after: tuple[tuple[str, str], ...] = ()
    """(job, end that is waited for: ok, any or failed)."""
    pause_if_unmet: bool = False
    array: str | None = None
    """Indices, as Slurm writes them."""
    timeout_s: float | None = None
    max_wait_s: float | None = None
    max_retries: int | None = None
    on_hosts: tuple[str, ...] = ()
    avoid_hosts: tuple[str, ...] = ()
    host_labels: tuple[tuple[str, str], ...] = ()
    host_match: str | None = None
    """Conditions on hosts' labels, as Kubernetes writes them."""
    within: str | None = None
    """Level of the network of which one domain has to hold all workers."""
    spares: int | None = None
    numa_binding: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    run_as: str | None = None
    enable_web_access: bool = False
    secrets: tuple[tuple[str, str], ...] = ()
    """(variable, name of a secret or absolute path of a file)."""

    def apply(self, job: job_pb2.CustomJob) -> None:
        """Writes the options into the job, over what it says itself."""
        if self.project is not None:
            job.project = self.project
        if self.run_as is not None:
            job.job_spec.run_as = self.run_as
        if self.enable_web_access:
            job.job_spec.enable_web_access = True
        scheduling = job.job_spec.scheduling
        if self.priority is not None:
            scheduling.priority = self.priority
        if self.after:
            del scheduling.after[:]
            for name, end in self.after:
                scheduling.after.add(job=name, end=f"DEPENDENCY_END_{end.upper()}")
        if self.pause_if_unmet:
            scheduling.pause_if_unmet = True
        if self.array is not None:
            scheduling.array = self.array
        if self.timeout_s is not None:
            set_seconds(scheduling.timeout, self.timeout_s)
        if self.max_wait_s is not None:
            set_seconds(scheduling.max_wait_duration, self.max_wait_s)
        if self.max_retries is not None:
            job.job_spec.fault_tolerance.max_job_retries = self.max_retries
        if self.on_hosts:
            scheduling.host_selector.hosts[:] = self.on_hosts
        if self.avoid_hosts:
            scheduling.host_selector.avoid_hosts[:] = self.avoid_hosts
        for key, value in self.host_labels:
            scheduling.host_selector.labels[key] = value
        if self.host_match is not None:
            scheduling.host_selector.match = self.host_match
        if self.within is not None:
            from holdfast.v1.spec_pb2 import PLACEMENT_MODE_REQUIRED

            scheduling.placement.within = self.within
            scheduling.placement.mode = PLACEMENT_MODE_REQUIRED
        if self.spares is not None:
            scheduling.spares = self.spares
        if self.numa_binding is not None:
            from holdfast.v1.spec_pb2 import NumaBinding

            scheduling.numa_binding = NumaBinding.Value(f"NUMA_BINDING_{self.numa_binding.upper()}")
        for key, value in self.labels:
            job.labels[key] = value
        for pool in job.job_spec.worker_pool_specs:
            if (task := pool.WhichOneof("task")) is not None:
                for name, source in self.secrets:
                    give_secret(getattr(pool, task), name, source)


def give_secret(task: Task, name: str, source: str) -> None:
    """Has the task's ranks find a secret in a variable, in place of one that they found there."""
    for index in reversed([index for index, each in enumerate(task.secret_env) if each.name == name]):
        del task.secret_env[index]
    file = source.startswith("/")
    task.secret_env.add(name=name, secret="" if file else source, file=source if file else "")


def set_seconds(field: Duration, seconds: float) -> None:
    """Set the duration, so that 0 is kept apart from unset."""
    fraction, whole = math.modf(seconds)
    field.seconds, field.nanos = int(whole), round(fraction * 1e9)
    field.SetInParent()


def secret_of(value: str) -> tuple[str, str]:
    """``KEY``, ``KEY=wandb`` or ``KEY=/etc/keys/x``."""
    name, equals, source = value.partition("=")
    if not name or (equals and not source):
        raise click.BadParameter("it is no NAME, NAME=SECRET or NAME=/PATH.")
    return name, source or name


def _hosts(_: click.Context, __: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(expand(words))


def dependency_of(value: str) -> tuple[str, str]:
    """``JOB``, ``JOB:ok``, ``JOB:any`` or ``JOB:failed``; a name with another colon in it is a name."""
    name, _, end = value.rpartition(":")
    if end not in ("ok", "any", "failed"):
        name, end = value, "ok"
    if not name.strip():
        raise click.BadParameter("it names no job.")
    return name, end


def indices(value: str) -> str:
    """``1-20``, ``1,3,7``, ``1-20:2``, each with ``%4`` for four at once."""
    from holdfast.spec.rules.arrays import read_array

    try:
        found = read_array(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None
    if not found.indices:
        raise click.BadParameter("it names no index.")
    return value


_OPTIONS = (
    click.option(
        "--label",
        "labels",
        multiple=True,
        type=key_value,
        metavar="KEY=VALUE",
        help="A label of the job, to find it by.",
    ),
    click.option("--project", help="Project that the job's resources are counted for.  [default: default]"),
    click.option("--priority", type=Count(1, 3), help="3 is placed first, 1 last.  [default: 1]"),
    click.option(
        "--after",
        multiple=True,
        type=dependency_of,
        metavar="JOB[:ok|any|failed]",
        help="Wait until this job has ended so; give it again for more jobs.  [default: ok]",
    ),
    click.option("--pause-if-unmet", is_flag=True, help="If a job of --after ends otherwise: pause, do not fail."),
    click.option(
        "--array",
        type=indices,
        metavar="INDICES[%N]",
        help="A job for each of these indices, such as 0-99, 1,3,7 or 1-20:2, which finds its own in "
        "HOLDFAST_ARRAY_INDEX; with %4, four at once.",
    ),
    click.option("--timeout", "timeout_s", type=duration, help="Longest run time, such as 2h.  [default: 7d]"),
    click.option(
        "--max-wait",
        "max_wait_s",
        type=duration,
        help="Longest wait for resources, such as 2h; 0 waits for ever.  [default: 24h]",
    ),
    click.option(
        "--max-retries",
        type=Count(0),
        help="New placements of the whole job after failures.  [default: 3; with run 0]",
    ),
    click.option(
        "--on-host",
        "on_hosts",
        multiple=True,
        metavar="HOST",
        callback=_hosts,
        help="Use only this host, or these: gpu-[1-4].",
    ),
    click.option(
        "--avoid-host",
        "avoid_hosts",
        multiple=True,
        metavar="HOST",
        callback=_hosts,
        help="Never use this host, or these.",
    ),
    click.option(
        "--label-selector",
        "host_labels",
        multiple=True,
        type=key_value,
        metavar="KEY=VALUE",
        help="Use only hosts with this label.",
    ),
    click.option(
        "--host-selector",
        "host_match",
        type=conditions,
        metavar="CONDITIONS",
        help="Use only hosts whose labels meet these, such as 'gpu in (h100,h200),!old,rack!=r7'.",
    ),
    click.option(
        "--within",
        metavar="LEVEL",
        help="Wait for hosts that are all in one domain of this level of the network, such as rack.",
    ),
    click.option(
        "--spares",
        type=Count(0),
        metavar="N",
        help="Hold room for N more workers on other hosts, for those whose hosts fail.  [default: 0]",
    ),
    click.option(
        "--numa-binding",
        type=click.Choice(["none", "node", "exclusive"]),
        help="Keep each rank to the cores and memory next to its GPU, or to cores of its own there.  [default: none]",
    ),
    click.option(
        "--run-as",
        metavar="ACCOUNT",
        help="Account of the hosts, one that you are mapped to.  [default: the first of those]",
    ),
    click.option("--enable-web-access", is_flag=True, help="Allow yourself shells beside its ranks: job shell."),
    click.option(
        "--secret",
        "secrets",
        multiple=True,
        type=secret_of,
        metavar="NAME[=SECRET]",
        help="A variable for the ranks with a secret's value, or with =/PATH what a file on the host holds.",
    ),
)
_NAMES = tuple(JobOptions.__dataclass_fields__)


def job_options(command: C) -> C:
    """Adds the options; the command gets them together, as ``options``."""

    @functools.wraps(command)
    def gathered(**words: Any) -> object:
        from holdfast.cli.submission.typed_options import as_typed

        with as_typed():
            return command(options=JobOptions(**{name: words.pop(name) for name in _NAMES}), **words)

    for option in reversed(_OPTIONS):
        gathered = option(gathered)
    return gathered  # type: ignore[return-value]


_RESTARTS = (
    click.option(
        "--max-restarts", type=Count(0), help="In-place restarts for each worker's failures.  [default: 5]"
    ),
    click.option(
        "--restart-on-hang", is_flag=True, help="Relaunch in place when it hangs, instead of only telling."
    ),
    click.option(
        "--hang-timeout",
        "hang_timeout_s",
        type=duration,
        help="Silence of the output that counts as a hang, such as 20m.  [default: learned from the job]",
    ),
)
_MACHINE = (
    click.option("--gpus", type=Count(0), help="GPUs for each worker."),
    click.option("--gpu-type", metavar="MODEL", help="Model of the GPUs, such as H200.  [default: any]"),
    click.option(
        "--gpu-partition-size",
        metavar="PROFILE",
        help="MIG instances of this profile in place of whole GPUs, such as 1g.10gb; --gpus counts them.",
    ),
    click.option(
        "--machine-type",
        metavar="NAME",
        help="Use only hosts of this class, one that admins have declared.  [default: any]",
    ),
)
_RESERVED = (
    click.option("--cpus", type=Count(0), help="Cores reserved for each worker."),
    click.option(
        "--memory-mb",
        type=Count(0),
        help="Memory reserved for each worker, in MiB; where hosts bound workers by cgroups, also the most it may use.",
    ),
)
_STOP = (
    click.option(
        "--grace", "grace_s", type=duration, help="Time between SIGTERM and SIGKILL, such as 30s.  [default: 10s]"
    ),
    click.option("--workdir", default="", help="Working directory of the ranks.  [default: the current one]"),
)


def in_one_request(command: C) -> C:
    """Has ``run`` or ``job rerun`` get its options that ``RunRequest`` names together, as ``request``."""

    @functools.wraps(command)
    def gathered(**words: Any) -> object:
        from holdfast.cli.submission.run_spec import RunRequest

        asked = {name: words.pop(name) for name in RunRequest.__dataclass_fields__ if name in words}
        return command(request=RunRequest(**asked), **words)

    return gathered  # type: ignore[return-value]


def restart_options(command: C) -> C:
    """Adds the options of ``run`` and ``job rerun`` that say what failures and hangs lead to."""
    return functools.reduce(lambda made, option: option(made), reversed(_RESTARTS), command)


def machine_options(command: C) -> C:
    """Adds the options of ``run`` and ``job rerun`` that say which GPUs, and which class of hosts, a worker has."""
    return functools.reduce(lambda made, option: option(made), reversed(_MACHINE), command)


def reserve_options(command: C) -> C:
    """Adds --cpus and --memory-mb, of ``run`` and ``job rerun``."""
    return functools.reduce(lambda made, option: option(made), reversed(_RESERVED), command)


def stop_options(command: C) -> C:
    """Adds --grace and --workdir, of ``run`` and ``job rerun``."""
    return functools.reduce(lambda made, option: option(made), reversed(_STOP), command)


def detach_option(command: C) -> C:
    """Adds --detach to a command that returns at once unless --wait is given, as people know it from ``run``."""
    return click.option("--detach", is_flag=True, help="Print the job's id and return, as without --wait.")(command)


def check_detached(detach: bool, *, wait: bool) -> None:
    """Raises ``UsageError`` where both are asked for."""
    if detach and wait:
        raise click.UsageError("--detach returns at once and --wait does not: give one of them.")
