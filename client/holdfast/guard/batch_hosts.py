"""Which hosts PBS or LSF have given to the job of which this process is the script, or its only program. Pure.

Neither starts a process on any other host: the guard logs in to them, as with ``--hosts``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from holdfast.errors import ConfigError
from holdfast.guard import allocation

_FILES = ("PBS_NODEFILE", "LSB_DJOB_HOSTFILE")
"""Name a file with a host on each line, once for each slot."""
_COUNTED = "LSB_MCPU_HOSTS"
"""Each host, and how many slots it has."""


@dataclass(frozen=True, slots=True)
class BatchHosts:
    """The hosts of a scheduler's job, as they are written in a file."""

    variable: str
    """The variable that says it."""
    lines: str


def named(environ: Mapping[str, str], read: Callable[[str], str]) -> BatchHosts | None:
    """The hosts that the environment names; None where there are none, or this is a task that a launcher has started.

    ``read`` gives the text of a file, or raises ``OSError``: the file is on the job's first host alone.
    """
    if allocation.is_launched(environ):
        return None
    for variable in _FILES:
        if name := environ.get(variable):
            try:
                return BatchHosts(variable, read(name))
            except OSError:
                continue
    if words := environ.get(_COUNTED, "").split():
        return BatchHosts(_COUNTED, "\n".join(words[::2]))
    return None


def check_first(found: BatchHosts, hosts: Sequence[str], hostname: str) -> None:
    """Raises ``ConfigError`` on another of the hosts than the first: something has started the guard on each."""
    short = [host.partition(".")[0] for host in hosts]
    if hostname.partition(".")[0] in short[1:]:
        raise ConfigError(
            f"{hostname} is not the first of the {len(hosts)} hosts in {found.variable}, which is {hosts[0]}.",
            fix="Start one guard, on the first, which logs in to the others; or have mpirun -N 1 start one on each.",
        )
