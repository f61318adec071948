"""Addresses of databases of PostgreSQL, by libpq's rules."""

from __future__ import annotations

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.errors import ConfigError

DEFAULTS = {
    "connect_timeout": "2",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "2000",
    "target_session_attrs": "read-write",
}
"""Of libpq's parameters, unless the address sets them: a server that is gone is noticed in 2 s, and dialled for 2 s."""


def checked(address: str) -> str:
    """The parameters of a connection by libpq's rules, with our defaults. Raises ``ConfigError``."""
    try:
        given = conninfo_to_dict(address)
    except psycopg.ProgrammingError as error:
        raise ConfigError(
            f"database_url can't be read: {first_line(error)}.",
            fix='Write it as libpq does: "postgresql://USER@HOST/DATABASE", the password in a file: "?passfile=FILE".',
        ) from error
    return make_conninfo(**{**DEFAULTS, **{name: str(value) for name, value in given.items() if value is not None}})


def dial(address: str) -> None:
    """See whether a database can be reached with an address. Raises ``ConfigError``."""
    conninfo = checked(address)
    try:
        psycopg.connect(conninfo).close()
    except psycopg.Error as error:
        raise ConfigError(
            f"database_url: {name_of(conninfo)} can't be reached: {first_line(error)}.",
            fix="See whether it runs, lets this machine in, and takes writes: psql with the same address.",
        ) from error


def name_of(conninfo: str) -> str:
    """How sentences call a database: its name and its servers."""
    given = conninfo_to_dict(conninfo)
    hosts, ports = (str(given.get(name) or "").split(",") for name in ("host", "port"))
    both = zip(hosts, ports * len(hosts) if len(ports) == 1 else ports, strict=False)
    servers = (f"{host or 'this machine'}{f':{port}' if port else ''}" for host, port in both)
    return f"PostgreSQL database {given.get('dbname') or given.get('user') or ''} at {' or '.join(servers)}"


def first_line(error: Exception) -> str:
    """The first line of a driver's error, without its stop."""
    cause = getattr(error, "orig", None) or error
    return str(cause).strip().partition("\n")[0].rstrip(".")
