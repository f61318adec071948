"""A job that ended, or runs, as one to submit again: what of it is the user's, what changes, and what differs.

Values are as in the job's spec, where ``$`` is doubled in what ``run`` took from the command line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast._base.job_file.launcher import is_launcher
from holdfast._base.job_file.secret_names import looks_secret
from holdfast._sdk import json_view
from holdfast.cli.kit.parameters import wrong
from holdfast.cli.submission.run_spec import (
    RunRequest,
    asked_environment,
    check_words,
    launches_in_script,
    literal,
    name_of,
)
from holdfast.spec.rules.notifications import HIDDEN
from holdfast.v1 import job_pb2, spec_pb2

if TYPE_CHECKING:
    from holdfast.cli.submission.job_options import Task

RERUN_OF = "rerun-of"
"""Label whose value is the id of the job that was submitted again."""
LABELS_MOST = 64
"""Of one job."""
_POOL = re.compile(r"^workerPoolSpecs\[\d+\]")
_ABSENT = "not set"


def again(job: job_pb2.CustomJob, changes: RunRequest, environ: Mapping[str, str], cwd: str) -> job_pb2.CustomJob:
    """The job to submit: spec, labels, annotations and project of ``job``, with the changes.

    Secrets and packaged code are named there, not held, and are the same. Raises ``InvalidInput`` for changes that
    this job can't have.
    """
    made = job_pb2.CustomJob(
        display_name=changes.name or _name(job, changes.command),
        labels={**job.labels, RERUN_OF: job.id},
        annotations=job.annotations,
        project=job.project,
    )
    if len(made.labels) > LABELS_MOST:
        del made.labels[RERUN_OF]
    made.job_spec.CopyFrom(job.job_spec)
    _leave_out_urls(made.job_spec)
    if made.job_spec.scheduling.after:  # those have ended, or the job would still wait for them
        made.job_spec.scheduling.ClearField("after")
        made.job_spec.scheduling.ClearField("pause_if_unmet")
    if job.HasField("array"):  # that element alone, which finds its index again
        made.job_spec.scheduling.array = str(job.array.index)
    if job.HasField("encryption_spec"):
        made.encryption_spec.CopyFrom(job.encryption_spec)
    env = asked_environment(changes.env, environ)
    for index, pool in enumerate(made.job_spec.worker_pool_specs):
        kind = pool.WhichOneof("task")
        if kind is None:
            continue  # a role that is skipped
        task = getattr(pool, kind)
        if changes.workdir:
            _give_directory(task, kind, os.path.normpath(os.path.join(cwd, changes.workdir)), index)
        if changes.command:
            _give_command(task, changes.command, index)
        for name, value in env.items():
            _give_variable(task, name, literal(value))
        _give_machine(pool, changes, task)
    changes.give_failures(made.job_spec)
    if changes.replicas is not None:
        _give_replicas(made.job_spec, changes.replicas)
    return made


def _leave_out_urls(spec: spec_pb2.CustomJobSpec) -> None:
    """Removes receivers of which only the host is shown: what follows it is a secret that the job doesn't tell."""
    whole = [each for each in spec.notifications if not each.url.endswith(HIDDEN)]
    del spec.notifications[:]
    spec.notifications.extend(whole)


def _name(job: job_pb2.CustomJob, command: Sequence[str]) -> str:
    """The display name; one that was made of the old command is made of the new one."""
    old = next((list(pool.process_spec.command) for pool in job.job_spec.worker_pool_specs), [])
    if command and old and job.display_name == name_of([word.replace("$$", "$") for word in old]):
        return name_of(command)
    return job.display_name


def _give_command(task: Task, command: Sequence[str], index: int) -> None:
    check_words(command, getattr(task, "working_directory", ""))
    if isinstance(task, spec_pb2.PythonPackageSpec):
        problem = f"runs the Python module {task.python_module}, which has no command"
        path = f"jobSpec.workerPoolSpecs[{index}].pythonPackageSpec"
        fix = "leave the command out, or change a copy of it: holdfast job show JOB -o yaml"
        raise wrong(path, problem, fix)
    task.command[:] = map(literal, command)
    task.ClearField("args")


def _give_directory(task: Task, kind: str, directory: str, index: int) -> None:
    if not isinstance(task, spec_pb2.ProcessSpec):
        path = f"jobSpec.workerPoolSpecs[{index}].{kind}"
        problem = "only a command that runs on the hosts themselves has a working directory"
        raise wrong(path, problem, "leave out --workdir")
    task.working_directory = directory


