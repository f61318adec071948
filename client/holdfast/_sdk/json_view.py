"""Messages of the contract as the JSON that scripts read.

A message is printed field by field, in the order of its ``.proto`` file unless ``_ORDER`` gives another. One rule
for what is absent: numbers, times and objects are null, text is empty, lists are empty; no key is ever left out,
but ``encryptionSpec``, which is the user's as the spec is.
Times are RFC 3339 in UTC, durations of the spec are ``"3600s"``, everything measured is a number of seconds. Values
of an enum lose its prefix (``READY``, not ``HOST_STATE_READY``), but for a job's state.

``json_format`` would print most of that otherwise: 64-bit numbers and durations as text, enum values in full,
absent fields left out or at the end. It prints the job spec, which has to read back as a job file.
"""

from __future__ import annotations

import functools
import json
import math
import operator
from collections.abc import Callable, MutableMapping, MutableSequence
from typing import TYPE_CHECKING, Any, cast

from google.protobuf import json_format
from google.protobuf.timestamp_pb2 import Timestamp

from holdfast._base.proto_values import full_name
from holdfast.v1 import cluster_pb2, host_pb2, job_pb2, schedule_pb2, spec_pb2

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from holdfast._session.hang_wire import WorkerEvidence
    from holdfast.hang.evidence.evidence import Evidence

Json = dict[str, Any]

_ORDER = {
    "CustomJob": "id name displayName jobSpec labels annotations project owner account state createTime startTime"
    " endTime updateTime error attempt generation summary waitReason waitsFor array step stepTotal phase savedStep"
    " expectedEnd spareHosts workers recoveries hangs heldUntil health archiveProblems",
    "Hang": "number generation since noticedAt diagnosedAt judgedAt rule sentence suspects suspectRanks stacks"
    " outcome note step",
    "Recovery": "attempt generation startedAt endedAt startType endReason endRelatedTask endRecover lost phases"
    " related warm inProcessRanks injected",
    "Host": "name state cordoned cordonReason cordonedBy cordonedSince maintenance failedChecks strangeWork inDoubt"
    " draining drained goingDown goingDownSince agentStoppedAt silentSince lostAt drainDeadline labels address"
    " agentVersion refused bootId lastSeen cpuCount cpuReserved memoryBytes memoryReservedBytes workers maxWorkers"
    " gpuProblem spare machineTypes accounts accountsProblem containers"
    " containersProblem gpus jobIds reliability measurements",
    "Gpu": "uuid index model memoryBytes problem jobId state faults",
}
"""By message: its keys, where not all are printed or in another order than declared."""
_COUNTS = {
    "gpu_count": "gpuCount",
    "host_count": "hostCount",
    "recovery_count": "recoveryCount",
    "hang_count": "hangCount",
}
_NOT_IN_ROWS = frozenset({"jobSpec", "annotations", "encryptionSpec", "recoveries", "hangs"})
_NULL_WHEN_ZERO = ("Worker.shimPid", "Rank.pid")
_INT64_FIELDS = ("replicaCount", "memoryMb", "progressTotal")


def job(message: job_pb2.CustomJob, *, workers: bool = True) -> Json:
    """A job; without ``workers`` as lists show it."""
    extra = {
        "name": f"jobs/{message.id}",
        "jobSpec": spec(message.job_spec),
        "project": message.project or "default",
        "state": full_name(job_pb2.JobState, message.state),
    }
    view = _printed(message, **extra)
    if not workers:
        del view["workers"]
    if message.HasField("encryption_spec"):
        view["encryptionSpec"] = json_format.MessageToDict(message.encryption_spec)
    return view


def exit_groups(message: job_pb2.CustomJob) -> Json:
    """Its exits, those that are alike as one."""
    return {"exitGroups": [_printed(each) for each in message.exit_groups]}


def spec(message: spec_pb2.CustomJobSpec) -> Json:
    """A job spec with camelCase keys, as a job file may hold it. What is unset is left out."""
    view: Json = json_format.MessageToDict(message)
    pools = view.get("workerPoolSpecs", ())
    for holder in (view, *pools, *(pool.get("machineSpec", {}) for pool in pools)):
        for name in _INT64_FIELDS:
            if name in holder:
                holder[name] = int(holder[name])
    return view


def recovery(message: job_pb2.Recovery) -> Json:
    """One recovery; its phases in seconds."""
    view = {"lostSeconds" if key == "lost" else key: value for key, value in _printed(message).items()}
    return {**view, "phases": _printed(message.phases)}


def evidence(found: WorkerEvidence) -> Json:
    """Evidence from one worker; ``evidence`` as stored, null if there is none. Ranks of one ``group`` are alike."""
    from holdfast.hang.evidence import evidence_json

    view = {"worker": found.worker, "host": found.host, "problem": found.problem}
    if found.evidence is None:
        return view | {"stacks": [], "evidence": None}
    return view | {"stacks": _stacks(found.evidence), "evidence": json.loads(evidence_json.encode(found.evidence))}


