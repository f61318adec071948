"""Fair share: admins give projects weights, and users see how their projects stand."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from holdfast._base import projects
from holdfast.errors import InvalidInput, Violation
from holdfast_controller.core.events.shares import HalfLifeSet, ShareSet
from holdfast_controller.core.model.accounts.quota import USER
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.shares import ShareState
from holdfast_controller.core.step.actions import Refuse, Reply
from holdfast_controller.core.step.commands import ShareAsked
from holdfast_controller.core.step.step import Step

LEAST, MOST = 0.001, 1_000_000.0
"""Weights beyond these are slips of the hand."""
MOST_WEIGHTS = 10_000


@dataclass(frozen=True, slots=True)
class ProjectShare:
    """A project's row: ``weight`` is None where it has none of its own."""

    project: str
    weight: float | None
    state: ShareState
    waiting: int
    running: int


def on_share(step: Step, asked: ShareAsked) -> None:
    """Set a project's weight, or clear it. The queue has another order at once."""
    weights = step.cluster.shares.weights
    if (wrong := _violation(asked, weights)) is not None:
        step.do(Refuse(asked.token, InvalidInput([wrong])))
        return
    if weights.get(asked.project) != asked.weight:
        step.emit(ShareSet(at=step.now.wall, project=asked.project, weight=asked.weight, by=asked.by))
        step.capacity_freed = True
    step.do(Reply(asked.token, asked.project))


def _violation(asked: ShareAsked, weights: dict[str, float]) -> Violation | None:
    if not projects.is_project(asked.project):
        return Violation("project", f"must {projects.MUST}", "such as vision")
    if asked.weight is None:
        return None
    if math.isnan(asked.weight) or not LEAST <= asked.weight <= MOST:
        fix = f"use {LEAST:g} to {MOST:,.0f}; a quota of 0 running jobs lets a project run nothing"
        return Violation("weight", f"is {asked.weight:g}", fix)
    if asked.project not in weights and len(weights) >= MOST_WEIGHTS:
        return Violation("project", f"{MOST_WEIGHTS:,} projects have a weight already", "clear some")
    return None


def note_half_life(step: Step) -> None:
    """Put a half-life that the settings have changed into the log: what projects have used is a fold of that."""
    if step.policies.usage_half_life_s != step.cluster.shares.half_life_s:
        step.emit(HalfLifeSet(at=step.now.wall, half_life_s=step.policies.usage_half_life_s))


def project_shares(cluster: Cluster, at: Wall) -> list[ProjectShare]:
    """How each project stands that has a weight, a job that waits or runs, or has used anything; by name."""
    waiting = Counter(cluster.jobs[name].gang.project for name in cluster.queue)
    running = {name: len(use.jobs) for name, use in cluster.holdings.by_holder.items() if not name.startswith(USER)}
    held = {name: cluster.holdings.gpus_of(name) for name in (*waiting, *running)}
    return [
        ProjectShare(name, cluster.shares.weights.get(name), state, waiting[name], running.get(name, 0))
        for name, state in cluster.shares.states(held, at).items()
    ]
