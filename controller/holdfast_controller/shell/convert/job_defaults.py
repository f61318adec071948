"""Rules for jobs that don't say, by the settings at their submission."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast._base.projects import EVERY_PROJECT
from holdfast.hang.thresholds import Action
from holdfast.spec import DisconnectPolicy, Underuse
from holdfast_controller.core.model.underuse import UnderuseAction, UnderusePolicy, UnderuseShare
from holdfast_controller.shell.base.config import ControllerConfig


@dataclass(frozen=True)
class JobDefaults:
    """Answers to hangs, to hosts that are cut off, and by project to GPUs that stay unused."""

    hang_action: Action = Action.NOTIFY
    disconnect_policy: DisconnectPolicy = DisconnectPolicy.KEEP
    underuse: Mapping[str, UnderusePolicy] = field(default_factory=dict)

    @classmethod
    def of(cls, config: ControllerConfig) -> JobDefaults:
        """The defaults that the settings name."""
        underuse = {project: table.policy for project, table in config.underuse.items()}
        return cls(Action[config.hang_action], DisconnectPolicy[config.disconnect_policy], underuse)

    def underuse_policy(self, asked: Underuse, project: str) -> UnderusePolicy | None:
        """A job's own wishes where it has some, else those of its project; None where GPUs are not looked at."""
        usual = self.underuse.get(project) or self.underuse.get(EVERY_PROJECT) or UnderusePolicy()
        action, of = usual.action, usual.of
        if asked.action is not None:
            action = UnderuseAction[asked.action.name]
            of = usual.of if action is usual.action else action.usual_share
        if asked.of is not None:
            of = UnderuseShare[asked.of.name]
        if action is UnderuseAction.OFF:
            return None
        return UnderusePolicy(action, asked.below or usual.below_pct, asked.duration or usual.duration_s, of)
