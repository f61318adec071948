"""A host as users see it."""

from __future__ import annotations

from collections.abc import Collection

from holdfast._base.proto_values import duration
from holdfast.v1 import host_pb2
from holdfast_controller.core.fold.host import SELF
from holdfast_controller.core.model.clock import NEVER
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.capacity import types_of
from holdfast_controller.core.model.hosts.host import CondemnedGpu, FailedCheck, GpuFault, Host, Maintenance
from holdfast_controller.core.model.hosts.throttling import throttled_in_words
from holdfast_controller.core.views.gpu_states import GpuState, gpu_states, is_unreconciled
from holdfast_controller.shell.convert.job_to_proto import timestamp

_GPU_STATES = {each: host_pb2.GpuState.Value(f"GPU_STATE_{each.upper()}") for each in GpuState}


def host_to_proto(cluster: Cluster, host: Host, kept: Collection[str]) -> host_pb2.Host:
    """The host with the resources that are reserved on it. ``kept``: ``kept_hosts``."""
    states, idle = gpu_states(cluster, host, kept)
    presence = cluster.presence_of(host.name)
    holder = {uuid: orphan.job for orphan in host.orphans.values() for uuid in orphan.gpus}
    holder |= {uuid: key.rpartition("/")[0] for key, a in host.allocations.items() for uuid in a.gpus}
    held = host.allocations.values()
    problems, reboot = host.gpu_problems(), host.to_reboot
    reasons = [host.cordon_reason] if host.cordon_reason else []
    if reboot is not None:
        reasons.append(f"GPU {reboot.index}: {reboot.in_words}")
    if host.unfit is not None:
        reasons.append(f"{host.unfit.check}: {host.unfit.saw}")
    message = host_pb2.Host(
        name=host.name,
        state=host_pb2.HostState.Value(f"HOST_STATE_{'LOST' if host.lost else presence.liveness.name}"),
        cordoned=host.cordoned or reboot is not None or host.unfit is not None,
        cordon_reason="; ".join(reasons),
        inventory=host_pb2.Inventory(
            cpu_count=host.inventory.cpus,
            memory_bytes=host.inventory.memory_bytes,
            gpus=[
                host_pb2.Gpu(
                    uuid=g.uuid,
                    index=g.index,
                    model=g.model,
                    memory_bytes=g.memory_bytes,
                    problem=problems.get(g.uuid, ""),
                    job_id=holder.get(g.uuid, ""),
                    faults=_faults(host.condemned.get(g.uuid)),
                    state=_GPU_STATES[states.get(g.uuid, idle)],
                )
                for g in host.inventory.gpus
            ],
            max_workers=host.inventory.max_workers,
            gpu_problem=host.inventory.gpu_problem,
            accounts=not host.inventory.no_accounts,
            accounts_problem=host.inventory.no_accounts,
            containers=not host.inventory.no_containers,
            containers_problem=host.inventory.no_containers,
            traits=host.inventory.traits,
        ),
        address=host.address,
        agent_version=host.agent_version,
        boot_id=host.boot_id,
        job_ids=dict.fromkeys(key.rpartition("/")[0] for key in host.allocations),
        cpu_reserved=sum(a.cpus for a in held),
        memory_reserved_bytes=sum(a.memory_mb for a in held) << 20,
        workers=len(host.allocations),
        labels=host.labels,
        draining=host.draining,
        drained=host.drained,
        refused=host.refused,
        going_down=host.going_down,
        throttled=throttled_in_words(host, presence.last_seen_wall),
        cordoned_by=host.cordoned_by or (SELF if reboot is not None or host.unfit is not None else ""),
        spare=cluster.spares.get(host.name, ""),
        machine_types=types_of(host, cluster.machine_types),
        in_doubt=is_unreconciled(cluster, host),
        strange_work=[
            host_pb2.StrangeWork(
                job_id=orphan.job,
                worker=orphan.worker,
                generation=orphan.generation,
                gpus=orphan.gpus,
                since=timestamp(orphan.since),
            )
            for _, orphan in sorted(host.orphans.items())
        ],
        failed_checks=[failed_check_to_proto(failed) for _, failed in sorted(host.failed_checks.items())],
    )
    since = host.cordoned_since or (reboot.faults[0].since if reboot is not None else NEVER)
    since = since or (host.unfit.since if host.unfit is not None else NEVER)
    for field, moment in (
        (message.cordoned_since, since),
        (message.going_down_since, host.going_down_since),
        (message.agent_stopped_at, host.agent_stopped_at),
        (message.silent_since, host.silent_since),
        (message.lost_at, presence.lost_at if message.state == host_pb2.HOST_STATE_SUSPECT else NEVER),
    ):
        if moment:
            field.CopyFrom(timestamp(moment))
    if host.maintenance is not None:
        message.maintenance.CopyFrom(maintenance_to_proto(host.maintenance))
    if host.drain_deadline is not None:
        message.drain_deadline.CopyFrom(timestamp(host.drain_deadline))
    if presence.last_seen_wall:
        message.last_seen.CopyFrom(timestamp(presence.last_seen_wall))
    return message


def _faults(condemned: CondemnedGpu | None) -> list[host_pb2.GpuFault]:
    return [fault_to_proto(fault) for fault in (condemned.faults if condemned is not None else ())]


def fault_to_proto(fault: GpuFault) -> host_pb2.GpuFault:
    """A fault of a GPU."""
    return host_pb2.GpuFault(
        cause=fault.cause,
        repair=host_pb2.GpuRepair.Value(f"GPU_REPAIR_{fault.repair.name}"),
        since=timestamp(fault.since),
        count=fault.count,
    )


def failed_check_to_proto(failed: FailedCheck) -> host_pb2.FailedCheck:
    """A check that fails."""
    return host_pb2.FailedCheck(
        check=failed.check,
        status=host_pb2.CheckStatus.Value(f"CHECK_STATUS_{failed.status.name}"),
        saw=failed.saw,
        why=failed.why,
        fix=failed.fix,
        since=timestamp(failed.since),
        keeps_work_away=failed.holds,
        waived=host_pb2.CheckWaiver.Value(f"CHECK_WAIVER_{failed.waived.name if failed.waived else 'UNSPECIFIED'}"),
        health=host_pb2.HealthClass.Value(f"HEALTH_CLASS_{failed.health.name if failed.health else 'UNSPECIFIED'}"),
    )


def maintenance_to_proto(plan: Maintenance) -> host_pb2.Maintenance:
    """A maintenance window."""
    message = host_pb2.Maintenance(
        start=timestamp(plan.start),
        reason=plan.reason,
        by=plan.by,
        drain=plan.drain,
        at_checkpoint=plan.at_checkpoint,
        begun=plan.begun,
    )
    if plan.end is not None:
        message.end.CopyFrom(timestamp(plan.end))
    if plan.deadline_s is not None:
        message.deadline.CopyFrom(duration(plan.deadline_s))
    return message
