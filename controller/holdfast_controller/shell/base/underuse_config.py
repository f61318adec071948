"""Settings of what follows when GPUs stay unused."""

from __future__ import annotations

from holdfast._base.dataclass import dataclass
from holdfast._base.job_file.choices import UnderuseAction, UnderuseShare
from holdfast.errors import ConfigError
from holdfast_controller.core.model.underuse import UnderusePolicy


@dataclass(frozen=True)
class UnderuseConfig:
    """Keys of ``[underuse.NAME]``: for jobs of a project that don't say. "*" is every project without a table."""

    below: int = 5
    """Percent of utilization below which a GPU is unused"""
    duration: float = 7200.0
    """How long; at least a minute"""
    of: str = ""
    """How many of a job's GPUs: ANY or ALL; ANY unless set for NOTIFY, ALL for PAUSE and STOP"""
    action: str = "NOTIFY"
    """NOTIFY, PAUSE or STOP; OFF: they are not looked for"""

    def check(self, place: str) -> None:
        """Raises ``ConfigError`` for a word or a number that is none of these; ``place`` is the table's name."""
        if not 1 <= self.below <= 100:
            raise ConfigError(f"{place}.below is {self.below}.", fix="Write a percentage, 1 to 100.")
        if self.duration < 60:
            raise ConfigError(f"{place}.duration is {self.duration:.12g} s.", fix="Write 1m or more, such as 2h.")
        if self.of and self.of not in UnderuseShare.__members__:
            raise ConfigError(f"{place}.of is {self.of!r}.", fix="Write ANY or ALL.")
        if self.action not in UnderuseAction.__members__:
            raise ConfigError(f"{place}.action is {self.action!r}.", fix="Write NOTIFY, PAUSE, STOP or OFF.")

    @property
    def policy(self) -> UnderusePolicy:
        """The same as the core takes it."""
        action = UnderuseAction[self.action]
        of = UnderuseShare[self.of] if self.of else action.usual_share
        return UnderusePolicy(action, self.below, self.duration, of)
