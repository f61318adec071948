"""Checks of a client's needs: settings, a certificate that lasts, a controller that answers and knows the caller."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast import settings
from holdfast._security.tls import TlsFiles
from holdfast.doctor import certificates, looks, reach
from holdfast.doctor.findings import Finding, error, ok
from holdfast.errors import ConfigError
from holdfast.settings import ClientSettings

LOG_IN = "holdfast login …    # with the line that an admin gets from: holdfast user token NAME"


def make() -> tuple[str, list[Finding]]:
    """(the file of the settings, findings)."""
    try:
        path = settings.find()
        found = settings.load(path)
    except ConfigError as problem:
        why = "Every command needs to know where the controller is, and who you are."
        return "client", [error("settings.file", problem.message, why, problem.fix or "Edit the file.", LOG_IN)]
    return str(path), [ok("settings.file", str(path)), *_findings(found)]


def _findings(found: ClientSettings) -> Iterator[Finding]:
    files = TlsFiles(found.ca, found.cert, found.key)
    yield from certificates.check(looks.certificates(files, renews=bool(found.enrolment)), again=LOG_IN)
    address, reached = looks.reach_any(found.controller, files)
    yield from reach.check(reached)
    if reached.failed is None:
        yield known(looks.caller(address, files))


def known(caller: looks.Caller) -> Finding:
    """Whether the controller knows who calls, and lets them do anything."""
    if caller.problem:
        return error(
            "controller.caller", caller.problem, "A certificate alone gives no rights.", caller.fix or LOG_IN
        )
    if not caller.roles:
        why = "Without a role nothing is shown and nothing may be submitted."
        return error("controller.caller", f"{caller.name} has no role", why, f"holdfast user add {caller.name}")
    return ok("controller.caller", f"{caller.name}: {', '.join(caller.roles)}")