def _give_variable(task: Task, name: str, value: str) -> None:
    """Sets the variable in place of any that the ranks found there, a secret's included."""
    for index in reversed([index for index, each in enumerate(task.env) if each.name == name]):
        del task.env[index]
    for index in reversed([index for index, each in enumerate(task.secret_env) if each.name == name]):
        del task.secret_env[index]
    task.env.add(name=name, value=value)


def _give_machine(pool: spec_pb2.WorkerPoolSpec, changes: RunRequest, task: Task) -> None:
    if changes.gpus is not None:
        # One rank for each GPU stays one for each.
        one_each = max(1, pool.processes_per_worker) == max(1, pool.machine_spec.accelerator_count)
        if one_each and not _starts_ranks(task):
            pool.processes_per_worker = max(1, changes.gpus)
    changes.give_machine(pool.machine_spec)
    if changes.processes_per_worker is not None:
        pool.processes_per_worker = changes.processes_per_worker


def _give_replicas(spec: spec_pb2.CustomJobSpec, replicas: int) -> None:
    """Change the number of workers, in pools as ``run`` makes them: the first worker in one, the others in the next."""
    pools = spec.worker_pool_specs
    kinds = []
    for pool in pools:
        kind = spec_pb2.WorkerPoolSpec()
        kind.CopyFrom(pool)
        kind.ClearField("replica_count")
        kinds.append(kind)
    first = kinds[0]
    if any(kind != first for kind in kinds) or len(pools) > 2 or (len(pools) == 2 and pools[0].replica_count != 1):
        problem = "this job's workers are not all alike, so it can't be said which of them to have more or fewer of"
        fix = "change replicaCount in a copy of it: holdfast job show JOB -o yaml"
        raise wrong("--replicas", problem, fix)
    if len(pools) == 1 and pools[0].replica_count > 1:
        pools[0].replica_count = replicas
        return
    del pools[1:]
    if replicas > 1:
        pools.add().CopyFrom(first)
        pools[1].replica_count = replicas - 1


def _starts_ranks(task: Task) -> bool:
    if not isinstance(task, spec_pb2.ProcessSpec):
        return False
    command = [word.replace("$$", "$") for word in task.command]
    return is_launcher(command) or launches_in_script(command, task.working_directory)


def differences(old: job_pb2.CustomJob, new: job_pb2.CustomJob) -> list[str]:
    """A line for each field that differs, such as ``scheduling.priority: 1 → 3``; of pools alike, one for all."""
    before, after = dict(_flat(_view(old), "")), dict(_flat(_view(new), ""))
    found: dict[str, set[str]] = {}
    for path in dict.fromkeys([*before, *after]):
        if before.get(path) != after.get(path):
            line = f"{_shown(before.get(path), path)} → {_shown(after.get(path), path)}"
            found.setdefault(_POOL.sub("", path).lstrip(".") + "\0" + line, set()).add(path)
    lines = []
    for key, paths in found.items():
        short, _, line = key.partition("\0")
        everywhere = len(paths) == len(new.job_spec.worker_pool_specs)
        lines.append(f"{short if everywhere or len(paths) > 1 else next(iter(paths))}: {line}")
    return lines


def _view(job: job_pb2.CustomJob) -> dict[str, Any]:
    labels = {key: value for key, value in job.labels.items() if key != RERUN_OF}
    return {
        "name": job.display_name,
        "project": job.project or "default",
        "labels": labels,
        **json_view.spec(job.job_spec),
    }


def _flat(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Each single value with its path; variables by their names, words of a command together."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _flat(each, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        for index, each in enumerate(value):
            named = isinstance(each.get("name"), str)
            inner = {key: item for key, item in each.items() if key != "name"} if named else each
            bare = inner.get("value", "") if named and inner.keys() <= {"value"} else inner
            yield from _flat(bare, f"{path}.{each['name']}" if named else f"{path}[{index}]")
    else:
        yield path, value


def _shown(value: object, path: str) -> str:
    if value is None:
        return _ABSENT
    _, of_env, name = path.rpartition(".env.")
    if of_env and looks_secret(name):
        return HIDDEN
    if isinstance(value, list):
        return " ".join(map(str, value)).replace("$$", "$") or _ABSENT
    return str(value).replace("$$", "$")
