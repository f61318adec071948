"""Fold of fair share: weights, and what projects use."""

from __future__ import annotations

from typing import assert_never

from holdfast_controller.core.events.shares import GuaranteeSet, HalfLifeSet, QuotaSet, ShareEvent, ShareSet
from holdfast_controller.core.model.accounts.shares import FORGOTTEN_GPU_S
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster

LOOKED_OVER = 256
"""Each time that so many more projects are known, those that count for nothing any more are forgotten."""


def fold_shares(cluster: Cluster, event: ShareEvent) -> None:
    """Apply ``event`` to the weights and what projects have used."""
    shares = cluster.shares
    match event:
        case ShareSet():
            shares.weights.pop(event.project, None)
            if event.weight is not None:
                shares.weights[event.project] = event.weight
        case GuaranteeSet():
            shares.guarantees.pop(event.project, None)
            if event.gpus:
                shares.guarantees[event.project] = event.gpus
        case QuotaSet():
            shares.quotas.pop(event.holder, None)
            if event.quota is not None:
                shares.quotas[event.holder] = event.quota
        case HalfLifeSet():
            for project in shares.used:
                charge(cluster, project, event.at)
            shares.half_life_s = event.half_life_s
        case _:
            assert_never(event)


def charge(cluster: Cluster, project: str, at: Wall) -> None:
    """Take in what a project has held, right before that changes; see ``Shares.charge``."""
    shares = cluster.shares
    if project not in shares.used and len(shares.used) % LOOKED_OVER == LOOKED_OVER - 1:
        held = cluster.holdings.by_holder
        for name in [name for name in shares.used if name not in held]:
            if shares.used_s(name, 0, at) < FORGOTTEN_GPU_S:
                del shares.used[name]
    shares.charge(project, cluster.holdings.gpus_of(project), at)
