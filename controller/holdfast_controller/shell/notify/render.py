"""The words of a notification: the JSON that webhooks get, and what people read in mail and chat."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.subscription import Notice
from holdfast_controller.shell.store.store import Record

SCHEMA = "holdfast.notification.v1"
"""A field may be added under this name; none changes its meaning or goes."""

_MOOD = {
    Notice.COMPLETED: "success",
    Notice.RECOVERED: "success",
    Notice.FAILED: "failure",
    Notice.EXPIRED: "failure",
    Notice.HANGED: "warning",
    Notice.RESTARTED: "warning",
    Notice.PREEMPTED: "warning",
    Notice.UNSURE: "warning",
}


def body_of(record: Record, notice: Notice, job: Job, cluster: str) -> str:
    """The JSON. ``id`` is the same however often it is sent, and to whomever."""
    error = job.error if job.error is not None and job.terminal else None
    body = {
        "schema": SCHEMA,
        "id": f"{job.id}.{record.sequence}",
        "event": notice.name,
        "time": datetime.fromtimestamp(record.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "cluster": cluster,
        "message": error.message if error is not None and record.type == "JobEnded" else record.message,
        "job": {
            "id": job.id,
            "displayName": job.display_name,
            "project": job.gang.project,
            "owner": job.owner,
            "labels": dict(sorted(job.labels.items())),
            "state": f"JOB_STATE_{record.state}",
            "attempt": job.attempt,
            "generation": job.generation,
        },
    }
    return json.dumps(body, ensure_ascii=False)


def in_words(body: str) -> dict[str, str]:
    """What a service shows: ``title``, ``body`` and ``type`` (info, success, warning or failure)."""
    told: dict[str, Any] = json.loads(body)
    job = told["job"]
    about = f"{job['id']} of {job['owner']}, project {job['project']}, cluster {told['cluster']}"
    return {
        "title": f"{job['displayName']}: {told['event']}",
        "body": f"{told['message']}\n{about}",
        "type": _MOOD.get(Notice[told["event"]], "info"),
    }
