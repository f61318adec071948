"""Settings of machine types: classes of hosts that jobs may ask for by name."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast._base.dataclass import dataclass
from holdfast._base.job_file.label_match import MATCH_FIX, contradiction, read_match
from holdfast.errors import ConfigError
from holdfast_controller.core.model.hosts.machine_types import MachineType

MOST_CHARS = 256
MOST_TYPES = 200
_MOST = {"gpu_count": 1024, "cpus": 65_536, "memory_mb": 1 << 30}


@dataclass(frozen=True)
class MachineTypeConfig:
    """Keys of ``[machine_types.NAME]``: the hosts on which workers run whose ``machineType`` has that name."""

    match: str = ""
    """Conditions on the hosts' labels, such as "gpu in (h100,h200),!old", as in ``hostSelector``"""
    gpus: str = ""
    """Model of GPUs, as jobs name it"""
    gpu_count: int = 0
    """GPUs, of that model where one is named, that a host has at least; MIG instances aren't counted"""
    cpus: int = 0
    """Cores that it has at least"""
    memory_mb: int = 0
    """MiB of memory that it has at least"""


def check_machine_types(tables: Mapping[str, MachineTypeConfig]) -> None:
    """Raise ``ConfigError`` for a name, a condition or a number that can't be."""
    if len(tables) > MOST_TYPES:
        fix = f"Declare {MOST_TYPES} at most."
        raise ConfigError(f"machine_types has {len(tables)} tables.", fix=fix)
    for name, table in tables.items():
        place = f"machine_types.{name[:64]}"
        if not name.isprintable() or not 0 < len(name) <= MOST_CHARS or name != name.strip():
            raise ConfigError(f"{place!r} is no name.", fix=f"Write 1 to {MOST_CHARS} characters.")
        check_match(f"{place}.match", table.match)
        for number, most in _MOST.items():
            if not 0 <= getattr(table, number) <= most:
                problem = f"{place}.{number} is {getattr(table, number)}."
                raise ConfigError(problem, fix=f"Write 0 to {most:,}.")
        if table == MachineTypeConfig():
            fix = "Say which hosts: by match, gpus, gpu_count, cpus or memory_mb."
            raise ConfigError(f"{place} would be every host there is.", fix=fix)


def check_match(place: str, text: str) -> None:
    """Raise ``ConfigError`` for conditions on labels that can't be read, or hold for no host."""
    try:
        key = contradiction(read_match(text))
    except ValueError as error:
        raise ConfigError(f"{place}: {error}.", fix=f"{MATCH_FIX[0].upper()}{MATCH_FIX[1:]}.") from None
    if key:
        problem = f"{place} holds for no host: what is asked of the label {key} excludes each other."
        raise ConfigError(problem, fix="Remove one of the conditions on it.")


def machine_types_of(tables: Mapping[str, MachineTypeConfig]) -> tuple[MachineType, ...]:
    """The same as the core takes them, in the order of the file."""
    return tuple(
        MachineType(name, read_match(each.match), each.gpus, each.gpu_count, each.cpus, each.memory_mb)
        for name, each in tables.items()
    )
