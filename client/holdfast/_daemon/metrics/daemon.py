"""Families that every daemon has, and how their series are read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from holdfast._base.version import __version__
from holdfast._daemon.metrics.series import Series, gauge, histogram
from holdfast._security import certificate
from holdfast._session.protocol import PROTOCOL
from holdfast.errors import ConfigError

BUILD_INFO = gauge("holdfast_build_info", "Always 1; what runs stands in the labels.", "version", "protocol")
CERTIFICATE_END = gauge(
    "holdfast_certificate_end_timestamp_seconds", "When a certificate ends, in seconds since 1970.", "certificate"
)
DISK_FREE = gauge("holdfast_disk_free_bytes", "Free where a directory lies, as far as we may use it.", "directory")
DISK_SIZE = gauge("holdfast_disk_size_bytes", "Size of the file system where a directory lies.", "directory")
STALLS = histogram(
    "holdfast_event_loop_stall_seconds",
    "Stalls of the event loop above 0.1 s, by cause.",
    "cause",
    bounds=(0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
LONGEST_STALL = gauge(
    "holdfast_event_loop_longest_stall_seconds",
    "Longest stall of the event loop since the start, by cause.",
    "cause",
)

FAMILIES = (BUILD_INFO, CERTIFICATE_END, DISK_FREE, DISK_SIZE, STALLS, LONGEST_STALL)


def tell_build(series: Series) -> None:
    """Set the gauge of the release and protocol."""
    series.set(BUILD_INFO, 1.0, __version__, str(PROTOCOL))


def tell_certificate(series: Series, path: Path, name: str = "own") -> None:
    """Set the gauge of a certificate's end. An unreadable one is left out: its alert asks for absence, too."""
    try:
        series.set(CERTIFICATE_END, certificate.ends_at(path), name)
    except ConfigError:
        pass


def tell_disks(series: Series, directories: Iterable[tuple[str, Path]]) -> None:
    """Room on the disks of (name, directory). Blocks as long as the file systems do."""
    for name, path in directories:
        try:
            found = os.statvfs(path)
        except OSError:
            continue
        series.set(DISK_FREE, found.f_bavail * found.f_frsize, name)
        series.set(DISK_SIZE, found.f_blocks * found.f_frsize, name)
