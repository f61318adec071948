"""What a client needs: settings, a certificate that lasts, a controller that answers and knows the caller."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast import settings
from holdfast.doctor import certificates, looks, reach
from holdfast.doctor.findings import Finding, error, ok
from holdfast.errors import ConfigError
from holdfast.settings import ClientSettings
from holdfast.tls import TlsFiles

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
    yield from reach.check(looks.reach(found.controller, files))
