"""Messages of the contract as the JSON that scripts read.

One rule for what is absent: numbers, times and objects are null, text is empty, lists are empty; no key is
ever left out. Times are RFC 3339 in UTC, durations of the spec are ``"3600s"``, everything measured is a
number of seconds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format

from holdfast.v1 import cluster_pb2, host_pb2, job_pb2, spec_pb2

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.message import Message
    from google.protobuf.timestamp_pb2 import Timestamp

    from holdfast._session.hang_wire import WorkerEvidence

Json = dict[str, Any]

_INT64_FIELDS = ("replicaCount", "memoryMb")


def job(message: job_pb2.CustomJob, *, workers: bool = True) -> Json:
    """A job; without ``workers`` as lists show it."""
    view: Json = {
        "id": message.id,
        "name": f"jobs/{message.id}",
        "displayName": message.display_name,
        "jobSpec": spec(message.job_spec),
        "labels": dict(sorted(message.labels.items())),
        "annotations": dict(sorted(message.annotations.items())),
        "project": message.project or "default",
        "owner": message.owner,
        "account": message.account,
        "state": job_pb2.JobState.Name(message.state),
        "createTime": _time(message, "create_time"),
        "startTime": _time(message, "start_time"),
        "endTime": _time(message, "end_time"),
        "updateTime": _time(message, "update_time"),
        "error": _error(message.error) if message.HasField("error") else None,
        "attempt": message.attempt,
        "generation": message.generation,
        "waitReason": message.wait_reason,
    }
    if workers:
        view["workers"] = [worker(each) for each in message.workers]
    view["recoveries"] = [recovery(each) for each in message.recoveries]
    view["hangs"] = [hang(each) for each in message.hangs]
    view["heldUntil"] = _time(message, "held_until")
    view["health"] = message.health
    view["archiveProblems"] = dict(message.archive_problems)
    return view


def spec(message: spec_pb2.CustomJobSpec) -> Json:
    """A job spec with camelCase keys, as a job file may hold it. What is unset is left out."""
    view: Json = json_format.MessageToDict(message)
    for pool in view.get("workerPoolSpecs", ()):
        for holder in (pool, pool.get("machineSpec", {})):
            for name in _INT64_FIELDS:
                if name in holder:
                    holder[name] = int(holder[name])
    return view


def worker(message: job_pb2.Worker) -> Json:
    """A worker with its ranks and every exit so far."""
    return {
        "name": message.name,
        "host": message.host,
        "state": state_name(job_pb2.WorkerState.Name(message.state)),
        "shimPid": message.shim_pid or None,
        "gpus": list(message.gpus),
        "ranks": [{"rank": r.rank, "localRank": r.local_rank, "pid": r.pid or None} for r in message.ranks],
        "exits": [exit_(each) for each in message.exits],
    }


def exit_(message: job_pb2.Exit) -> Json:
    """How a rank ended. ``exitCode`` and ``signal`` are null when absent, never 0."""
    return {
        "attempt": message.attempt,
        "generation": message.generation,
        "rank": message.rank,
        "exitCode": message.exit_code if message.HasField("exit_code") else None,
        "signal": message.signal if message.HasField("signal") else None,
        "coreDumped": message.core_dumped,
        "reason": job_pb2.ExitReason.Name(message.reason).removeprefix("EXIT_REASON_"),
        "message": message.message,
        "endTime": _time(message, "end_time"),
        "lateExit": exit_(message.late_exit) if message.HasField("late_exit") else None,
    }


def recovery(message: job_pb2.Recovery) -> Json:
    """One recovery; its phases in seconds."""
    phases = message.phases
    return {
        "attempt": message.attempt,
        "generation": message.generation,
        "startedAt": _time(message, "started_at"),
        "endedAt": _time(message, "ended_at"),
        "startType": message.start_type,
        "endReason": message.end_reason,
        "endRelatedTask": message.end_related_task,
        "endRecover": message.end_recover,
        "lostSeconds": _seconds(message.lost) if message.HasField("lost") else None,
        "phases": {
            "detect": _seconds(phases.detect) if phases.HasField("detect") else None,
            "diagnose": _seconds(phases.diagnose) if phases.HasField("diagnose") else None,
            "stop": _seconds(phases.stop) if phases.HasField("stop") else None,
            "start": _seconds(phases.start) if phases.HasField("start") else None,
            "catchUp": _seconds(phases.catch_up) if phases.HasField("catch_up") else None,
        },
    }


def hang(message: job_pb2.Hang) -> Json:
    """A hang from its notice to its end; ``outcome`` is empty while it is open."""
    return {
        "number": message.number,
        "generation": message.generation,
        "since": _time(message, "since"),
        "noticedAt": _time(message, "noticed_at"),
        "diagnosedAt": _time(message, "diagnosed_at"),
        "judgedAt": _time(message, "judged_at"),
        "rule": message.rule,
        "sentence": message.sentence,
        "suspects": list(message.suspects),
        "stacks": message.stacks,
        "outcome": message.outcome,
        "note": message.note,
        "step": _whole(message.step) if message.HasField("step") else None,
    }


def evidence(found: WorkerEvidence) -> Json:
    """What came from one worker; ``evidence`` as it is kept, null where there is none."""
    from holdfast.hang.evidence import evidence_json

    kept = json.loads(evidence_json.encode(found.evidence)) if found.evidence is not None else None
    return {"worker": found.worker, "host": found.host, "problem": found.problem, "evidence": kept}


def event(message: job_pb2.WatchJobResponse) -> Json:
    """One entry of a job's history."""
    return {
        "cursor": message.cursor,
        "type": message.type,
        "time": _time(message, "time"),
        "message": message.message,
        "state": job_pb2.JobState.Name(message.state),
        "data": _whole(json_format.MessageToDict(message.data)),
    }


