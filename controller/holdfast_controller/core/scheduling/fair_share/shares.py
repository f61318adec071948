"""Fair share: admins give projects weights and guarantees, and users see how their projects stand."""

from __future__ import annotations

import math
from collections import Counter

from holdfast._base import projects
from holdfast._base.dataclass import dataclass
from holdfast.errors import InvalidInput, Violation
from holdfast_controller.core.events.shares import GuaranteeSet, HalfLifeSet, ShareSet
from holdfast_controller.core.model.accounts.quota import USER, Quotas, quota_of
from holdfast_controller.core.model.accounts.shares import ShareState
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.scheduling.fair_share.guarantees import borrowers
from holdfast_controller.core.step.actions import Refuse, Reply
from holdfast_controller.core.step.share_commands import GuaranteeAsked, ShareAsked
from holdfast_controller.core.step.step import Step

LEAST, MOST = 0.001, 1_000_000.0
"""Weights beyond these are slips of the hand."""
MOST_WEIGHTS = 10_000
MOST_GPUS = 1_000_000


@dataclass(frozen=True, slots=True)
class ProjectShare:
    """A project's row: ``weight`` is None where it has none of its own.

    ``guaranteed`` GPUs, 0: none; ``borrowed`` of what it holds, which gives way to claims of others.
    """

    project: str
    weight: float | None
    state: ShareState
    waiting: int
    running: int
    guaranteed: int
    borrowed: int


def on_share_command(step: Step, asked: ShareAsked | GuaranteeAsked) -> None:
    """Set what an admin gives a project."""
    if isinstance(asked, ShareAsked):
        _set_weight(step, asked)
    else:
        _set_guarantee(step, asked)


def _set_weight(step: Step, asked: ShareAsked) -> None:
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
        return Violation("weight", f"is {asked.weight:.12g}", fix)
    if asked.project not in weights and len(weights) >= MOST_WEIGHTS:
        return Violation("project", f"{MOST_WEIGHTS:,} projects have a weight already", "clear some")
    return None


def _set_guarantee(step: Step, asked: GuaranteeAsked) -> None:
    """Guarantee a project GPUs, or take that back. What it claims from others it claims at once."""
    guarantees = step.cluster.shares.guarantees
    if (wrong := _wrong_guarantee(asked, guarantees, step.policies.quotas)) is not None:
        step.do(Refuse(asked.token, InvalidInput([wrong])))
        return
    if guarantees.get(asked.project, 0) != asked.gpus:
        step.emit(GuaranteeSet(at=step.now.wall, project=asked.project, gpus=asked.gpus, by=asked.by))
        step.capacity_freed = True
    step.do(Reply(asked.token, asked.project))


def _wrong_guarantee(asked: GuaranteeAsked, guarantees: dict[str, int], quotas: Quotas) -> Violation | None:
    if not projects.is_project(asked.project):
        return Violation("project", f"must {projects.MUST}", "such as vision")
    if not 0 <= asked.gpus <= MOST_GPUS:
        return Violation("gpus", f"is {asked.gpus}", f"use 1 to {MOST_GPUS:,}, or 0 for no guarantee")
    quota = quota_of(quotas, asked.project)
    if quota is not None and quota.gpus is not None and asked.gpus > quota.gpus:
        fix = f"raise its quota first: holdfast quota set --project {asked.project} --gpus {asked.gpus}"
        return Violation("gpus", f"is {asked.gpus}, and the quota of {asked.project} is {quota.gpus} GPUs", fix)
    if asked.project not in guarantees and len(guarantees) >= MOST_WEIGHTS:
        return Violation("project", f"{MOST_WEIGHTS:,} projects have a guarantee already", "clear some")
    return None


def note_half_life(step: Step) -> None:
    """Put a half-life that the settings have changed into the log: what projects have used is a fold of that."""
    if step.policies.usage_half_life_s != step.cluster.shares.half_life_s:
        step.emit(HalfLifeSet(at=step.now.wall, half_life_s=step.policies.usage_half_life_s))


def project_shares(cluster: Cluster, at: Wall) -> list[ProjectShare]:
    """How each project stands that was given anything, has a job that waits or runs, or has used anything; by name."""
    waiting = Counter(cluster.jobs.whole[name].gang.project for name in cluster.queue)
    running = {name: len(use.jobs) for name, use in cluster.holdings.by_holder.items() if not name.startswith(USER)}
    held = {name: cluster.holdings.gpus_of(name) for name in (*waiting, *running)}
    shares, borrowed = cluster.shares, Counter[str]()
    for name, gpus in borrowers(cluster).items():
        borrowed[cluster.jobs.whole[name].gang.project] += gpus
    return [
        ProjectShare(
            name,
            shares.weights.get(name),
            state,
            waiting[name],
            running.get(name, 0),
            shares.guarantees.get(name, 0),
            borrowed[name],
        )
        for name, state in shares.states(held, at).items()
    ]
