"""A project's state in fair share as its message."""

from __future__ import annotations

from holdfast.v1 import cluster_pb2
from holdfast_controller.core.model.accounts.quota import Quota
from holdfast_controller.core.scheduling.fair_share.shares import ProjectShare

HOUR_S = 3600.0


def share_to_proto(found: ProjectShare, quota: Quota | None) -> cluster_pb2.ProjectShare:
    """The message of a project's row, and its limits."""
    return cluster_pb2.ProjectShare(
        project=found.project,
        weight=found.weight,
        share=found.state.share,
        used_gpu_hours=found.state.used_s / HOUR_S,
        gpus=found.state.gpus,
        factor=found.state.factor,
        waiting=found.waiting,
        running=found.running,
        gpu_quota=quota.gpus if quota is not None else None,
        running_quota=quota.running_jobs if quota is not None else None,
        waiting_quota=quota.waiting_jobs if quota is not None else None,
        guaranteed_gpus=found.guaranteed,
        borrowed_gpus=found.borrowed,
    )
