"""Faults that are put into a running rank on purpose, for rehearsals: the shim's part, which forks a keeper for each.

The keeper (`fault_keeper`) does it and undoes it: after its time, when the rank ends, when its connection closes, when
the generation is stopped, when the shim dies. Should the keeper itself be killed, the shim undoes what it has done.
"""

from __future__ import annotations

from holdfast_agent.shim.keepers import fork

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast_agent.shim.generation import Generation
    from holdfast_agent.shim.journal import Record

FAULTS = ("kill", "stop", "slow", "disk", "net", "hang")
LONGEST_S = 3600.0


class Order:
    """A fault for a rank. Raises ValueError for one that this shim doesn't know."""

    def __init__(self, message: Record) -> None:
        self.rank = int(message["rank"])
        self.socket = str(message["socket"])
        self.fault = str(message["fault"])
        self.for_s = float(message["for_s"])
        self.speed = int(message["speed"])
        """Percent of the time in which a slowed rank runs."""
        if "/" in self.socket or self.fault not in FAULTS:
            raise ValueError("its socket or its fault")
        if not 0 < self.for_s <= LONGEST_S or not 0 < self.speed < 100:
            raise ValueError("its time or its speed")

    def fork(self, generation: Generation, connection: int) -> str:
        """Fork its keeper, which has the connection; why there is none, or nothing. Raises OSError."""
        rank = next((each for each in generation.live.values() if each.rank == self.rank), None)
        if rank is None:
            return f"rank {self.rank} is not running there"
        if self.fault != "kill" and self.rank in generation.injected.values():
            return f"rank {self.rank} has a fault already; wait until it is over"
        cgroup = generation.cgroup.path if generation.cgroup else ""
        if self.fault == "net" and not cgroup:
            return "its worker has no cgroup, by which its network could be cut (cgroups in agent.toml)"
        from holdfast_agent.shim.rehearsal import fault_keeper

        pid = fork(generation, lambda: fault_keeper.keep(connection, self, rank.pid, cgroup))
        if self.fault != "kill":
            generation.injected[pid] = self.rank
        return ""


def on_keeper_end(generation: Generation, pid: int, status: int) -> None:
    """Undo what a keeper has left that was killed; one that ended by itself has left nothing."""
    number = generation.injected.pop(pid, None)
    if number is None or not status:
        return
    from holdfast_agent.shim.rehearsal import faults

    for rank in generation.live.values():
        if rank.rank == number:
            faults.undo(rank.pid)
