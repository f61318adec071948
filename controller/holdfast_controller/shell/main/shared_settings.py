"""Settings that all controllers of a cluster should have alike: which one leads must not change what is decided."""

from __future__ import annotations

import dataclasses
import hashlib

from holdfast_controller.shell.base.config import ControllerConfig

OWN = frozenset(
    {
        "advertise",
        "audit_days",
        "audit_mb",
        "audit_syslog",
        "bundles",
        "ca",
        "ca_directory",
        "cert",
        "database_url",
        "enrolment_listen",
        "http_port",
        "key",
        "listen",
        "log_file",
        "log_file_mb",
        "log_level",
        "metrics_listen",
        "names",
        "state_dir",
        "web",
    }
)
"""Keys of ``controller.toml`` that are each machine's own."""


def digests(config: ControllerConfig) -> dict[str, str]:
    """A short digest of each setting that is not a machine's own, by its key."""
    keys = [field.name for field in dataclasses.fields(config) if field.name not in OWN]
    return {key: hashlib.sha256(repr(getattr(config, key)).encode()).hexdigest()[:12] for key in keys}
