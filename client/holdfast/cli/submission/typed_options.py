"""Errors about a job in the words in which it was asked for: a field that an option has set is named by the option."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import click
from click.core import ParameterSource

from holdfast.errors import InvalidInput, Violation

WORKERS = "workers"
"""Stands for all options together that say how many workers there are, and of what size."""
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
        (r"jobSpec\.workerPoolSpecs\Z", WORKERS),
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
        raise in_words_of(error, _Options(click.get_current_context()).word_for, "The command line") from None


def in_words_of(error: InvalidInput, word_for: Callable[[str], str | None], what: str) -> InvalidInput:
    """The error with a word in place of each field that a parameter has set, where ``word_for`` has one.

    It is an error of ``what`` once all are; an empty word leaves the problem alone.
    """
    named = [_named(violation, word_for) for violation in error.violations]
    if any(after is before for after, before in zip(named, error.violations, strict=True)):
        what = error.message.partition(" has ")[0]
    return type(error)(named, what=what)


def _named(violation: Violation, word_for: Callable[[str], str | None]) -> Violation:
    name = next((name for field, name in _PARAMETERS if field.match(violation.path)), None)
    word = word_for(name) if name is not None else None
    return violation if word is None else replace(violation, path=word)


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
