"""Rules for jobs that don't say, by the settings at their submission."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast._base.job_file.choices import HangAction, UnderuseAction
from holdfast._base.projects import EVERY_PROJECT
from holdfast.errors import InvalidSpec, Violation
from holdfast.spec import DisconnectPolicy, Placement, PlacementMode, Underuse
from holdfast_controller.core.model.hosts.locality import Locality, Segments
from holdfast_controller.core.model.hosts.machine_types import MachineType
from holdfast_controller.core.model.underuse import UnderusePolicy
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.base.machine_types_config import machine_types_of


@dataclass(frozen=True)
class JobDefaults:
    """Answers to hangs, to hosts that are cut off, and by project to GPUs that stay unused."""

    hang_action: HangAction = HangAction.NOTIFY
    disconnect_policy: DisconnectPolicy = DisconnectPolicy.KEEP
    underuse: Mapping[str, UnderusePolicy] = field(default_factory=dict)
    topology: tuple[str, ...] = ()
    """Keys of labels that name the levels of the network, from the outermost on."""
    machine_types: tuple[MachineType, ...] = ()

    @classmethod
    def of(cls, config: ControllerConfig) -> JobDefaults:
        """The defaults that the settings name."""
        underuse = {project: table.policy for project, table in config.underuse.items()}
        policy = DisconnectPolicy[config.disconnect_policy]
        types = machine_types_of(config.machine_types)
        return cls(HangAction[config.hang_action], policy, underuse, tuple(config.topology), types)

    def underuse_policy(self, asked: Underuse, project: str) -> UnderusePolicy | None:
        """A job's own wishes where it has some, else those of its project; None where GPUs are not looked at."""
        usual = self.underuse.get(project) or self.underuse.get(EVERY_PROJECT) or UnderusePolicy()
        action, of = usual.action, usual.of
        if asked.action is not None:
            action = asked.action
            of = usual.of if action is usual.action else action.usual_share
        if asked.of is not None:
            of = asked.of
        if action is UnderuseAction.OFF:
            return None
        return UnderusePolicy(action, asked.below or usual.below_pct, asked.duration or usual.duration_s, of)

    def locality(self, asked: Placement, workers: int, gpus: int) -> Locality | None:
        """How near a job's workers are placed: as it asks, else as near as they can be; None where nothing is to do.

        Raises ``InvalidSpec`` for levels that the cluster doesn't have.
        """
        segment, place = asked.segment, "jobSpec.scheduling.placement"
        named = {f"{place}.within": asked.within, f"{place}.segment.within": segment.within if segment else ""}
        wrong = [
            self._unknown(where, level) for where, level in named.items() if level and level not in self.topology
        ]
        required = asked.mode is PlacementMode.REQUIRED
        if required and not asked.within:
            fix = "name the level, such as rack, in which all workers have to be"
            wrong.append(Violation(f"{place}.within", "is required by the mode REQUIRED", fix))
        if wrong:
            raise InvalidSpec(wrong)
        if segment and asked.within and self.topology.index(segment.within) < self.topology.index(asked.within):
            problem = f"{segment.within} lies outside of {asked.within}, which all workers have to be in"
            raise InvalidSpec([Violation(f"{place}.segment.within", problem, "name that level, or one further in")])
        if workers < 2 or not self.topology or not (gpus or asked.within or segment):
            return None
        within = asked.within or (segment.within if segment else self.topology[-1])
        segments = Segments(segment.size, segment.within) if segment and segment.size > 1 else None
        return Locality(self.topology, within, required, segments)

    def machines(self, name: str, pool: int) -> tuple[MachineType, ...]:
        """The class of hosts that a pool asks for by name; none where it names none, or none are declared.

        Raises ``InvalidSpec`` for a name that no class has.
        """
        if not name or not self.machine_types:
            return ()
        found = tuple(each for each in self.machine_types if each.name == name)
        if not found:
            known = [each.name for each in self.machine_types]
            more = f" (and {len(known) - 10} more)" if len(known) > 10 else ""
            where = f"jobSpec.workerPoolSpecs[{pool}].machineSpec.machineType"
            problem = f"{name} is no machine type of the cluster"
            fix = f"use one of {', '.join(known[:10])}{more}, or leave it out"
            raise InvalidSpec([Violation(where, problem, fix)])
        return found

    def _unknown(self, where: str, level: str) -> Violation:
        if not self.topology:
            fix = "leave it out, or have an admin name the levels: topology in controller.toml"
            return Violation(where, "names a level, and the cluster has none", fix)
        levels = ", ".join(self.topology)
        return Violation(where, f"{level} is no level of the cluster's topology", f"use one of {levels}")
