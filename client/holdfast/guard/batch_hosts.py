"""Which hosts PBS, LSF or Flux have given to the job of which this process is the script, or its only program. Pure.

The first two start no process on any other host: the guard logs in to them, as with ``--hosts``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

from holdfast._base.dataclass import dataclass
from holdfast.errors import ConfigError
from holdfast.guard import allocation
from holdfast.guard.logins import Login, logins

_FILES = ("PBS_NODEFILE", "LSB_DJOB_HOSTFILE")
"""Name a file with a host on each line, once for each slot."""
_COUNTED = "LSB_MCPU_HOSTS"
"""Each host, and how many slots it has."""


@dataclass(frozen=True, slots=True)
class BatchHosts:
    """The hosts of a scheduler's job, more than one."""

    variable: str
    """The variable that says it."""
    logins: tuple[Login, ...]


def logins_in(environ: Mapping[str, str], read: Callable[[str], str], hostname: str) -> BatchHosts | None:
    """The hosts that the environment has this guard log in to; None: no others, or it is a task of a launcher's.

    ``read`` gives the text of a file, or raises ``OSError``: the file is on the job's first host alone. Raises
    ``ConfigError`` for a list without a host, and on another of the hosts than the first.
    """
    named = None if allocation.is_launched(environ) else _named(environ, read)
    if named is None:
        return None
    variable, lines = named
    if not lines.split():
        fix = f"To guard this host alone: {variable}= holdfast guard -- COMMAND"
        raise ConfigError(f"{variable} names no host: its file is empty.", fix=fix)
    found = logins("", lines)
    short = [each.name.partition(".")[0] for each in found]
    if hostname.partition(".")[0] in short[1:]:  # something has started the guard on each
        raise ConfigError(
            f"{hostname} is not the first of the {len(found)} hosts in {variable}, which is {found[0].name}.",
            fix="Start one guard, on the first, which logs in to the others; or have mpirun -N 1 start one on each.",
        )
    return BatchHosts(variable, found) if len(found) > 1 else None


def _named(environ: Mapping[str, str], read: Callable[[str], str]) -> tuple[str, str] | None:
    """The variable that names hosts, and their names as in a file."""
    for variable in _FILES:
        if name := environ.get(variable):
            with contextlib.suppress(OSError):
                return variable, read(name)
    words = environ.get(_COUNTED, "").split()
    return (_COUNTED, "\n".join(words[::2])) if words else None


def beside_flux_script(environ: Mapping[str, str], ranks: int, size: Callable[[], str]) -> str:
    """Say how many hosts of a Flux job are left out by a guard of so many ranks in its script; empty for none.

    ``size`` gives how many the job has, as Flux says it, or nothing.
    """
    if not environ.get("FLUX_URI") or allocation.is_launched(environ):
        return ""
    text = size()
    hosts = int(text) if text.isdecimal() and len(text) < 10 else 0
    if hosts < 2:
        return ""
    runs = "one rank" if ranks == 1 else f"{ranks} ranks"
    return (
        f"Flux has given this job {hosts} hosts, and the guard runs {runs}, on this host alone. "
        f"For all: flux run -N{hosts} --tasks-per-node=1 holdfast guard -- …"
    )
