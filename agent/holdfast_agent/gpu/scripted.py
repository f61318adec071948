"""Signals of GPUs that don't exist, as a script says: for tests and demonstrations on machines without any.

The script is a JSON file, read again at every reading: an object from UUID (or ``"*"`` for all others) to what that
GPU does, with any of ``util_pct``, ``memory_util_pct``, ``power_w``, ``link_bytes_s``, ``sm_pct``,
``memory_used_bytes``, ``temperature_c``, ``sm_clock_mhz``, ``throttle``, ``lost``, ``problem`` and ``xid`` (reported
once, when it appears). Counters grow at the rates that it names. A GPU that it doesn't name has no signals; a missing
file names none. ``{"blind": "why"}`` makes all of them unreadable.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holdfast_agent.core.gpu.signals import GpuSignals, Xid

_KEYS = frozenset(
    {
        *("util_pct", "memory_util_pct", "power_w", "link_bytes_s", "lost", "problem", "xid"),
        *("sm_pct", "memory_used_bytes", "temperature_c", "sm_clock_mhz", "throttle"),
    }
)


class BadScript(Exception):
    """The script can't be read. ``str()`` says why."""


class SignalScript:
    """One script, and the counters that have grown by it."""

    def __init__(self, path: Path, monotonic: Callable[[], float]) -> None:
        self._path = path
        self._monotonic = monotonic
        self._read_at: float | None = None
        self._energy_j: dict[str, float] = {}
        self._links: dict[str, float] = {}
        self._xids: dict[str, int] = {}

    def signals(self, uuids: Sequence[str]) -> tuple[tuple[GpuSignals, ...], list[Xid]]:
        """Signals that the script states for these devices, and errors that are new. Raises ``BadScript``."""
        said = self._load()
        if isinstance(said.get("blind"), str):
            raise BadScript(said["blind"])
        now = self._monotonic()
        elapsed_s = 0.0 if self._read_at is None else now - self._read_at
        self._read_at = now
        gpus: list[GpuSignals] = []
        xids: list[Xid] = []
        for uuid in uuids:
            about = said.get(uuid, said.get("*", {}))
            try:
                gpus.append(self._gpu(uuid, about, elapsed_s))
                xids += self._xid(uuid, about)
            except (TypeError, ValueError, AttributeError) as error:
                raise BadScript(f"{self._path}: {uuid}: {error}") from error
        return tuple(gpus), xids

    def _load(self) -> dict[str, Any]:
        try:
            said = json.loads(self._path.read_text())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise BadScript(f"{self._path}: {error}") from error
        if not isinstance(said, dict):
            raise BadScript(f"{self._path}: no object")
        return said

    def _gpu(self, uuid: str, about: dict[str, Any], elapsed_s: float) -> GpuSignals:
        if unknown := about.keys() - _KEYS:
            raise ValueError(f"unknown {', '.join(sorted(unknown))}")
        energy = links = None
        if "power_w" in about:
            energy = self._energy_j[uuid] = self._energy_j.get(uuid, 0.0) + float(about["power_w"]) * elapsed_s
        if "link_bytes_s" in about:
            links = self._links[uuid] = self._links.get(uuid, 0.0) + float(about["link_bytes_s"]) * elapsed_s
        return GpuSignals(
            uuid,
            energy_mj=None if energy is None else int(energy * 1e3),
            util_pct=_share(about, "util_pct"),
            memory_util_pct=_share(about, "memory_util_pct"),
            pcie_bytes=None if links is None else int(links),
            sm_pct=_share(about, "sm_pct"),
            memory_used_bytes=_whole(about, "memory_used_bytes"),
            temperature_c=_share(about, "temperature_c"),
            sm_clock_mhz=_share(about, "sm_clock_mhz"),
            throttle=_whole(about, "throttle"),
            lost=bool(about.get("lost", False)),
            problem=str(about.get("problem", "")),
        )

    def _xid(self, uuid: str, about: dict[str, Any]) -> list[Xid]:
        number = about.get("xid")
        if number is None:
            self._xids.pop(uuid, None)
            return []
        known, self._xids[uuid] = self._xids.get(uuid), int(number)
        return [] if known == int(number) else [Xid(uuid, int(number))]


def _share(about: dict[str, Any], key: str) -> float | None:
    return float(about[key]) if key in about else None


def _whole(about: dict[str, Any], key: str) -> int | None:
    return int(about[key]) if key in about else None
