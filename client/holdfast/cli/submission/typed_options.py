"""Errors about a job in the words of the command line: a field that an option set is named by that option."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import click
from click.core import ParameterSource

from holdfast.errors import InvalidInput, Violation

_POOL = r"jobSpec\.workerPoolSpecs\[\d+\]"
_TASK = rf"{_POOL}\.\w+Spec"
_SCHEDULING, _FAULTS = r"jobSpec\.scheduling", r"jobSpec\.faultTolerance"
_PARAMETERS = tuple(
    (re.compile(rf"{field}(?![A-Za-z])"), parameter)
    for field, parameter in (
        ("displayName", "name"),
        ("labels", "labels"),
        ("project", "project"),
        (r"jobSpec\.runAs", "run_as"),
        (r"jobSpec\.enableWebAccess", "enable_web_access"),
        (rf"{_SCHEDULING}\.priority", "priority"),
        (rf"{_SCHEDULING}\.after", "after"),
        (rf"{_SCHEDULING}\.pauseIfUnmet", "pause_if_unmet"),
        (rf"{_SCHEDULING}\.array", "array"),
        (rf"{_SCHEDULING}\.timeout", "timeout_s"),
        (rf"{_SCHEDULING}\.maxWaitDuration", "max_wait_s"),
        (rf"{_SCHEDULING}\.gracePeriod", "grace"),
        (rf"{_SCHEDULING}\.hostSelector\.hosts", "on_hosts"),
        (rf"{_SCHEDULING}\.hostSelector\.avoidHosts", "avoid_hosts"),
        (rf"{_SCHEDULING}\.hostSelector\.labels", "host_labels"),
        (rf"{_FAULTS}\.maxJobRetries", "max_retries"),
        (rf"{_FAULTS}\.maxWorkerRestarts", "max_restarts"),
        (rf"{_FAULTS}\.hangDetection\.timeout", "hang_timeout"),
        (rf"{_FAULTS}\.hangDetection\.action", "restart_on_hang"),
        (rf"{_POOL}\.replicaCount", "replicas"),
        (rf"{_POOL}\.processesPerWorker", "processes_per_worker"),
        (rf"{_POOL}\.machineSpec\.acceleratorCount", "gpus"),
        (rf"{_POOL}\.machineSpec\.cpuCount", "cpus"),
        (rf"{_POOL}\.machineSpec\.memoryMb", "memory_mb"),
        (rf"{_TASK}\.(?:command|args)", "command"),
        (rf"{_TASK}\.env", "env"),
        (rf"{_TASK}\.secretEnv", "secrets"),
        (rf"{_TASK}\.workingDirectory", "workdir"),
        (rf"{_TASK}\.packagedCode\.requirements", "requirements"),
        (rf"{_TASK}\.packagedCode\.packages", "extra_packages"),
        (rf"{_TASK}\.packagedCode", "package"),
    )
)
"""Fields of the job file, and the parameter of a command that sets each."""
_ADDED = frozenset({"labels", "host_labels", "secrets", "env"})
"""Beside those of a file, which may be the wrong ones."""


@contextmanager
def as_typed() -> Iterator[None]:
    """Within a command: what an option of it has set is refused in the option's name; the rest by its field."""
    try:
        yield
    except InvalidInput as error:
        found = click.get_current_context()
        named = [_named(violation, found) for violation in error.violations]
        if named == list(error.violations):
            raise
        every = all(each.path != before.path for each, before in zip(named, error.violations, strict=True))
        what = "The command line" if every else error.message.partition(" has ")[0]
        raise type(error)(named, what=what) from None


def _named(violation: Violation, context: click.Context) -> Violation:
    # Nothing else describes the job of ``run``: its name, say, is made of its command.
    typed_whole = context.command.name == "run"
    if typed_whole and violation.path == "jobSpec.workerPoolSpecs":
        return replace(violation, path="")
    name = next((name for field, name in _PARAMETERS if field.match(violation.path)), "")
    for parameter in context.command.params:
        if parameter.name == name and (typed_whole or _replaced(context, name)):
            return replace(violation, path=_shown(parameter))
    return violation


def _replaced(context: click.Context, name: str) -> bool:
    """Whether an option took the place of what a file or an earlier job says."""
    return name not in _ADDED and context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _shown(parameter: click.Parameter) -> str:
    return next((each for each in parameter.opts if each.startswith("--")), "COMMAND")
