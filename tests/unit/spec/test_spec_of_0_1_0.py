"""Every job that 0.1.0 took is taken and printed the same, and every refusal has its path, wording and fix."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast import spec
from holdfast.errors import InvalidSpec
from holdfast.v1 import job_pb2

FIXTURE = Path(__file__).parents[2] / "fixtures/spec-0.1.0.jsonl.gz"
CASES = [json.loads(line) for line in gzip.decompress(FIXTURE.read_bytes()).splitlines()]

TAKEN_SINCE = (
    "stepPattern: repeats something",
    "stepPattern: has 3 parts such as .*",
    "workerPoolSpecs[3].replicaCount: is missing",
    "restartJobOnWorkerRestart: is true, though disableRetries allows no restart",
    "lustreMounts: is no known field",
)
"""Refusals of step patterns that took too long in Python's matcher (RE2 matches them in linear time), of an empty
pool, which skips its role, and of what the reference takes."""

REFUSED_SINCE = ("imageUri: must be the name of an image",)
"""Names of images that an engine would take for its options, and that no registry has."""

POLICIES_THEN = "must be KEEP or STOP_AND_REPLACE, not"
POLICIES_NOW = "must be KEEP or STOP_AND_REPLACE or REPLACE_IF_ISOLATED, not"
EVENTS_THEN, EVENTS_NOW = "or MAINTENANCE or UNSURE, not", "or MAINTENANCE or UNSURE or UNDERUSED or STRAGGLER, not"
ADDED_FIELDS = (
    ", spares",
    ", numaBinding",
    ", enableWebAccess",
    ", externalTimeout",
    ", progressTotal",
    ", terminal",
    ", expectedDuration",
    ", after",
    ", pauseIfUnmet",
    ", array",
    ", placement",
    ", underuse",
    ", warm",
    ", match",
    ", gpuPartitionSize",
)
"""Fields since then, in the lists of known fields that refusals of unknown ones end with."""

KEY_NAMED = re.compile(r': the key (?:".*?"|\S+) (?=has|must|contains|is)')
"""Which key of a mapping is wrong is said since then."""


FIX_NAMED = re.compile(r"(?<=cannot start any token); .*")
"""A fix for a character that begins nothing in YAML is said since then."""


def read(case: dict[str, Any]) -> spec.JobFile:
    match case:
        case {"text": text, "source": source}:
            return spec.parse_text(text, source=source)
        case {"data": data}:
            return spec.parse(json.loads(data))
    return spec.job_from_proto(job_pb2.CustomJob.FromString(base64.b64decode(case["proto"])))


def outcome(case: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"job": spec.to_dict(read(case))}
    except InvalidSpec as error:
        found = [str(violation) for violation in error.violations]
        for name in ADDED_FIELDS:
            found = [said.replace(name, "") for said in found]
        found = [FIX_NAMED.sub("", KEY_NAMED.sub(": ", said)) for said in found]
        found = [said.replace("processesPerWorker, hostSelector)", "processesPerWorker)") for said in found]
        # Maps of a message are in any order.
        return {"what": str(error).split("\n")[0], "errors": sorted(found) if "proto" in case else found}


@pytest.mark.parametrize("kind", ["text", "data", "proto"])
def test_what_0_1_0_said_of_a_job_is_said_today(kind: str) -> None:
    cases = [case for case in CASES if kind in case]
    assert len(cases) > 100
    for case in cases:
        then: dict[str, Any] = {key: case[key] for key in ("job", "what", "errors") if key in case}
        if "errors" in then:
            said = [
                error.replace(POLICIES_THEN, POLICIES_NOW).replace(EVENTS_THEN, EVENTS_NOW)
                for error in then["errors"]
            ]
            then["errors"] = sorted(said) if kind == "proto" else said
        if any(words in error for words in TAKEN_SINCE for error in then.get("errors", ())):
            assert "job" in outcome(case), case[kind]
            continue
        now = outcome(case)
        if any(words in error for words in REFUSED_SINCE for error in now.get("errors", ())):
            continue
        assert now == then, case[kind][:2000]
