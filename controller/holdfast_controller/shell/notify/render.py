"""The content of a notification: the JSON sent to webhooks, and the title and text of mail and chat."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

from holdfast._base.job_file.choices import NotificationEvent
from holdfast._base.printable import json_text, one_line
from holdfast_controller.core.digest import Batch
from holdfast_controller.core.messages.cluster import News
from holdfast_controller.core.model.accounts.subscription import ClusterNotice
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.outbox import OutboxEntry
from holdfast_controller.core.views.job_summary import Summary
from holdfast_controller.shell.store.records import Record

SCHEMA = "holdfast.notification.v1"
CLUSTER_SCHEMA = "holdfast.cluster-notification.v1"
"""Fields may be added under these names; none is removed or changes its meaning."""
TITLE_MOST, LINE_MOST = 200, 2_000
"""Characters of a title, which is a mail's subject, and of a line."""
ITEMS_SENT, LINES_SENT = 200, 30
"""Subjects that one message lists, as JSON and in words; the rest are counted."""

_MOOD = {
    NotificationEvent.COMPLETED.name: "success",
    NotificationEvent.RECOVERED.name: "success",
    NotificationEvent.FAILED.name: "failure",
    NotificationEvent.EXPIRED.name: "failure",
    NotificationEvent.HANGED.name: "warning",
    NotificationEvent.RESTARTED.name: "warning",
    NotificationEvent.PREEMPTED.name: "warning",
    NotificationEvent.UNSURE.name: "warning",
    ClusterNotice.HOSTS_SILENT.name: "failure",
    ClusterNotice.HOST_LOST.name: "failure",
    ClusterNotice.GPU_FAULT.name: "failure",
    ClusterNotice.COMMON_CAUSE.name: "warning",
    ClusterNotice.CERTIFICATE.name: "warning",
    ClusterNotice.RESTORED.name: "warning",
    ClusterNotice.ORPHAN_FOUND.name: "warning",
    ClusterNotice.HOST_CORDONED.name: "warning",
    ClusterNotice.HOST_REFUSED.name: "warning",
    ClusterNotice.HOST_THROTTLED.name: "warning",
    ClusterNotice.HOST_SHUTDOWN.name: "warning",
    ClusterNotice.CHECK_FAILED.name: "warning",
    ClusterNotice.HOST_RETURNED.name: "success",
    ClusterNotice.CHECK_PASSED.name: "success",
    ClusterNotice.GPU_RECOVERED.name: "success",
}


def body_of(record: Record, notice: NotificationEvent, job: Job, cluster: str, summary: Summary) -> str:
    """The notification as JSON; ``id`` is the same for every receiver and every retry."""
    error = job.error if job.error is not None and job.terminal else None
    body = {
        "schema": SCHEMA,
        "id": f"{job.id}.{record.sequence}",
        "event": notice.name,
        "time": _time(record.at),
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
        "summary": {
            "condition": f"JOB_CONDITION_{summary.condition.name}",
            "health": summary.health,
            "happened": summary.happened,
            "done": summary.done,
            "advice": summary.advice,
        },
    }
    return json_text(body)


def item_of(record: Record, news: News) -> str:
    """One item of a digest as JSON, as it is stored until it is sent."""
    item = {"event": news.kind.name, "time": _time(record.at), "subject": news.subject, "message": news.message}
    return json_text({**item, "answers": news.answers})


def digest_of(batch: Batch, cluster: str) -> OutboxEntry:
    """The message for a digest. Its event and text are those of the most urgent item."""
    items = []
    for line in batch.lines:
        item = json.loads(line.newest.body)
        del item["answers"]
        items.append({**item, "changes": line.changes, "since": json.loads(line.first.body)["time"]})
    urgency = list(ClusterNotice.__members__)
    items.sort(key=lambda item: (urgency.index(item["event"]), item["subject"]))
    more = f" (and {len(items) - 1} more)" if len(items) > 1 else ""
    newest = max(line.newest.sequence for line in batch.lines)
    body = {
        "schema": CLUSTER_SCHEMA,
        "id": f"cluster.{newest}",
        "event": items[0]["event"],
        "time": max(item["time"] for item in items),
        "cluster": cluster,
        "message": items[0]["message"] + more,
        "items": items[:ITEMS_SENT],
        "leftOut": max(0, len(items) - ITEMS_SENT),
    }
    return OutboxEntry(newest, batch.sink, "cluster", items[0]["event"], json_text(body))


def test_message(channel: str, cluster: str, at: float) -> OutboxEntry:
    """A message that only says that ``channel`` works."""
    text = f"a test of the channel {channel}: notifications arrive here"
    item = {"event": "TEST", "time": _time(at), "subject": f"channel/{channel}", "message": text, "changes": 1}
    body = {
        "schema": CLUSTER_SCHEMA,
        "id": f"cluster.test.{at:.0f}",
        "event": "TEST",
        "time": _time(at),
        "cluster": cluster,
        "message": text,
        "items": [{**item, "since": _time(at)}],
        "leftOut": 0,
    }
    return OutboxEntry(int(at), f"cluster:{channel}", "cluster.test", "TEST", json_text(body))


def in_words(body: str) -> dict[str, str]:
    """``title``, ``body`` and ``type`` (info, success, warning or failure) for mail and chat.

    Words of users and hosts are words there: no further line, no header, no mention, no link behind other words.
    """
    sent: dict[str, Any] = json.loads(body)
    mood = _MOOD.get(sent["event"], "info")
    if "items" in sent:
        return {**_digest_in_words(sent), "type": mood}
    job = sent["job"]
    about = f"{job['id']} of {job['owner']}, project {job['project']}, cluster {sent['cluster']}"
    title = _plain(f"{job['displayName']}: {sent['event']}", TITLE_MOST)
    lines = [sent["message"], about]
    if now := sent.get("summary"):
        lines += [f"Now: {now['health']}", f"To do: {now['advice']}"]
    return {"title": title, "body": "\n".join(map(_plain, lines)), "type": mood}


def _plain(text: str, most: int = LINE_MOST) -> str:
    """One line that no chat takes for more: Slack's and HTML's brackets, mentions, Markdown's links and code."""
    line = one_line(text, most).translate(_BRACKETS)
    return _MENTION.sub(r"@ \1", line).replace("](", "] (")


_BRACKETS = str.maketrans({"<": "‹", ">": "›", "`": "'"})
_MENTION = re.compile(r"@(everyone|here|channel|all|team|room)\b", re.IGNORECASE)


def _digest_in_words(sent: dict[str, Any]) -> dict[str, str]:
    items = sent["items"]
    lines = []
    for item in items[:LINES_SENT]:
        times = f" ({item['changes']} changes since {item['since']})" if item["changes"] > 1 else ""
        lines.append(_plain(f"{item['time']} {item['event']}: {item['message']}{times}"))
    left = len(items) - len(lines) + sent["leftOut"]
    lines += [f"… and {left} more: holdfast status"] if left else []
    title = _plain(f"cluster {sent['cluster']}: {sent['message']}", TITLE_MOST)
    return {"title": title, "body": "\n".join(lines)}


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