def _stacks(evidence: Evidence) -> list[Json]:
    """The place of each rank's main thread when it was last seen, and the words of its flight recorder."""
    from holdfast.hang.evidence.frames import MEETINGS, place
    from holdfast.hang.evidence.stacks import group_key

    pairs = zip(evidence.ranks, evidence.stacks(0), evidence.stacks(1), strict=True)
    found = [(rank, newer if newer.frames else older) for rank, older, newer in pairs]
    return [
        {
            "rank": rank.rank,
            "group": group_key(stack),
            "place": place(stack.frames) if stack.frames else "",
            "waits": bool(stack.frames) and place(stack.frames) in MEETINGS,
            "moving": rank.process.movement.value,
            "collective": rank.flight.words if rank.flight is not None else "",
            "problem": stack.problem,
        }
        for rank, stack in found
    ]


def event(message: job_pb2.WatchJobResponse) -> Json:
    """One entry of a job's history. ``type`` and ``data`` are as in release 0.1: read ``event``."""
    return {
        "cursor": message.cursor,
        "type": message.type,
        "time": message.time.ToJsonString() if message.HasField("time") else None,
        "message": message.message,
        "state": full_name(job_pb2.JobState, message.state),
        "data": _whole(json_format.MessageToDict(message.data)),
        "event": _kind(message.event),
    }


def _kind(message: job_pb2.JobEvent | host_pb2.HostEvent) -> Json | None:
    """The fields of whichever kind it is, and that kind's name, such as ``rank_exited``; null where it is new."""
    kind = message.WhichOneof("kind")
    return {"kind": kind, **_printed(getattr(message, kind))} if kind is not None else None


def host_event(message: host_pb2.ListedHostEvent) -> Json:
    """One entry of a host's history."""
    return {
        "cursor": message.cursor,
        "time": message.time.ToJsonString() if message.HasField("time") else None,
        "message": message.message,
        "event": _kind(message.event),
    }


def host(message: host_pb2.Host) -> Json:
    """A host with what it has and what of it is taken."""
    view = _printed(message, **_printed(message.inventory))
    for name in ("reliability", "measurements"):
        if not message.HasField(name):
            del view[name]  # in lists, and by a controller of an older release
    return view


def status(message: cluster_pb2.GetStatusResponse) -> Json:
    """The cluster as a whole, without what is stored for each user and project."""
    return {key: value for key, value in _printed(message).items() if key != "stored"}


def plain(message: Message) -> Json:
    """A message that is shown as it is: a hang, a quota, a user, or a list of them."""
    return _printed(message)


def schedule(message: schedule_pb2.Schedule) -> Json:
    """A schedule, with its job where the message has it."""
    return _printed(message, job=job_file(message.job) if message.HasField("job") else None)


def template(message: schedule_pb2.Template) -> Json:
    """A version of a template, with its job where the message has it."""
    return _printed(message, job=job_file(message.job) if message.HasField("job") else None)


def job_file(message: job_pb2.CustomJob) -> Json:
    """A job that was not submitted, as a job file has it."""
    found: Json = {"displayName": message.display_name, "jobSpec": spec(message.job_spec)}
    for key, value in (("labels", message.labels), ("annotations", message.annotations)):
        if value:
            found[key] = dict(value)
    return found | ({"project": message.project} if message.project else {})


def goodput(job_id: str, message: job_pb2.GetGoodputResponse) -> Json:
    """Use of a job's GPU time; ``lines`` add up to ``totalMs``."""
    return {
        "job": job_id,
        "unit": "rank" if message.ranks else "GPU",
        "since": message.since.ToJsonString() if message.HasField("since") else None,
        "until": message.until.ToJsonString() if message.HasField("until") else None,
        "ended": message.ended,
        "complete": message.complete,
        "level": message.level,
        "interruptions": message.interruptions,
        "goodput": goodput_share(message),
        "totalMs": sum(line.ms for line in message.lines),
        "unusedMs": message.unused_ms,
        "slowedMs": message.slowed_ms,
        "saves": [_printed(save) for save in message.saves],
        "silentSince": message.silent_since.ToJsonString() if message.HasField("silent_since") else None,
        "lines": [
            {"category": line.category, "cause": line.cause, "payer": line.payer, "ms": line.ms}
            for line in message.lines
        ],
    }


def goodput_share(message: job_pb2.GetGoodputResponse) -> float | None:
    """The share of training, kept or not saved yet, in all time. None where no progress is known."""
    total = sum(line.ms for line in message.lines)
    if not total or message.level == "D":
        return None
    return sum(line.ms for line in message.lines if line.category in ("train", "train_unsaved")) / total


