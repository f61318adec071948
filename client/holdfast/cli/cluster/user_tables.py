"""Users, their roles and the audit log, for people and for programs."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast._base.proto_values import short_name
from holdfast.cli.kit.console import say
from holdfast.cli.kit.table import Cell, Column, write
from holdfast.v1 import access_pb2

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp


def roles_of(user: access_pb2.User) -> list[str]:
    """Each role in words."""
    found = ["admin everywhere (controller.toml)"] if user.configured_admin else []
    if user.HasField("sign_in_end") and not user.grants:
        found.append("none: the sign-in has ended")
    for grant in user.grants:
        where = "everywhere" if grant.project == "*" else f"in {grant.project}"
        found.append(f"{_role(grant.role)} {where}")
    return found


def write_users(users: Sequence[access_pb2.User]) -> None:
    """The table of users."""
    columns = [Column("USER"), Column("ROLES", give=True)]
    rows: list[list[Cell | str]] = [[user.name, ", ".join(roles_of(user))] for user in users]
    if any(user.HasField("sign_in_end") for user in users):
        columns.append(Column("SIGNED IN UNTIL"))
        ends = [_local(user.sign_in_end) if user.HasField("sign_in_end") else "-" for user in users]
        rows = [[*row, end] for row, end in zip(rows, ends, strict=True)]
    if any(user.accounts for user in users):
        columns.append(Column("RUNS AS"))
        rows = [[*row, ", ".join(user.accounts) or "-"] for row, user in zip(rows, users, strict=True)]
    write(columns, rows)


def view_user(user: access_pb2.User) -> dict[str, Any]:
    """A user as plain data."""
    roles = {grant.project: _role(grant.role) for grant in user.grants}
    return {
        "name": user.name,
        "roles": roles,
        "configuredAdmin": user.configured_admin,
        "accounts": list(user.accounts),
        "signInEnd": user.sign_in_end.ToJsonString() if user.HasField("sign_in_end") else None,
    }


def write_caller(caller: access_pb2.GetCallerResponse, now: float) -> None:
    """The page of ``whoami``."""
    left_h = (caller.certificate_end.seconds - now) / 3600
    left = f"{left_h / 24:.0f} days" if left_h >= 48 else f"{max(left_h, 0):.1f} h"
    say(f"{caller.user.name} of the cluster {caller.cluster}")
    say(f"  roles        {', '.join(roles_of(caller.user)) or 'none'}")
    if caller.user.accounts:
        say(f"  runs as      {', '.join(caller.user.accounts)}")
    say(f"  certificate  until {_local(caller.certificate_end)} ({left} left)")


def view_caller(caller: access_pb2.GetCallerResponse) -> dict[str, Any]:
    """The caller as plain data."""
    end = caller.certificate_end.ToJsonString()
    return {"cluster": caller.cluster, **view_user(caller.user), "certificateEnd": end}


def write_audit(entries: Sequence[access_pb2.AuditEntry], *, wide: bool) -> None:
    """The audit log as a table, oldest first."""
    columns = [Column("TIME"), Column("WHO"), *([Column("FROM")] if wide else []), Column("CALL")]
    columns += [Column("ABOUT"), Column("OUTCOME"), Column("WHY", give=not wide)]
    rows: list[list[Cell | str]] = []
    for entry in entries:
        well = entry.outcome == "OK"
        summary = entry.message.startswith(f"{entry.unwritten} more")
        more = f" (and {entry.unwritten} more were refused)" if entry.unwritten and not summary else ""
        start = [_local(entry.time), entry.who or "?", *([entry.peer] if wide else []), entry.call]
        rows.append([*start, entry.target, Cell(entry.outcome, "" if well else "31"), _why(entry.message) + more])
    write(columns, rows)


def view_entry(entry: access_pb2.AuditEntry) -> dict[str, Any]:
    """An entry as plain data."""
    return {
        "time": entry.time.ToJsonString(),
        "who": entry.who,
        "peer": entry.peer,
        "call": entry.call,
        "target": entry.target,
        "outcome": entry.outcome,
        "message": entry.message,
        "unwritten": entry.unwritten,
    }


def _why(message: str) -> str:
    """The problems alone, in one line: a table has no room for the sentence that counts them."""
    problems = message.partition(":\n")[2]
    return "; ".join(line.strip() for line in problems.splitlines()) or message


def _role(role: access_pb2.Role.ValueType) -> str:
    return short_name(access_pb2.Role, role).lower()


def _local(at: Timestamp) -> str:
    return datetime.datetime.fromtimestamp(at.seconds).strftime("%Y-%m-%d %H:%M:%S")
