"""Logs that release 0.1 wrote: they are opened, mean the same, and are served as before.

``tests/fixtures/README.md`` says what is in them.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from tests.unit.controller.examples import EVENTS

from holdfast.hang.judge.finding import NUMBERS, Rule
from holdfast.v1 import spec_pb2
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView
from holdfast_controller.shell.convert.job_to_proto import job_to_proto, workers_to_proto
from holdfast_controller.shell.services.job_service import _entry
from holdfast_controller.shell.store import codec
from holdfast_controller.shell.store.records import Record
from holdfast_controller.shell.store.release_0_1 import NEWER
from holdfast_controller.shell.store.store import Store

FIXTURES = Path(__file__).parents[3] / "fixtures" / "store-0.1"


@dataclass(frozen=True)
class Story:
    """A log, the jobs as that release showed them at its end, and the watches that it kept."""

    name: str
    rows: list[Record]
    jobs: dict[str, dict[str, Any]]
    watches: dict[str, str]


def stories() -> list[Story]:
    lines = gzip.decompress((FIXTURES / "stories.jsonl.gz").read_bytes()).decode().splitlines()
    found = map(json.loads, lines)
    return [Story(s["story"], [Record(*row) for row in s["rows"]], s["jobs"], s["watches"]) for s in found]


STORIES = stories()
ids = [story.name for story in STORIES]


NEW_FIELDS = {"hangs": ("foundBy", "result", "suspectRanks"), "recoveries": ("reason", "related", "kind")}


NOW = Now(Mono(0.0), Wall(0.0))


def shown(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """The jobs as clients of that release see them, without what is said of the present moment.

    Rules of the hang detector have been sent by name since.
    """
    found = {}
    for job in cluster.jobs.values():
        message = job_to_proto(cluster, job, spec_pb2.CustomJobSpec(), QueueView(cluster, [], {}), NOW)
        if job.places:
            message.workers.extend(workers_to_proto(cluster, job, job.gang.members))
        message.wait_reason = message.health = ""
        message.ClearField("summary")
        for name in ("rank", "raised", "why_final"):
            message.error.ClearField(name)
        for hang in message.hangs:
            hang.rule = NUMBERS[Rule(hang.rule)]
        for exit_ in (exit_ for worker in message.workers for exit_ in worker.exits):
            exit_.ClearField("raised")
        view = json_format.MessageToDict(message)
        if not (job.terminal and job.error):
            view.pop("error", None)
        for field, names in NEW_FIELDS.items():
            for part in view.get(field, ()):
                for name in names:
                    part.pop(name, None)
        found[job.id] = view
    return found


def has_all_of(old: Any, new: Any) -> bool:
    """Whether ``new`` says all that ``old`` says; it may say more."""
    if isinstance(old, dict):
        return all(key in new and has_all_of(value, new[key]) for key, value in old.items())
    if isinstance(old, list):
        return len(old) == len(new) and all(map(has_all_of, old, new))
    return bool(old == new)


def gang_of(story: Story, entity: str) -> Gang:
    for row in story.rows:
        if row.entity == entity and row.type == "JobSubmitted":
            event = codec.load_event(row.type, row.version, row.payload)
            assert isinstance(event, ev.JobSubmitted)
            return event.gang
    raise AssertionError(f"{entity} was never submitted")


def test_the_fixture_holds_every_type_of_that_release() -> None:
    types = {row.type for row in STORIES[0].rows}
    assert len(types) == 67
    assert all(row.version == 1 for story in STORIES for row in story.rows)
    assert types >= {row.type for story in STORIES for row in story.rows}


@pytest.mark.parametrize("story", STORIES, ids=ids)
def test_jobs_are_what_they_were(story: Story) -> None:
    cluster = Cluster(epoch=1)
    for row in story.rows:
        fold(cluster, codec.load_event(row.type, row.version, row.payload))
        assert cluster.sequence == row.sequence
    assert shown(cluster) == story.jobs


@pytest.mark.parametrize("story", STORIES, ids=ids)
@pytest.mark.parametrize("stored_as", ["then", "now"])
def test_a_watch_shows_the_fields_that_it_showed(story: Story, stored_as: str) -> None:
    for row in story.rows:
        if not row.entity.startswith("job/"):
            continue
        event = codec.load_event(row.type, row.version, row.payload)
        stored = row
        if stored_as == "now":
            stored = replace(row, version=codec.VERSIONS[row.type], payload=codec.dump_event(event))
        entry = _entry(stored, gang_of(story, row.entity))
        fields = json.loads(row.payload)
        for hidden in ("spec_json", "gang"):
            fields.pop(hidden, None)
        fields.get("rendezvous", {}).pop("secret", None)
        assert (entry.type, entry.message, entry.cursor) == (row.type, row.message, row.sequence)
        assert has_all_of(fields, json_format.MessageToDict(entry.data))


@pytest.mark.parametrize("name", NEWER)
def test_each_type_that_has_changed_is_upcast_and_shown_as_it_was(name: str) -> None:
    rows = [row for story in STORIES for row in story.rows if row.type == name]
    assert any(codec.UPCASTS[name, 1](json.loads(row.payload)) != json.loads(row.payload) for row in rows)
    for row in rows:
        stored = codec.dump_event(codec.load_event(name, 1, row.payload))
        assert codec.load_event(name, 2, stored) == codec.load_event(name, 1, row.payload)
        assert has_all_of(json.loads(row.payload), codec.payload_of_0_1(name, 2, stored))


def test_kept_watches_are_read() -> None:
    kept = [payload for story in STORIES for payload in story.watches.values()]
    assert kept
    for payload in kept:
        assert codec.load_watch(payload).generation >= 1


def test_the_file_of_that_release_is_opened_and_folded(tmp_path: Path) -> None:
    path = tmp_path / "state" / "holdfast.db"
    path.parent.mkdir(mode=0o700)
    path.write_bytes(gzip.decompress((FIXTURES / "holdfast.db.gz").read_bytes()))
    store = Store(path)
    try:
        cluster = store.call(store.open).result()
        history = store.call(store.read, "job/a", 0, 1000).result()
        watches = store.call(store.kept_watches).result()
    finally:
        store.close()
    assert store.epoch == 2
    assert shown(cluster) == STORIES[0].jobs
    assert history == [row for row in STORIES[0].rows if row.entity == "job/a"]
    assert list(watches) == ["r"]


def test_every_event_of_today_is_shown_to_clients_of_that_release() -> None:
    """Rules, too, that it didn't know."""
    rules = [replace(event, rule=rule) for event in EVENTS if isinstance(event, ev.HangNoticed) for rule in Rule]
    told = [codec.payload_of_0_1(type(one).__name__, 2, codec.dump_event(one)) for one in (*EVENTS, *rules)]
    assert {one["rule"] for one in told if "rule" in one} == {*NUMBERS.values(), "EXTERNAL_WAIT"}
