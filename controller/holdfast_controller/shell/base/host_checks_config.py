"""Settings of active checks of hosts."""

from __future__ import annotations

from pathlib import Path

from holdfast._base.dataclass import dataclass
from holdfast.errors import ConfigError
from holdfast_controller.core.model.hosts.measurements import HostChecks

PROGRAM = Path(__file__).with_name("host_check_program.py")
LEAST_S = 3600.0


@dataclass(frozen=True)
class HostChecksConfig:
    """Keys of ``[host_checks]``: hosts that are idle are measured by short jobs, which give way to all others."""

    every: float = 0.0
    """A host is measured so long after the last time, such as "7d", and when it joins, returns or was under suspicion;
    0: only when an admin asks"""
    at_once: int = 5
    """Percent of the hosts that are measured at a time, and two in any case"""
    python: str = "python3"
    """Interpreter on the hosts, or in the image; one that has torch measures GPUs too"""
    image: str = ""
    """Container image in which it runs; on the bare host without it"""

    def check(self) -> None:
        """Raises ``ConfigError`` for a time, a share or a name that can't be."""
        if self.every and self.every < LEAST_S:
            fix = 'Write "1h" or more, such as "7d", or 0.'
            raise ConfigError(f"host_checks.every is {self.every:.12g} s.", fix=fix)
        if not 1 <= self.at_once <= 100:
            raise ConfigError(f"host_checks.at_once is {self.at_once}.", fix="Write a percentage, 1 to 100.")
        if not self.python or not self.python.isprintable() or "$" in self.python:
            fix = 'Write the path of an interpreter, such as "/opt/venv/bin/python".'
            raise ConfigError(f"host_checks.python is {self.python!r}.", fix=fix)

    @property
    def policy(self) -> HostChecks:
        """The same as the core takes it, with the program."""
        usual = HostChecks()
        return HostChecks(
            on=self.every > 0,
            every_s=self.every or usual.every_s,
            at_once_pct=self.at_once,
            python=self.python,
            image=self.image,
            program=PROGRAM.read_text(),
        )
