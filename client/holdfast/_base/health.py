"""How much a finding of a host's health matters: what the agent says and the controller acts on."""

from __future__ import annotations

import enum


class Health(enum.Enum):
    """Classes of findings, the worst first."""

    FAIL = "FAIL"
    """Broken: no new work before the host has booted, or an admin has uncordoned it."""
    CORDON = "CORDON"
    """No new work while it stands; it ends by itself."""
    DEGRADED = "DEGRADED"
    """Work runs, though slower or with less margin."""
    INFORM = "INFORM"
    """Worth knowing; admins are not notified."""

    @property
    def keeps_work_away(self) -> bool:
        """Whether a host with such a finding is to get no new work."""
        return self in (Health.FAIL, Health.CORDON)
