"""Bounds on every field of every message that a user or a host sends; ``bounds`` holds messages to them.

A field that the table doesn't name has the bound of its type, so a new one has a bound before anybody thinks of it.
``bytes`` are those of each text in a field, ``items`` its entries. Fields in ``UNREAD`` are not read by any handler;
those in ``ELSEWHERE`` have their bounds where the note says.
"""

from __future__ import annotations

from google.protobuf.descriptor import FieldDescriptor

from holdfast._base.dataclass import dataclass

STRING_BYTES = 1_024
ITEMS = 1_000
EXITS_TOGETHER = 64


@dataclass(frozen=True, slots=True)
class Bound:
    """The most that one field may hold."""

    bytes: int = STRING_BYTES
    items: int = ITEMS
    cut: str = ""
    """Which end is kept of what is too long: ``start`` or ``end``. Refused when empty."""
    low: int = 0
    high: int | None = None
    """Least and greatest whole number; without ``high`` that of its type."""
    whole: int | None = None
    """Bytes of a message with all that is in it."""
    fix: str = ""


EXPLAINS = Bound(4_000, cut="start")
NAME = Bound(253)
INVENTORY = Bound(whole=256 << 10)
"""Eight GPUs with all their faults take four thousand bytes."""

TABLE: dict[str, Bound] = {
    # Names of fields with one meaning everywhere.
    "id": Bound(128),
    "job_id": Bound(128),
    "request_id": Bound(128, fix="use a UUID"),
    # Looked up: what is too long for a name is not found, and no name can be given that is.
    "name": Bound(16 << 10),
    "host": NAME,
    "user": NAME,
    "worker": NAME,
    "project": NAME,
    "digest": Bound(128),
    "problem": EXPLAINS,
    # Users
    "ListJobsRequest.filter": Bound(16_384),
    "page_size": Bound(high=1_000, fix="use 1 to 1000"),
    "page_token": Bound(1_024, fix="list again without"),
    "ListJobsRequest.page_token": Bound(32, fix="list again without"),
    "ReadAuditRequest.limit": Bound(high=1_000, fix="use 1 to 1000"),
    "StreamLogsRequest.workers": Bound(253, 100_000),
    "StreamLogsRequest.ranks": Bound(items=100_000),
    "StreamLogsRequest.streams": Bound(items=2),
    "StreamLogsRequest.contains": Bound(1_000, fix="search for a part of it"),
    "WriteTerminalRequest.data": Bound(4_000, fix="send it in several calls"),
    "WriteTerminalRequest.rows": Bound(high=10_000),
    "WriteTerminalRequest.columns": Bound(high=10_000),
    "OpenShellRequest.command": Bound(128 << 10, 1_000),
    "OpenShellRequest.rows": Bound(high=10_000),
    "OpenShellRequest.columns": Bound(high=10_000),
    "OpenShellRequest.term": Bound(64),
    "WriteShellRequest.shell": Bound(64),
    "WriteShellRequest.data": Bound(32_000, fix="send it in several calls"),
    "WriteShellRequest.rows": Bound(high=10_000),
    "WriteShellRequest.columns": Bound(high=10_000),
    "WatchJobRequest.cursor": Bound(low=-(2**63)),
    "GetHangEvidenceRequest.number": Bound(low=-(2**31)),
    **{f"QuotaLimits.{name}": Bound(low=-1) for name in ("gpus", "running_jobs", "waiting_jobs", "max_priority")},
    "Reservation.hosts": Bound(253, 10_000),
    "Reservation.labels": Bound(63, 64),
    "UncordonRequest.gpus": Bound(253, 256),
    "AddUserRequest.accounts": Bound(253, 16),
    "MapUserRequest.accounts": Bound(253, 16),
    "SetMotdRequest.text": Bound(16 << 10, fix="say where the rest is to be found"),
    "SetSecretRequest.value": Bound(64 << 10, fix="keep it in a file on the hosts, and name that in the job"),
    "RelayRequest.target": Bound(16 << 10),
    "RelayRequest.headers": Bound(1_024, 16),
    "RelayRequest.body": Bound(1 << 20),
    "UploadBundleRequest.chunk": Bound(1 << 20),
    # Anybody
    "EnrolRequest.token": Bound(256),
    "EnrolRequest.request": Bound(16 << 10),
    "SignInRequest.id_token": Bound(20 << 10),
    "SignInRequest.request": Bound(16 << 10),
    "RenewRequest.certificate": Bound(16 << 10),
    "RenewRequest.request": Bound(16 << 10),
    # Hosts
    "Hello.agent_version": Bound(255),
    "Hello.boot_id": Bound(255),
    "Hello.address": Bound(255),
    "Hello.labels": Bound(63, 64),
    "Hello.workers": Bound(items=4_096),
    "Hello.inventory": INVENTORY,
    "Heartbeat.inventory": INVENTORY,
    "Heartbeat.gpu_problem": EXPLAINS,
    "Inventory.gpus": Bound(items=256),
    "Inventory.gpu_problem": EXPLAINS,
    "Inventory.traits": Bound(128, 64),
    "Inventory.accounts_problem": EXPLAINS,
    "Inventory.containers_problem": EXPLAINS,
    "Gpu.uuid": Bound(255),
    "Gpu.model": Bound(255),
    "Gpu.repaired_by": EXPLAINS,
    "Gpu.faults": Bound(items=64),
    "GpuFault.cause": Bound(255),
    "WorkerReport.ranks": Bound(items=1_024),
    "WorkerReport.gpus": Bound(255, 256),
    "WorkerReport.silent_peers": Bound(items=4_096),
    "WorkerReport.message": EXPLAINS,
    "RankBinding.cpus": EXPLAINS,
    "ExitReports.reports": Bound(items=EXITS_TOGETHER),
    "ExitReport.stderr_tail": Bound(4_096, 50, cut="end"),
    "Exit.message": EXPLAINS,
    "Exit.raised": EXPLAINS,
    "FeatureReport.ranks": Bound(items=1_024),
    "FeatureReport.gpus": Bound(items=256),
    "FeatureReport.declared_idle": Bound(cut="start"),
    "RankFeatures.wchan": Bound(cut="start"),
    "RankFeatures.mount": Bound(4_096, cut="start"),
    "RankFeatures.hardware": Bound(cut="start"),
    "Wait.what": Bound(cut="start"),
    "Wait.place": Bound(cut="start"),
    "ArchiveReport.problem": Bound(500, cut="start"),
    "InputTaken.problem": Bound(500, cut="start"),
    "OutputDeleted.problem": Bound(500, cut="start"),
    "TransferChunk.data": Bound(4 << 20),
    "EvidenceReport.content": Bound(3 << 20),
    "EvidenceReport.samples": Bound(5 << 19),
    "EvidenceReport.dumps": Bound(1 << 20),
    "EvidenceReport.recording": Bound(1 << 20),
    "SeriesReport.block": Bound(1 << 20),
}
"""By field: its message and name, or its name alone."""

