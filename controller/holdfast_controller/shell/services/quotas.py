"""Quotas as calls of ``ClusterService`` take and answer them."""

from __future__ import annotations

from holdfast._base.projects import EVERY_PROJECT
from holdfast.v1 import cluster_pb2
from holdfast_controller.core.access.rules import Registry
from holdfast_controller.core.model.accounts.quota import USER, Quota
from holdfast_controller.core.scheduling.fair_share.set_quotas import QuotaState, quota_states
from holdfast_controller.core.step.share_commands import QuotaAsked
from holdfast_controller.shell.driver import Driver

_LIMITS = ("gpus", "running_jobs", "waiting_jobs", "max_priority")


async def list_quotas(driver: Driver, registry: Registry, caller: str) -> cluster_pb2.ListQuotasResponse:
    """Projects that the caller may see, and the caller's own; who may see all projects sees all users' too."""
    seen = registry.seen(caller)
    everything = EVERY_PROJECT in seen
    everybodys = (EVERY_PROJECT, USER + EVERY_PROJECT, USER + caller)
    found = quota_states(
        driver.cluster,
        driver.reactor.policies.quotas,
        lambda holder: everything or holder in everybodys or holder in seen,
    )
    answer = cluster_pb2.ListQuotasResponse(quotas=[_to_proto(each, registry) for each in found])
    await driver.settled()
    return answer


async def set_quota(
    driver: Driver, registry: Registry, by: str, request: cluster_pb2.SetQuotaRequest
) -> cluster_pb2.SetQuotaResponse:
    """Set limits, or take them back; the answer has those that count now."""
    holder = USER + request.user if request.HasField("user") else request.project
    limits = _from_proto(request.limits)
    await driver.ask(lambda token: QuotaAsked(token, by, holder, limits, request.clear))
    found = quota_states(driver.cluster, driver.reactor.policies.quotas, lambda name: name == holder)
    return cluster_pb2.SetQuotaResponse(quota=_to_proto(found[0], registry) if found else None)


def _from_proto(limits: cluster_pb2.QuotaLimits) -> Quota:
    return Quota(**{field.name: value for field, value in limits.ListFields()})


def _limits(quota: Quota) -> cluster_pb2.QuotaLimits:
    given = {name: limit for name in _LIMITS if (limit := getattr(quota, name)) is not None}
    return cluster_pb2.QuotaLimits(**given)


def _to_proto(found: QuotaState, registry: Registry) -> cluster_pb2.Quota:
    message = cluster_pb2.Quota(
        limits=_limits(found.limits),
        by_command=_limits(found.by_command) if found.by_command is not None else None,
        gpus=found.gpus,
        running_jobs=found.running,
        waiting_jobs=found.waiting,
    )
    if found.holder.startswith(USER):
        message.user = found.holder.removeprefix(USER)
        message.unknown_user = message.user != EVERY_PROJECT and not registry.knows(message.user)
    else:
        message.project = found.holder
    return message
