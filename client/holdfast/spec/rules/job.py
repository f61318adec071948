"""Rules of a job spec that join several fields. Pure; on plain mappings, so that they also run on half a spec.

A mapping here holds the spec's fields under their snake_case names: a field that the user left out is absent, one
whose value was refused already is None, and rules that need it keep silent. That is how one reading reports the
broken fields and the broken rules together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast._base.job_file.expand import TooLong, expand_args, expand_env
from holdfast._base.job_file.launcher import is_launcher, mpi_launcher_in, stays_on_its_host
from holdfast._base.job_file.rank_variables import WORLD_POOLS
from holdfast.hang.pipeline.step_pattern import BadPattern, compiled
from holdfast.spec.rules import environment, hosts, lifecycle, notifications, placement, secret_env
from holdfast.spec.wording import Broken, Fields, shown

TASKS = ("process_spec", "container_spec", "python_package_spec")
MAX_ARGS_CHARS = 100_000
MAX_RANKS = 100_000


def broken(job: Fields) -> Iterator[Broken]:
    """Every broken rule of ``job``, pool by pool, then those of the whole."""
    pools = job.get("worker_pool_specs") or ()
    output = (job.get("base_output_directory") or {}).get("output_uri_prefix") or ""
    writes_output = bool(output)
    if output.startswith("file:") and "%00" in output:
        yield Broken(
            ("base_output_directory", "output_uri_prefix"), "names a NUL byte, which no path has", "remove it"
        )
    for index, pool in enumerate(pools):
        if pool is not None:
            for found in _pool(pool, index, writes_output):
                yield Broken(("worker_pool_specs", index, *found.place), found.problem, found.fix)
    yield from _ranks(pools)
    yield from _worlds_apart(pools)
    yield from _step_pattern(job.get("fault_tolerance") or {})
    yield from lifecycle.broken(job)
    yield from hosts.broken(job)
    yield from placement.broken(job)
    yield from notifications.broken(job)


def _step_pattern(tolerance: Fields) -> Iterator[Broken]:
    pattern = (tolerance.get("hang_detection") or {}).get("step_pattern")
    if not pattern:
        return
    place = ("fault_tolerance", "hang_detection", "step_pattern")
    try:
        groups = compiled(pattern).groups
    except BadPattern as error:
        yield Broken(place, str(error), error.fix)
        return
    if not groups:
        yield Broken(place, "has no group for the step", r"put the number into parentheses, such as step=(\d+)")


def _pool(pool: Fields, index: int, writes_output: bool) -> Iterator[Broken]:
    if is_empty(pool):
        if index > 0:
            return  # its role is skipped
        yield from _skipped_primary(pool)
    if index == 0:
        yield from _primary(pool)
    yield from _one_task(pool)
    yield from _machine(pool.get("machine_spec") or {})
    for kind in TASKS:
        if (task := pool.get(kind)) is not None:
            for found in _task(task, pool.get("processes_per_worker", 1)):
                place = found.place if found.place[0] == "processes_per_worker" else (kind, *found.place)
                yield Broken(place, found.problem, found.fix)
            for found in environment.broken(task, writes_output):
                yield Broken((kind, *found.place), found.problem, found.fix)


def _primary(pool: Fields) -> Iterator[Broken]:
    count = pool.get("replica_count")
    if count is not None and count > 1:
        yield Broken(
            ("replica_count",),
            f"must be 1, not {count:,}: pool 0 is the primary",
            f"put the other {count - 1:,} into a second pool"
            if count > 2
            else "put the other one into a second pool",
        )


def is_empty(pool: Fields) -> bool:
    """Whether a pool says nothing, so that its role is skipped."""
    return not pool or pool == {"replica_count": 0}


def _skipped_primary(pool: Fields) -> Iterator[Broken]:
    if pool:
        yield Broken(("replica_count",), "must be at least 1, not 0")
    else:
        yield Broken(("replica_count",), "is missing", "such as replicaCount: 1")


def _one_task(pool: Fields) -> Iterator[Broken]:
    kinds = [kind for kind in TASKS if kind in pool]
    if not kinds:
        yield Broken((), "has no task", 'say what to run, such as processSpec: {"command": ["python", "train.py"]}')
    for extra in kinds[1:]:
        yield Broken((extra,), "is a second task; a pool has exactly one", f"remove it, or the {_camel(kinds[0])}")


def _machine(machine: Fields) -> Iterator[Broken]:
    if (machine.get("accelerator_type") or "").upper().startswith("TPU_"):
        yield Broken(
            ("machine_spec", "accelerator_type"),
            f"names a TPU, {shown(machine['accelerator_type'])}; hosts have GPUs",
            "name a GPU, such as NVIDIA_H100_80GB, or leave it out",
        )
        return
    if machine.get("accelerator_type") and machine.get("accelerator_count", 0) == 0:
        yield Broken(
            ("machine_spec", "accelerator_count"),
            "is 0, though acceleratorType names a GPU",
            "write how many GPUs each worker needs, or remove acceleratorType",
        )
    elif machine.get("gpu_partition_size") and machine.get("accelerator_count", 0) == 0:
        yield Broken(
            ("machine_spec", "accelerator_count"),
            "is 0, though gpuPartitionSize names a MIG profile",
            "write how many such instances each worker needs, or remove gpuPartitionSize",
        )


def _task(task: Fields, processes: int | None) -> Iterator[Broken]:
    command, args, env = task.get("command", ()), task.get("args", ()), task.get("env", ())
    if command and not command[0].strip():
        yield Broken(("command", 0), "must name a program; it is empty")
    if args is not None and (total := sum(map(len, args))) > MAX_ARGS_CHARS:
        yield Broken(
            ("args",),
            f"have {total:,} characters together; at most {MAX_ARGS_CHARS:,} are allowed",
            "pass long input in a file",
        )
        args = None
    if env is not None:
        yield from _env(env, args)
    yield from secret_env.broken(task)
    if command is not None and args is not None and processes is not None and processes > 1:
        whole = [*command, *args]
        if is_launcher(whole):
            yield Broken(
                ("processes_per_worker",),
                f"must be 1, not {processes:,}: the command is a launcher, which starts the processes itself",
                "remove processesPerWorker, or run the training program without the launcher",
            )


def _env(env: Any, args: Any) -> Iterator[Broken]:
    first: dict[str, int] = {}
    for index, variable in enumerate(env):
        name = variable and variable.get("name")
        if name and first.setdefault(name, index) != index:
            yield Broken(("env", index, "name"), f"{name} is set already by env[{first[name]}]", "set it once")
    pairs = [(v["name"], v.get("value", "")) for v in env if v and v.get("name") and v.get("value", "") is not None]
    try:
        # References to what only the host will know count as they are written.
        values = expand_env(pairs, {})
    except TooLong as error:
        yield Broken(("env",), f"is too long: {error}", "pass long text in a file")
        return
    try:
        expand_args(args or (), values)
    except TooLong as error:
        yield Broken(("args",), f"are too long: {error}", "pass long text in a file")


def _ranks(pools: Any) -> Iterator[Broken]:
    total = 0
    for pool in pools:
        total += ((pool or {}).get("replica_count") or 0) * ((pool or {}).get("processes_per_worker") or 1)
    if total > MAX_RANKS:
        yield Broken(
            ("worker_pool_specs",),
            f"ask for {total:,} ranks; at most {MAX_RANKS:,} are allowed",
            "lower replicaCount or processesPerWorker",
        )


def _worlds_apart(pools: Any) -> Iterator[Broken]:
    """Launchers of one host where several workers would run one each: trainings that don't know of each other."""
    pools = [pool or {} for pool in pools[:WORLD_POOLS]]
    workers = sum(pool.get("replica_count") or 0 for pool in pools)
    if workers < 2:
        return
    for index, pool in enumerate(pools):
        for kind in TASKS:
            task = pool.get(kind) or {}
            command = [*(task.get("command") or ()), *(task.get("args") or ())]
            if not pool.get("replica_count"):
                continue
            if stays_on_its_host(command):
                yield Broken(
                    ("worker_pool_specs", index, kind, "command"),
                    f"starts torchrun --standalone on each of {workers:,} workers, and none would find the others",
                    "leave out --standalone and --nnodes, and torchrun spans them (users/frameworks/torchrun.md in the "
                    "docs), or ask for one worker",
                )
            elif name := mpi_launcher_in(command):
                yield Broken(
                    ("worker_pool_specs", index, kind, "command"),
                    f"starts {name} on each of {workers:,} workers, and each would be a world of its own",
                    f"write python mpi_gang.py before {name}, which makes it span them (users/frameworks/mpi.md in the "
                    f"docs), or ask for one worker",
                )


def _camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(map(str.capitalize, tail))
