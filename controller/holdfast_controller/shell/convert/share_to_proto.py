"""A project's state in fair share as its message."""

from __future__ import annotations

from holdfast.v1 import cluster_pb2
from holdfast_controller.core.scheduling.shares import ProjectShare

HOUR_S = 3600.0


def share_to_proto(found: ProjectShare) -> cluster_pb2.ProjectShare:
    """The message of a project's row."""
    return cluster_pb2.ProjectShare(
        project=found.project,
        weight=found.weight,
        share=found.state.share,
        used_gpu_hours=found.state.used_s / HOUR_S,
        gpus=found.state.gpus,
        factor=found.state.factor,
        waiting=found.waiting,
        running=found.running,
    )
