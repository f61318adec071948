"""Answers about a host whose hardware is bad, as no machine that runs these tests has."""

from __future__ import annotations

from typing import Any


def finding(check: str, health: str, since: str, **more: Any) -> dict[str, Any]:
    """A failed check as the controller sends it."""
    return {
        "check": check,
        "status": "ERROR" if health in ("FAIL", "CORDON") else "WARNING",
        "saw": "the port has been down for 3 min; 4 times the link went down within 1 h",
        "why": "Ranks on this host reach the others slowly, or not at all.",
        "fix": ["mlxlink -d mlx5_3:1 --show_counters --port 1 --cable --ddm"],
        "since": since,
        "keepsWorkAway": health in ("FAIL", "CORDON"),
        "health": health,
        "waived": "UNSPECIFIED",
    } | more


def ill(host: dict[str, Any]) -> dict[str, Any]:
    """The host as if its hardware was bad: no machine that runs this has any of it."""
    since = host["lastSeen"]
    fault = {"cause": "Xid 79 (fallen off the bus)", "repair": "REBOOT", "since": since, "count": 2}
    gpus = [host["gpus"][0] | {"problem": "Xid 79 (fallen off the bus)", "faults": [fault]}, *host["gpus"][1:]]
    checks = [
        finding("ib.port/mlx5_3:1", "CORDON", since),
        finding("gpu.hot/GPU 1", "DEGRADED", since),
        finding("disk.errors/nvme0n1", "CORDON", since, waived="ADMIN"),
        finding("gpu.nvlink/GPU 0", "CORDON", since, waived="BRAKE"),
        finding("pcie.nonfatal/0000:3b:00.0", "INFORM", since),
    ]
    fails = {"since": since, "inService": 3_110_400, "failures": 3, "kinds": {"gpu": 1, "lost": 2}}
    fails |= {"mtbf": 1_036_800, "mtbfLow": 432_000, "mtbfHigh": 3_456_000, "repairs": 2, "mttr": 2460}
    fails |= {"mttrLow": 1020, "mttrHigh": 7800, "ratio": 6.04, "ratioLow": 2.31, "surprise": 17.6, "lemon": True}
    cordon = {
        "cordoned": True,
        "cordonReason": f"{checks[0]['check']}: {checks[0]['saw']}",
        "cordonedBy": "holdfast",
    }
    return host | cordon | {"cordonedSince": since, "failedChecks": checks, "gpus": gpus, "reliability": fails}


def past(history: dict[str, Any]) -> dict[str, Any]:
    """The host's history with a finding that is over."""
    newest = history["events"][-1]
    failed = {"kind": "check_failed", "check": finding("ib.flaps/mlx5_3:1", "DEGRADED", newest["time"])}
    passed = {"kind": "check_passed", "check": "ib.flaps/mlx5_3:1"}
    both: tuple[dict[str, Any], ...] = (failed, passed)
    more = [
        newest | {"cursor": newest["cursor"] + number, "message": event["kind"], "event": event}
        for number, event in enumerate(both, 1)
    ]
    return history | {"events": [*history["events"], *more]}