UNREAD = frozenset(
    f"CustomJob.{name}"
    for name in (
        *("id", "state", "create_time", "start_time", "end_time", "update_time", "error", "attempt", "generation"),
        *("wait_reason", "workers", "recoveries", "owner", "cursor", "hangs", "held_until", "health", "account"),
        *("summary", "waits_for"),
        *("archive_problems", "gpu_count", "host_count", "recovery_count", "hang_count", "exit_groups"),
    )
) | {"Exit.late_exit", "Gpu.job_id"}
"""What a job is shown with and is not submitted with; what a host can't know."""
ELSEWHERE = {
    f"CustomJob.{name}": "the job file's model: holdfast.spec.models; 1 MiB in all"
    for name in ("display_name", "job_spec", "labels", "annotations", "project", "encryption_spec")
}


def bound_of(field: FieldDescriptor) -> Bound:
    """The bound on a field of a message that is received."""
    return TABLE.get(_named(field)) or TABLE.get(field.name) or Bound()


def skipped(field: FieldDescriptor) -> bool:
    """Whether a field is unread here, or bounded elsewhere."""
    return _named(field) in UNREAD or _named(field) in ELSEWHERE


def _named(field: FieldDescriptor) -> str:
    """The field's message and name, as in the table."""
    return field.full_name.removeprefix("holdfast.v1.")