def goodput_sums(by: str, message: cluster_pb2.SumGoodputResponse) -> Json:
    """Use of GPU time over all jobs; ``by`` names the rows, those of owners have their project too."""
    rows = [
        {
            by: row.name,
            **({"project": row.project} if by == "owner" else {}),
            "model": row.model,
            "unit": "rank" if row.ranks else "GPU",
            "category": row.category,
            "payer": row.payer,
            "ms": row.ms,
        }
        for row in message.rows
    ]
    begins = message.complete_since.ToJsonString() if message.HasField("complete_since") else None
    found: Json = {"completeSince": begins, "truncated": message.truncated, "rows": rows}
    if by == "host":
        found["hosts"] = [{"host": each.name, **_printed(each.reliability)} for each in message.hosts]
    return found


def series(message: job_pb2.GetSeriesResponse) -> Json:
    """Figures of ranks over time; a value that isn't known is None."""
    found = _printed(message)
    for shown, one in zip(found["series"], message.series, strict=True):
        for name in ("mean", "least", "most"):
            shown[name] = [_whole(value) if math.isfinite(value) else None for value in getattr(one, name)]
        if shown["quantile"] is not None:
            shown["quantile"] = round(shown["quantile"], 3)
    return found


def job_row(message: job_pb2.CustomJob) -> Json:
    """A job as a row of a list, without what only its page shows."""
    counts = {name: getattr(message, key) for key, name in _COUNTS.items()}
    kept = job(message, workers=False).items()
    return {key: value for key, value in kept if key not in _NOT_IN_ROWS} | counts


def state_name(name: str) -> str:
    """``JOB_STATE_RUNNING`` as tables show it: ``RUNNING``."""
    return name.partition("_STATE_")[2] or name


def _maintenance(message: host_pb2.Maintenance) -> Json:
    seconds = message.deadline.seconds if message.HasField("deadline") else None
    return {
        "deadlineSeconds" if key == "deadline" else key: seconds if key == "deadline" else value
        for key, value in _printed(message).items()
    }


_OWN_FORMS: dict[str, Callable[[Any], Json]] = {"Recovery": recovery, "Maintenance": _maintenance}
"""By message: what prints it where it is a part of another."""


def _printed(message: Message, **extra: Any) -> Json:
    """Every field by its rule, but for those of ``extra``, which are printed as they are given."""
    return {
        key: extra[key] if key in extra else read(message) for key, read in _readers(cast("Any", type(message)))
    }


@functools.cache
def _readers(kind: type[Message]) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """A reader for each key of a message type, cached: asking descriptors each time takes eight times as long."""
    blank, fields = kind(), {field.json_name: field for field in kind.DESCRIPTOR.fields}
    order = _ORDER.get(kind.DESCRIPTOR.name, " ".join(fields)).split()
    # A key without a field is one that the caller gives.
    return tuple((key, _reader(blank, fields[key]) if key in fields else _never) for key in order)


def _never(message: object) -> None:
    raise AssertionError("given by the caller")


def _reader(blank: Message, field: Any) -> Callable[[Any], Any]:
    name, form, default = field.name, _form(field), getattr(blank, field.name)
    if isinstance(default, MutableMapping):
        return lambda message: dict(sorted(getattr(message, name).items()))
    if isinstance(default, MutableSequence):
        return lambda message: [form(each) for each in getattr(message, name)]
    if field.has_presence:
        return lambda message: form(getattr(message, name)) if message.HasField(name) else None
    if f"{field.containing_type.name}.{field.json_name}" in _NULL_WHEN_ZERO:
        return lambda message: getattr(message, name) or None
    return operator.attrgetter(name) if form is _as_is else lambda message: form(getattr(message, name))


def _form(field: Any) -> Callable[[Any], Any]:
    """How one value of the field is printed."""
    if field.enum_type is not None:
        prefix = field.enum_type.values_by_number[0].name.removesuffix("UNSPECIFIED")
        names = {
            number: each.name.removeprefix(prefix) for number, each in field.enum_type.values_by_number.items()
        }
        return lambda value: names.get(value) or str(value)  # a newer controller may have more of them
    if field.message_type is None:
        return _whole if field.cpp_type == field.CPPTYPE_DOUBLE else _as_is
    match field.message_type.full_name:
        case "google.protobuf.Timestamp":
            return Timestamp.ToJsonString
        case "google.protobuf.Duration":
            return lambda value: value.seconds + value.nanos / 1e9
        case _:
            return _OWN_FORMS.get(field.message_type.name, _printed)


def _as_is(value: Any) -> Any:
    return value


def _whole(value: Any) -> Any:
    """Whole numbers among floats (a ``Struct`` has nothing else) without their fraction."""
    match value:
        case dict():
            return {key: _whole(each) for key, each in value.items()}
        case list():
            return [_whole(each) for each in value]
        case float() if value.is_integer():
            return int(value)
        case _:
            return value
