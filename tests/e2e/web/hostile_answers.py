"""Answers of the controller in which every text is of ``CORPUS``, as names, sentences, exits, frames and output."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

from tests.e2e.web.hostile import CORPUS

SHARE = {
    "project": "",
    "weight": None,
    "share": 0.5,
    "usedGpuHours": 1,
    "gpus": 1,
    "factor": 1,
    "waiting": 0,
    "running": 1,
}
SHARE |= {"gpuQuota": 1, "runningQuota": None, "waitingQuota": 7}


def hostile(value: Any, texts: Iterator[str], *keep: str) -> Any:
    """The JSON with every text replaced, but those under the names to keep, times and enums."""
    if isinstance(value, dict):
        return {key: each if key in keep else hostile(each, texts, *keep) for key, each in value.items()}
    if isinstance(value, list):
        return [hostile(each, texts, *keep) for each in value]
    if not isinstance(value, str) or re.match(r"\d{4}-|JOB_STATE_", value):
        return value
    return next(texts)


def listed(found: Any, job_id: str, texts: Iterator[str]) -> Any:
    """The list of jobs with a row for each text, made of the row of one job."""
    row = next(each for each in found["jobs"] if each["id"] == job_id)
    rows = [hostile(row, texts, "id") | {"id": text} for text in CORPUS]
    return {"jobs": rows, "nextPageToken": ""}


def whole(job: Any, texts: Iterator[str]) -> Any:
    """The job with an exit, a hang and a recovery for each text; for the tab of ranks, its workers with many ranks."""
    if "workers" in job:
        ranks = [{"rank": number, "localRank": number, "pid": 1} for number in range(len(CORPUS))]
        return {"workers": [hostile(job["workers"][0], texts) | {"ranks": ranks}]}
    at = job["startTime"]
    groups = [{"first": each, "ranks": f"{each['rank']}", "count": 1, "lastEndTime": at} for each in exits_of(at)]
    kept = hostile(job, texts, "id", "jobSpec", "exitGroups") | {"exitGroups": groups}
    return kept | {"hangs": hangs_of(at), "recoveries": recoveries_of(at)}


def exits_of(at: str) -> list[dict[str, Any]]:
    """An exit for each text."""
    return [
        {
            "attempt": 1,
            "generation": 1,
            "rank": number,
            "exitCode": 1,
            "signal": None,
            "coreDumped": False,
            "reason": text,
            "message": text,
            "endTime": at,
            "lateExit": None,
            "raised": text,
        }
        for number, text in enumerate(CORPUS)
    ]


def hangs_of(at: str) -> list[dict[str, Any]]:
    """A hang for each text."""
    return [
        {
            "number": number,
            "generation": 1,
            "since": at,
            "noticedAt": at,
            "diagnosedAt": at,
            "judgedAt": at,
            "rule": text,
            "sentence": text,
            "suspects": [text],
            "suspectRanks": [{"worker": text, "rank": number}],
            "stacks": text,
            "outcome": text,
            "note": text,
            "step": 1,
        }
        for number, text in enumerate(CORPUS)
    ]


def recoveries_of(at: str) -> list[dict[str, Any]]:
    """A recovery for each text."""
    return [
        {
            "attempt": 1,
            "generation": number,
            "startedAt": at,
            "endedAt": at,
            "startType": text,
            "endReason": text,
            "endRelatedTask": text,
            "endRecover": text,
            "lostSeconds": 1,
            "related": {"ranks": [{"worker": text, "rank": 0}], "host": text, "job": text, "user": text},
            "phases": {"detect": 1, "diagnose": 0, "stop": 1, "start": 1, "catchUp": None},
        }
        for number, text in enumerate(CORPUS)
    ]


def evidence_lines() -> list[dict[str, Any]]:
    """A worker with the stacks of one rank for each text."""
    return [
        {
            "worker": text,
            "host": text,
            "problem": text,
            "stacks": [
                {
                    "rank": number,
                    "group": f"{number}",
                    "place": text,
                    "waits": False,
                    "moving": text,
                    "collective": text,
                    "problem": text,
                }
            ],
            "evidence": {
                "frames": [[text, text, 1]],
                "ranks": [
                    {
                        "rank": number,
                        "process": {"looks": [{"python": {"threads": [{"main": True, "frames": [0]}]}}]},
                    }
                ],
            },
        }
        for number, text in enumerate(CORPUS)
    ]


def output_lines() -> list[dict[str, Any]]:
    """Each text as a line of output, and as a problem with it."""
    chunk = {"worker": "w", "rank": 0, "generation": 1, "stream": "STDOUT", "offset": 0, "problem": ""}
    data = base64.b64encode("".join(f"{text}\n" for text in CORPUS).encode()).decode()
    more = [chunk | {"data": "", "problem": text} for text in CORPUS]
    return [chunk | {"data": data}, *more]
