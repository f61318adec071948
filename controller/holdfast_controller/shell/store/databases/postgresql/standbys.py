"""Reports of controllers that stand by: in the names of their connections, since they can't write."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Mapping

import sqlalchemy as sa

from holdfast_controller.shell.store import meta_rows
from holdfast_controller.shell.store.databases.engine import Standby

_NAME, _MOST = "holdfast", 63
"""PostgreSQL cuts a longer name of a connection."""
_REPORT = re.compile(rf"{_NAME}/(\d+)/(\S*) (.*)")
"""Other programs may give a connection of theirs the name that ours begin with."""
_LEADER = "holdfast-leads"
_LEADERS = """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename = current_user
    AND split_part(application_name, '/', 1) = %s AND split_part(split_part(application_name, '/', 2), ' ', 1) = %s"""
_STANDBYS = """SELECT application_name FROM pg_stat_activity WHERE datname = current_database()
    AND usename = current_user AND pid <> pg_backend_pid() AND split_part(application_name, '/', 1) = %s ORDER BY 1"""


def name_of(sequence: int, differing: str) -> str:
    """Name this machine's connection after how far it has read the log, settings that differ, and the machine."""
    return f"{_NAME}/{sequence}/{differing} {socket.gethostname()}"[:_MOST]


def leaders_name(epoch: int) -> str:
    """Name the connection of the controller that has begun ``epoch``."""
    return f"{_LEADER}/{epoch} {socket.gethostname()}"[:_MOST]


def is_connected(database: sa.Connection, epoch: str) -> bool:
    """Whether the controller that has begun ``epoch`` has a connection: the server ends that of one that was killed."""
    return database.exec_driver_sql(_LEADERS, (_LEADER, epoch)).scalar() != 0


def standbys(database: sa.Connection) -> list[Standby]:
    """The controllers of the other connections, by machine, within a transaction that reads."""
    names = map(str, database.exec_driver_sql(_STANDBYS, (_NAME,)).scalars())
    reports = [found.groups() for found in map(_REPORT.fullmatch, names) if found is not None]
    return sorted(Standby(machine, int(sequence), differing) for sequence, differing, machine in reports)


def write_settings(database: sa.Connection, digests: Mapping[str, str]) -> None:
    """Note the settings of the controller that leads, by digest, within its transaction."""
    meta_rows.write(database, meta_rows.SETTINGS, json.dumps(dict(digests), sort_keys=True))


def differing(database: sa.Connection, own: Mapping[str, str]) -> list[str]:
    """Keys of settings that the controller that leads has otherwise; none where it has not noted them."""
    noted = meta_rows.read(database, meta_rows.SETTINGS)
    leaders: dict[str, str] = json.loads(noted) if noted else {}
    return sorted(key for key in own.keys() & leaders.keys() if own[key] != leaders[key])


def in_short(keys: list[str]) -> str:
    """The first key and how many more: a connection's name holds no more."""
    return f"{keys[0][:20]}{f'+{len(keys) - 1}' if len(keys) > 1 else ''}" if keys else ""
