"""Errors about a job in the words in which it was asked for: a field that an option has set is named by the option."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import click
from click.core import ParameterSource

from holdfast._base.dataclass import dataclass
from holdfast.errors import InvalidInput, Violation

WORKERS = "workers"
"""Stands for all options together that say how many workers there are, and of what size."""
_INDEX = re.compile(r"\[[^\[\]]*\]")
_TASK = re.compile(r"\b(?:process|container|pythonPackage)Spec\b")
_PARAMETERS = {
    "displayName": "name",
    "labels": "labels",
    "project": "project",
    "jobSpec.runAs": "run_as",
    "jobSpec.enableWebAccess": "enable_web_access",
    "jobSpec.scheduling.priority": "priority",
    "jobSpec.scheduling.after": "after",
    "jobSpec.scheduling.pauseIfUnmet": "pause_if_unmet",
    "jobSpec.scheduling.array": "array",
    "jobSpec.scheduling.timeout": "timeout_s",
    "jobSpec.scheduling.maxWaitDuration": "max_wait_s",
    "jobSpec.scheduling.gracePeriod": "grace_s",
    "jobSpec.scheduling.hostSelector.hosts": "on_hosts",
    "jobSpec.scheduling.hostSelector.avoidHosts": "avoid_hosts",
    "jobSpec.scheduling.hostSelector.labels": "host_labels",
    "jobSpec.scheduling.hostSelector.match": "host_match",
    "jobSpec.scheduling.placement.within": "within",
    "jobSpec.scheduling.spares": "spares",
    "jobSpec.scheduling.numaBinding": "numa_binding",
    "jobSpec.faultTolerance.maxJobRetries": "max_retries",
    "jobSpec.faultTolerance.maxWorkerRestarts": "max_restarts",
    "jobSpec.faultTolerance.hangDetection.timeout": "hang_timeout_s",
    "jobSpec.faultTolerance.hangDetection.action": "restart_on_hang",
    "jobSpec.workerPoolSpecs": WORKERS,
    "jobSpec.workerPoolSpecs.replicaCount": "replicas",
    "jobSpec.workerPoolSpecs.processesPerWorker": "processes_per_worker",
    "jobSpec.workerPoolSpecs.machineSpec.acceleratorCount": "gpus",
    "jobSpec.workerPoolSpecs.machineSpec.acceleratorType": "gpu_type",
    "jobSpec.workerPoolSpecs.machineSpec.gpuPartitionSize": "gpu_partition_size",
    "jobSpec.workerPoolSpecs.machineSpec.machineType": "machine_type",
    "jobSpec.workerPoolSpecs.machineSpec.cpuCount": "cpus",
    "jobSpec.workerPoolSpecs.machineSpec.memoryMb": "memory_mb",
    "jobSpec.workerPoolSpecs.task.command": "command",
    "jobSpec.workerPoolSpecs.task.args": "command",
    "jobSpec.workerPoolSpecs.task.env": "env",
    "jobSpec.workerPoolSpecs.task.secretEnv": "secrets",
    "jobSpec.workerPoolSpecs.task.workingDirectory": "workdir",
    "jobSpec.workerPoolSpecs.task.packagedCode": "package",
    "jobSpec.workerPoolSpecs.task.packagedCode.requirements": "requirements",
    "jobSpec.workerPoolSpecs.task.packagedCode.packages": "extra_packages",
}
"""Fields of the job file, those of every kind of task as of ``task``, and the parameter of a command that sets each."""
_LABELS = frozenset({"labels", "host_labels"})
_ADDED = frozenset({"labels", "host_labels", "secrets", "env"})
"""Beside those of a file, which may be the wrong ones."""


@contextmanager
def as_typed() -> Iterator[None]:
    """Within a command: what an option of it has set is refused in the option's name; the rest by its field."""
    try:
        yield
    except InvalidInput as error:
        raise in_words_of(error, _Options(click.get_current_context()).word_for, "The command line") from None


def in_words_of(error: InvalidInput, word_for: Callable[[str], str | None], what: str) -> InvalidInput:
    """The error with a word in place of each field that a parameter has set, where ``word_for`` has one.

    It is an error of ``what`` once all are; an empty word leaves the problem alone.
    """
    named = [_named(violation, word_for) for violation in error.violations]
    if any(after is before for after, before in zip(named, error.violations, strict=True)):
        what = error.message.partition(" has ")[0]
    # What is wrong with one option is found in each pool of workers that it has set: it is said once.
    return type(error)(dict.fromkeys(named), what=what)


def _named(violation: Violation, word_for: Callable[[str], str | None]) -> Violation:
    field = _TASK.sub("task", _INDEX.sub("", violation.path))
    while field not in _PARAMETERS and "." in field:
        field = field.rpartition(".")[0]
    # Of all workers together something is said of them, and of one of them of a field that no parameter sets.
    is_inside = _PARAMETERS.get(field) == WORKERS and field != violation.path
    word = word_for(_PARAMETERS[field]) if field in _PARAMETERS and not is_inside else None
    if word is None:
        return violation
    key = _label_key(violation.path) if _PARAMETERS[field] in _LABELS else ""
    return replace(violation, path=word, problem=f"{key} {violation.problem}".lstrip())


def _label_key(path: str) -> str:
    """The key of a label: ``team`` of ``labels.team``, ``"a b"`` of ``labels["a b"]``."""
    rest = path.partition("labels")[2]
    return rest.removeprefix(".") if rest[:1] != "[" else rest[1:].removesuffix("]")


@dataclass(frozen=True)
class _Options:
    context: click.Context

    def word_for(self, name: str) -> str | None:
        """The option or argument of that name; None where a file or an earlier job may have set the field."""
        # Nothing else describes the job of ``run``: its name, say, is made of its command.
        if self.context.command.name != "run" and (name in _ADDED or not self._is_given(name)):
            return None
        if name == WORKERS:
            return ""
        shown = (each for each in self.context.command.params if each.name == name)
        return next((_shown(each) for each in shown), None)

    def _is_given(self, name: str) -> bool:
        return self.context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _shown(parameter: click.Parameter) -> str:
    return next((each for each in parameter.opts if each.startswith("--")), "COMMAND")
