"""The order by which a shim starts a generation, and what this host can give it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from holdfast._base.secret import Secret
from holdfast._session.reports import WorkerId
from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.core.model.launch import RankLaunch
from holdfast_agent.core.worker.actions import LaunchRanks
from holdfast_agent.shell.cgroups.cgroups import Cgroups, most_pids
from holdfast_agent.shell.cgroups.scopes import Scopes
from holdfast_agent.shell.config import Config
from holdfast_agent.shim.walls.namespaces import SHM


@dataclasses.dataclass(frozen=True, slots=True)
class Means:
    """The host's means for its workers (fresh /dev/shm, cgroups, scopes), and its admin's labels and umask."""

    private_shm: bool = False
    cgroups: Cgroups = dataclasses.field(default_factory=lambda: Cgroups(""))
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    scopes: Scopes = dataclasses.field(default_factory=Scopes)
    umask: int = 0o022

    def cgroup(self, key: WorkerId, shim_pid: int) -> str:
        """The cgroup of a worker: in its scope where it has one. Empty without cgroups."""
        return self.cgroups.root and (self.scopes.directory(key, shim_pid) or self.cgroups.directory(key))

    def left(self, key: WorkerId, generation: int) -> str:
        """The cgroup that a generation without a shim may have left something in; empty without cgroups."""
        scope = self.scopes.left(key)
        return f"{scope}/g{generation}" if scope else self.cgroups.generation(key, generation)


NO_SECRETS: Mapping[str, Secret] = {}


def launch_order(
    action: LaunchRanks,
    user: WorkerUser,
    means: Means,
    shim_pid: int = 0,
    secrets: Mapping[str, Secret] = NO_SECRETS,
) -> dict[str, Any]:
    """See docs/internals/shim-protocol.md; ``secrets`` in the clear. Raises ``KeyError`` for a missing one."""
    return {
        "op": "launch",
        "generation": action.generation,
        "ranks": [_rank(rank, secrets) for rank in action.ranks],
        "uid": user.uid,
        "gid": user.gid,
        "groups": user.groups,
        "umask": means.umask,
        "core_bytes": 0,
        "gpus": action.gpus,
        "cgroup": means.cgroup(action.key, shim_pid),
        "memory_bytes": action.memory_mb << 20,
        "pids": most_pids(),
        **_fence(action),
        "container": _container(action),
        **({"warm": dataclasses.asdict(action.warm)} if action.warm else {}),
        # A program that is started out of /dev/shm has to find itself there.
        "private_shm": means.private_shm and not any(_in_shm(path) for path in _paths(action)),
    }


def why_shm_is_shared(settings: Config) -> str:
    """Why ranks use this host's own /dev/shm; empty where each job gets a fresh one, if the kernel allows it."""
    if not settings.private_shm:
        return "private_shm = false"
    if os.geteuid() != 0:
        return "the agent is not root"
    for path in (settings.state_dir, settings.log_dir):
        if _in_shm(str(path.resolve())):
            return f"{path} lies in it"
    return ""


def _rank(rank: RankLaunch, secrets: Mapping[str, Secret]) -> dict[str, Any]:
    order = vars(rank) | {"binding": dataclasses.asdict(rank.binding) if rank.binding else None}
    values = {name: secrets[name].reveal().decode("utf-8", "surrogateescape") for name in order.pop("secrets")}
    return order | {"env": rank.env | values}


def _fence(action: LaunchRanks) -> dict[str, Any]:
    """The deadline; with peers inside their part, since a shim of an earlier release would leave them out of it."""
    fence = {"fence_s": action.fence_s, "fence_deadline": action.fence_deadline_s}
    return {"peers": dataclasses.asdict(action.peers) | fence} if action.peers else fence


def _container(action: LaunchRanks) -> dict[str, int] | None:
    held = action.container
    return {"pid": held.pid, "start_ticks": held.start_ticks} if held else None


def _paths(action: LaunchRanks) -> set[str]:
    return {path for rank in action.ranks for path in (rank.cwd, rank.argv[0])}


def _in_shm(path: str) -> bool:
    return PurePath(path).is_relative_to(SHM)
