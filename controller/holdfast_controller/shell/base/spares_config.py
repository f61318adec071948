"""Settings of the hosts that are kept back for jobs that lose one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast._base.dataclass import dataclass
from holdfast._base.job_file.label_match import read_match
from holdfast.errors import ConfigError
from holdfast_controller.core.model.hosts.spares import SpareRule
from holdfast_controller.shell.base.machine_types_config import check_match

MOST_HOSTS = 10_000
MOST_CHARS = 64


@dataclass(frozen=True)
class SparesConfig:
    """Keys of ``[spares.NAME]``: hosts that are kept back for jobs that lose one, and lent to SPOT jobs meanwhile."""

    hosts: int = 1
    """How many are kept"""
    gpus: str = ""
    """Model that their GPUs have, as jobs name it; any host without it"""
    per: str = ""
    """Level of ``topology``: so many in each of its domains; in the whole cluster without it"""
    match: str = ""
    """Conditions on their labels, such as "gpu in (h100,h200),!old", as in ``hostSelector``; any host without it"""


def check_spares(tables: Mapping[str, SparesConfig], levels: Sequence[str]) -> None:
    """Raise ``ConfigError`` for a number of hosts, a name, a level or a condition that can't be."""
    for name, table in tables.items():
        place = f"spares.{name[:MOST_CHARS]}"
        if not name.isprintable() or not 0 < len(name) <= MOST_CHARS:
            raise ConfigError(f"{place!r} is no name.", fix=f"Write 1 to {MOST_CHARS} characters.")
        if not 1 <= table.hosts <= MOST_HOSTS:
            fix = f"Write a number of hosts, 1 to {MOST_HOSTS:,}, or leave the table out."
            raise ConfigError(f"{place}.hosts is {table.hosts}.", fix=fix)
        if table.per and table.per not in levels:
            known = f"Write one of {', '.join(levels)}." if levels else "Name the levels: topology, above."
            raise ConfigError(f"{place}.per is {table.per!r}, which is no level of topology.", fix=known)
        check_match(f"{place}.match", table.match)


def rules_of(tables: Mapping[str, SparesConfig], levels: Sequence[str]) -> tuple[SpareRule, ...]:
    """The same as the core takes them, in the order of the file."""
    return tuple(
        SpareRule(
            name,
            table.hosts,
            table.gpus,
            tuple(levels[: levels.index(table.per) + 1]) if table.per else (),
            read_match(table.match),
        )
        for name, table in tables.items()
    )
