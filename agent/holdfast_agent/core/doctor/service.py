"""The agent's unit and the agent that runs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast.doctor.findings import Finding, error, needs_root, ok, warning

UNIT = "holdfast-agent.service"
_MUST = {
    "KillMode": (
        "process",
        "A stop or an upgrade of the agent kills the workers that are not in scopes of their own.",
    ),
    "Delegate": ("yes", "systemd may move workers between cgroups behind the agent's back."),
}


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """Facts on the agent's service. ``unit`` holds the properties that systemd shows, empty where it knows no unit."""

    systemd: bool
    installed: str
    """The version of this program."""
    unit: Mapping[str, str] = field(default_factory=dict)
    running: str = ""
    """The version of the agent that answers; empty where none does."""
    denied: bool = False
    """There is one, and only root may ask it."""
    connected: bool = False


def check(facts: ServiceFacts) -> Iterator[Finding]:
    """Check the systemd unit, then the running agent."""
    yield _unit(facts)
    yield _running(facts)


def _unit(facts: ServiceFacts) -> Finding:
    unit = facts.unit
    if not facts.systemd:
        return ok("service.unit", "no systemd here: something else has to start the agent again when it ends")
    if unit.get("LoadState") != "loaded":
        why = "Nothing starts the agent at boot, nor when it dies."
        fix = (
            "cp deploy/systemd/* /etc/systemd/system/ && systemctl daemon-reload",
            f"systemctl enable --now {UNIT}",
        )
        return warning("service.unit", f"systemd knows no {UNIT}", why, *fix)
    for key, (wanted, why) in _MUST.items():
        if unit.get(key, wanted) != wanted:
            saw = f"{key}={unit[key]} in the unit's settings"
            return error("service.unit", saw, why, f"systemctl edit {UNIT}", f"  [Service] {key}={wanted}")
    if unit.get("NeedDaemonReload") == "yes":
        why = "Its file has changed since, and what systemd goes by is the old one."
        return warning(
            "service.unit", "the unit's file is newer than what is loaded", why, "systemctl daemon-reload"
        )
    if unit.get("UnitFileState") not in ("enabled", "enabled-runtime", "static", "alias"):
        state = unit.get("UnitFileState") or "not enabled"
        return warning(
            "service.unit", f"the unit is {state}", "After a reboot no agent runs.", f"systemctl enable {UNIT}"
        )
    return ok("service.unit", f"{unit.get('UnitFileState')}, {unit.get('ActiveState')}")


def _running(facts: ServiceFacts) -> Finding:
    if facts.denied:
        return needs_root("service.agent", "only root may ask the agent")
    if not facts.running:
        why = "Workers here keep running, but the controller does not hear from them."
        fix = (f"systemctl start {UNIT}", f"journalctl -u {UNIT} -n 50")
        return warning("service.agent", "no agent runs on this state_dir", why, *fix)
    if facts.running != facts.installed:
        saw = f"the agent that runs is {facts.running}, {facts.installed} is installed"
        mend = f"systemctl restart {UNIT}    # workers run on"
        return warning("service.agent", saw, "Fixes made since then are not in force.", mend)
    if not facts.connected:
        why = "The host takes no work; see controller.*."
        return warning(
            "service.agent", f"{facts.running} runs, without a controller", why, f"journalctl -u {UNIT} -n 50"
        )
    return ok("service.agent", f"{facts.running} runs, and is connected")