def host(message: host_pb2.Host) -> Json:
    """A host with what it has and what of it is taken."""
    inventory = message.inventory
    return {
        "name": message.name,
        "state": state_name(host_pb2.HostState.Name(message.state)),
        "cordoned": message.cordoned,
        "cordonReason": message.cordon_reason,
        "cordonedBy": message.cordoned_by,
        "cordonedSince": _time(message, "cordoned_since"),
        "maintenance": _maintenance(message.maintenance) if message.HasField("maintenance") else None,
        "strangeWork": [
            {
                "jobId": work.job_id,
                "worker": work.worker,
                "generation": work.generation,
                "gpus": list(work.gpus),
                "since": _time(work, "since"),
            }
            for work in message.strange_work
        ],
        "inDoubt": message.in_doubt,
        "draining": message.draining,
        "drained": message.drained,
        "goingDown": message.going_down,
        "drainDeadline": _time(message, "drain_deadline"),
        "labels": dict(sorted(message.labels.items())),
        "address": message.address,
        "agentVersion": message.agent_version,
        "refused": message.refused,
        "bootId": message.boot_id,
        "lastSeen": _time(message, "last_seen"),
        "cpuCount": inventory.cpu_count,
        "cpuReserved": message.cpu_reserved,
        "memoryBytes": inventory.memory_bytes,
        "memoryReservedBytes": message.memory_reserved_bytes,
        "workers": message.workers,
        "maxWorkers": inventory.max_workers,
        "gpuProblem": inventory.gpu_problem,
        "accounts": inventory.accounts,
        "accountsProblem": inventory.accounts_problem,
        "containers": inventory.containers,
        "containersProblem": inventory.containers_problem,
        "gpus": [
            {
                "uuid": gpu.uuid,
                "index": gpu.index,
                "model": gpu.model,
                "memoryBytes": gpu.memory_bytes,
                "problem": gpu.problem,
                "jobId": gpu.job_id,
            }
            for gpu in inventory.gpus
        ],
        "jobIds": list(message.job_ids),
    }


def status(message: cluster_pb2.GetStatusResponse) -> Json:
    """The cluster as a whole."""
    return {
        "cluster": message.cluster,
        "version": message.version,
        "started": _time(message, "started"),
        "epoch": message.epoch,
        "hosts": dict(sorted(message.hosts.items())),
        "gpus": dict(sorted(message.gpus.items())),
        "jobs": dict(sorted(message.jobs.items())),
        "agents": dict(sorted(message.agents.items())),
        "attention": [
            {
                "kind": cluster_pb2.AttentionKind.Name(each.kind).removeprefix("ATTENTION_KIND_"),
                "subject": each.subject,
                "message": each.message,
                "since": _time(each, "since"),
            }
            for each in message.attention
        ],
        "attentionMore": message.attention_more,
    }


def _maintenance(message: host_pb2.Maintenance) -> Json:
    return {
        "start": _time(message, "start"),
        "end": _time(message, "end"),
        "reason": message.reason,
        "by": message.by,
        "drain": message.drain,
        "deadlineSeconds": message.deadline.seconds if message.HasField("deadline") else None,
        "atCheckpoint": message.at_checkpoint,
        "begun": message.begun,
    }


def state_name(name: str) -> str:
    """``JOB_STATE_RUNNING`` as tables show it: ``RUNNING``."""
    return name.partition("_STATE_")[2] or name


def _error(message: job_pb2.JobError) -> Json:
    return {
        "code": message.code,
        "message": message.message,
        "details": list(message.details),
        "exitCode": message.exit_code if message.HasField("exit_code") else None,
    }


def _time(holder: Message, field: str) -> str | None:
    if not holder.HasField(field):
        return None
    stamp: Timestamp = getattr(holder, field)
    return stamp.ToJsonString()


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9


def _whole(value: Any) -> Any:
    """Numbers of a ``Struct`` are all floats; those that are whole were whole before."""
    match value:
        case dict():
            return {key: _whole(each) for key, each in value.items()}
        case list():
            return [_whole(each) for each in value]
        case float() if value.is_integer():
            return int(value)
        case _:
            return value
