"""Renders a notification: the JSON sent to webhooks, and the title and text of mail and chat."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.subscription import Notice
from holdfast_controller.shell.store.store import Record

SCHEMA = "holdfast.notification.v1"
"""Fields may be added under this name; none is removed or changes its meaning."""

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
    """The notification as JSON; ``id`` is the same for every receiver and every retry."""
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
    """``title``, ``body`` and ``type`` (info, success, warning or failure) for mail and chat."""
    sent: dict[str, Any] = json.loads(body)
    job = sent["job"]
    about = f"{job['id']} of {job['owner']}, project {job['project']}, cluster {sent['cluster']}"
    return {
        "title": f"{job['displayName']}: {sent['event']}",
        "body": f"{sent['message']}\n{about}",
        "type": _MOOD.get(Notice[sent["event"]], "info"),
    }
