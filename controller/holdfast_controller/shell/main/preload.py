"""Modules that serving takes, loaded beside something else: while a controller stands by, or answers gRPC already."""

from __future__ import annotations

import importlib

from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.store import codec

_REST, _WEB = "holdfast_controller.shell.rest", "holdfast_controller.shell.web"
_ENROLMENT, _METRICS = "holdfast_controller.shell.enrolment", "holdfast._daemon.metrics"
_PAGE = (f"{_WEB}.application", f"{_WEB}.browsers", f"{_WEB}.page_listener", f"{_REST}.shared_answers")
_KEYS = "cryptography.hazmat.backends.openssl.backend"
_ALWAYS = ("encodings.ascii", "encodings.idna")
"""Which certificates and addresses are read with."""


def preload(config: ControllerConfig) -> None:
    """Load what leading with these settings takes, and would else be loaded then. Runs for a second: in a thread."""
    codec.prepare()
    for wanted, names in (
        (config.http_port is not None, (f"{_REST}.routes", f"{_REST}.page_routes")),
        (config.web.listen, _PAGE),
        (config.ca_directory is not None, (f"{_ENROLMENT}.authority", _KEYS)),
        (config.enrolment_listen, (f"{_ENROLMENT}.service", f"{_ENROLMENT}.rotation")),
        (config.oidc.issuer, (f"{_ENROLMENT}.id_tokens",)),
        (config.metrics_listen, (f"{_METRICS}.exposition", f"{_METRICS}.connection")),
        (True, _ALWAYS),
    ):
        for name in names if wanted else ():
            importlib.import_module(name)
