"""What is stored comes back equal; every event has its sentence."""

from __future__ import annotations

import copy
import json
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from tests.unit.controller.examples import EVENTS
from tests.unit.controller.job_examples import GANG

from holdfast._base.job_file.choices import Choice, SuccessPolicy
from holdfast._session.reports import Exit, ExitReason
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.messages.job import message_of
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang, Pool, Task
from holdfast_controller.core.model.jobs import Jobs
from holdfast_controller.shell.store import codec

names = [codec.stored_name(type(event)) for event in EVENTS]


def test_the_examples_cover_every_event_type() -> None:
    types = set(get_args(ev.Event))
    assert {type(event) for event in EVENTS} == types
    assert set(codec.EVENT_TYPES) == {codec.stored_name(cls) for cls in types}
    assert set(codec.VERSIONS) == set(codec.EVENT_TYPES)


@pytest.mark.parametrize("event", EVENTS, ids=names)
def test_event_comes_back_equal(event: ev.Event) -> None:
    name = codec.stored_name(type(event))
    assert codec.load_event(name, codec.VERSIONS[name], codec.dump_event(event)) == event


def test_whole_history_stored_and_folded_again_gives_the_same_state() -> None:
    live, again = Cluster(), Cluster()
    for event in EVENTS:
        fold(live, event)
        name, payload = codec.stored_name(type(event)), codec.dump_event(event)
        fold(again, codec.load_event(name, codec.VERSIONS[name], payload))
        assert (live.jobs, live.hosts, live.people, live.queue, live.requests) == (
            again.jobs,
            again.hosts,
            again.people,
            again.queue,
            again.requests,
        )


@pytest.mark.parametrize("kind", Choice.__subclasses__())
def test_what_a_job_file_chooses_is_stored_by_its_name(kind: type[Choice]) -> None:
    adapter = TypeAdapter(kind)
    for member in kind:
        assert adapter.dump_json(member) == json.dumps(member.name).encode()
        assert adapter.validate_json(json.dumps(member.name)) is member
    with pytest.raises(ValidationError):
        adapter.validate_json('"NONSENSE"')


@pytest.mark.parametrize("name", ["RankExited", "LateExitFound", "StrangerEnded"])
def test_exit_that_was_stored_with_what_it_raised_in_its_message_alone_is_read(name: str) -> None:
    event = next(event for event in EVENTS if codec.stored_name(type(event)) == name)
    payload = json.loads(codec.dump_event(event))
    del payload["exit"]["raised"]
    payload["exit"]["message"] = "exited with code 1; it raised ValueError: no; ValueError: no"
    loaded: Any = codec.load_event(name, 1, json.dumps(payload))
    assert (loaded.exit.raised, loaded.exit.message) == ("ValueError: no", payload["exit"]["message"])


def test_job_that_was_stored_with_its_output_in_its_spec_alone_is_read() -> None:
    event = next(event for event in EVENTS if isinstance(event, ev.JobSubmitted))
    payload = json.loads(codec.dump_event(event))
    del payload["gang"]["output_uri"]
    payload["spec_json"] = json.dumps({"baseOutputDirectory": {"outputUriPrefix": "/results"}})
    loaded: Any = codec.load_event("JobSubmitted", 1, json.dumps(payload))
    assert loaded.gang.output_uri == "/results"


def test_entities_come_back_equal_at_every_point_of_a_history() -> None:
    cluster = Cluster()
    for event in EVENTS:
        fold(cluster, event)
        for job in cluster.jobs.values():
            job.gang.members  # noqa: B018 - a cached property must not find its way into the store
            assert codec.load_entity("job", codec.dump_entity(job)) == job
        for host in cluster.hosts.values():
            assert codec.load_entity("host", codec.dump_entity(host)) == host
        assert codec.load_entity("people", codec.dump_entity(cluster.people)) == cluster.people


def test_what_is_cached_on_a_gang_is_not_stored() -> None:
    gang = copy.deepcopy(GANG)
    assert gang.members
    assert gang.index_by_name
    event = ev.JobSubmitted(
        job_id="a", at=Wall(1.0), owner="ann", request_id="", display_name="x", labels={}, gang=gang, spec_json="{}"
    )
    assert set(json.loads(codec.dump_event(event))["gang"]) == set(gang.__dataclass_fields__)


def test_a_loaded_entity_can_be_folded_on() -> None:
    live, again = Cluster(), Cluster()
    for number, event in enumerate(EVENTS):
        fold(live, event)
        fold(again, event)
        again.jobs = Jobs({k: codec.load_entity("job", codec.dump_entity(v)) for k, v in again.jobs.items()})
        again.hosts = {k: codec.load_entity("host", codec.dump_entity(v)) for k, v in again.hosts.items()}
        again.schedules = {
            k: codec.load_entity("schedule", codec.dump_entity(v)) for k, v in again.schedules.items()
        }
        again.templates = {
            k: codec.load_entity("template", codec.dump_entity(v)) for k, v in again.templates.items()
        }
        assert (live.jobs, live.hosts) == (again.jobs, again.hosts), number
        assert (live.schedules, live.templates) == (again.schedules, again.templates), number


def test_entity_of_an_event() -> None:
    assert {codec.entity_of(event) for event in EVENTS} == {
        "schedule/vision/nightly",
        "schedule/vision/gone",
        "template/vision/nightly",
        "template/vision/gone",
        "job/a",
        "job/z",
        "host/h1",
        "host/h2",
        "host/h3",
        "job/r",
        "job/s",
        "people",
        "cluster",
    }


def test_unknown_type_or_newer_version_is_refused() -> None:
    with pytest.raises(KeyError):
        codec.load_event("JobTeleported", 1, "{}")
    with pytest.raises(KeyError):
        codec.load_event("JobQueued", 2, "{}")


def test_older_version_is_upcast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(codec.VERSIONS, "JobQueued", 3)
    monkeypatch.setitem(codec.UPCASTS, ("JobQueued", 1), lambda old: {**old, "why": old["because"]})
    monkeypatch.setitem(codec.UPCASTS, ("JobQueued", 2), lambda old: {**old, "reason": old["why"]})
    payload = '{"job_id": "a", "at": 1.0, "because": "busy"}'
    assert codec.load_event("JobQueued", 1, payload) == ev.JobQueued(job_id="a", at=Wall(1.0), reason="busy")


text = st.text(max_size=30)
numbers = st.floats(allow_nan=False, allow_infinity=False)
tasks = st.builds(
    Task,
    st.lists(text, max_size=3).map(tuple),
    st.lists(text, max_size=3).map(tuple),
    st.lists(st.tuples(text, text), max_size=3).map(tuple),
    text,
)
gangs = st.builds(
    Gang,
    st.lists(st.builds(Pool, st.integers(1, 3), tasks, st.integers(1, 3)), min_size=1, max_size=3).map(tuple),
    timeout_s=numbers,
    success=st.sampled_from(SuccessPolicy),
)
exits = st.builds(
    Exit,
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(0, 9),
    st.sampled_from(ExitReason),
    st.one_of(st.none(), st.integers(0, 255)),
    st.one_of(st.none(), st.integers(1, 64)),
    st.booleans(),
    text,
    numbers,
    st.lists(text, max_size=3).map(tuple),
)


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(
        st.builds(
            ev.JobSubmitted,
            job_id=text,
            at=numbers,
            owner=text,
            request_id=text,
            display_name=text,
            labels=st.dictionaries(text, text, max_size=3),
            gang=gangs,
            spec_json=text,
        ),
        st.builds(ev.RankExited, job_id=text, at=numbers, worker=text, exit=exits),
    )
)
def test_any_text_and_number_comes_back(event: ev.Event) -> None:
    assert codec.load_event(codec.stored_name(type(event)), 1, codec.dump_event(event)) == event


def test_every_event_has_a_sentence_of_one_line() -> None:
    cluster = Cluster()
    told = []
    for event in EVENTS:
        fold(cluster, event)
        told.append(message_of(event, cluster.jobs.get(getattr(event, "job_id", ""))))
    assert all(sentence.strip() and "\n" not in sentence for sentence in told)
    assert told == [
        "h1 joined from 10.0.0.1 with 8 cores, 1 GPU",
        "h2 joined from 10.0.0.2 with 8 cores, 1 GPU",
        "h1 cordoned by ann: disk",
        "h1 uncordoned by ann",
        "h1 GPU 0: Xid 79 (fallen off the bus); its host gets no new work before a reboot",
        "h1 GPU 0: Xid 79 (fallen off the bus) is over: put back into service by ann",
        "h2 lost: silent since 23:58:46 UTC, decided lost at 00:00:00 UTC",
        "h2 is back after 75 s",
        "h2 shuts down; its work moves elsewhere",
        "the agent of h2 was stopped; what runs there runs on",
        "h2 disk.state_dir: /var/lib/holdfast has 3 MiB free of the 1024 MiB that it must have; it gets no new work"
        " until that is over",
        "h2 disk.state_dir is well again",
        "h2 gpu.nvlink/GPU-1: GPU 1: 17 of 18 NVLinks are up; it still gets work, since many hosts have such findings"
        " at once: a common cause?",
        "h2 gpu.nvlink/GPU-1 is well again",
        "h2 is to be checked, as ann asked",
        "h2 is checked with h3 by the job host-check-9: it was slower than others",
        "h2 was checked with h3: net.tcp 9.5 GB/s (GPUs: ImportError)",
        "h2 is being drained by ann; remaining work is moved at the deadline: upgrade",
        "h2 is drained: no work is left on it",
        "h2 uncordoned by ann",
        "h2 fenced by ann: nothing runs there any more (no power)",
        "h2: every process of b/0 is proven gone, its share is free again",
        "h2 refused: The agent of h2 is too old. Upgrade it.",
        "h2 throttled: its inventory messages exceed 4 MiB an hour",
        "h3 joined from 10.0.0.3 with 8 cores, 1 GPU",
        "h3 removed by ann; its certificates are void",
        "h2: maintenance (drain) by ann, in 59 s for 60 min: new disk",
        "h2: maintenance begins",
        "h2: maintenance is over; it stays cordoned: GPU 3: fell off the bus",
        "bob made viewer everywhere by ann",
        "bob made admin in project vision by ann",
        "role of bob in project vision removed by ann",
        "accounts of bob set to bob, vision by ann",
        "accounts of bob reset to the cluster's default by ann",
        "accounts of bob set to bob by ann",
        "token for a new host created by ann",
        "first certificate issued to host h4",
        "token for user bob created by ann",
        "secret wandb of user bob set by bob",
        "secret wandb of project vision set by ann",
        "secret wandb of user bob removed by bob",
        "user bob removed by ann; its certificates are void",
        "bob allowed to sign in again by ann",
        "bob signed in by https://id.lab, as user in project vision",
        "sign-in of bob ended",
        "message of the day set by ann",
        "submitted by ann: 4 ranks on 3 workers",
        "b ended as SUCCEEDED",
        "its turn has come",
        "queued: needs 2 GPUs on one host",
        "placement failed, try 1 of 3: needs 2 GPUs on one host (0 free on the best)",
        "placed on h1 (2 workers), h2",
        "installing requirements on h1",
        "generation 1 launched, rank 0 at 10.0.0.1:20001",
        "generation 1 is running",
        "workerpool0-0 rank 0 killed by signal 11",
        "generation 1 had reached step 7",
        "late exit report for workerpool0-0 rank 0: killed by signal 11",
        "restarting in place as generation 2: workerpool0-0 rank 0 (SIGNALED), restart 1 of 5",
        "first to fail was workerpool1-0 rank 2 (NONZERO_EXIT), restart 1 of 5",
        "action on hangs turned off by bob until 02:30:00 UTC, or: holdfast job hang-action a on",
        "action on hangs turned on by ann",
        "ann injects a fault: workerpool0-0 rank 0 runs 20 % of the time for 30 s",
        "no fault was injected into workerpool0-0 rank 0: nothing of the job runs there",
        "possible hang (GPUS_IDLE): no rank has moved for 31 s;"
        " nothing is done about it without --restart-on-hang; relaunch it with: holdfast job restart a",
        "stack dumps: workerpool1-0 rank 2 is in x.py:1 `get`",
        "hang confirmed, not acted on: the job is held for 12 s more; do so with: holdfast job restart a",
        "hang confirmed; with --restart-on-hang the gang would be relaunched in place now; EXTERNAL_WAIT: no rank of 4"
        " has moved for 600 s; workerpool1-0 rank 2 waits for a file (/data/x); do so with: holdfast job restart a",
        "no longer hangs: last progress 0 s ago",
        "possible hang (GPUS_SPIN): 3 GPUs spin; suspected: workerpool1-0 rank 2;"
        " nothing is done about it without --restart-on-hang; relaunch it with: holdfast job restart a",
        "stack dumps: none could be taken",
        "hang confirmed, relaunching in place: h1 was suspect in hang 1 too",
        "restarting in place as generation 3: workerpool1-0 rank 2 (HANG), hang restart 1 of 3 in a row",
        "cannot restart yet: processes of workerpool0-0 on h1 survive SIGKILL: pid 8 outlives KILL (state D);"
        " it goes on by itself once they are gone, or by: holdfast host fence h1",
        "possible hang (SILENCE): nothing new was printed for 31 min;"
        " nothing is done about it without --restart-on-hang; relaunch it with: holdfast job restart a",
        "hang confirmed, but no hang restarts are left",
        "restarting workerpool1-0 alone in place as generation 4:"
        " workerpool1-0 rank 2 (NONZERO_EXIT), restart 2 of 5",
        "workerpool1-0 launched as generation 4",
        "workerpool1-0 is running as generation 4",
        "workerpool0-0 trains apart from the rest of the job: 8 processes there are a whole world of their own; "
        "torchrun without --standalone, --nnodes and --rdzv-* options spans the job, and mpirun by mpi_gang.py",
        "generation 4 is back at step 701",
        "primary completed; the others are stopped",
        "moving away from h2; workers elsewhere stay there: workerpool1-0 rank 2 (SIGNALED)",
        "every process of workerpool0-0 is gone",
        "every process of workerpool1-0 is gone",
        "workerpool1-1 fenced: host unreachable past its lease",
        "the ranks get SIGUSR1, 30 s ahead of the drain of h1",
        "paused by bob; its ranks have 3 s to end",
        "paused: it holds no hosts; resume it with: holdfast job resume a",
        "resumed by ann",
        "placed on h1 (3 workers)",
        "its own spares are on h2 now",
        "cancelled by bob",
        "ending as CANCELLED: cancelled",
        "every process of workerpool0-0 is gone",
        "output of workerpool0-0 not archived: /out: Permission denied; tried again",
        "output of workerpool0-0 archived",
        "output of workerpool1-0 not archived: /out: Read-only file system; given up",
        "rank 1",
        "notification CANCELLED to ops failed: it answered with HTTP status 500",
        "deleted by ann",
        "h1 has nothing of it any more",
        "common cause of a, b: 2 hosts wait for storage at /data",
        "submitted by ann: 1 rank on 1 worker",
        "submitted by ann: 1 rank on 1 worker",
        "restored from a backup made 11 s before; waiting for hosts to report what they run",
        "found on h1 after the restore, running as generation 2",
        "no host knows of it",
        "h1 runs an orphaned worker: u workerpool0-0 is not in the restored log",
        "h1: orphaned u workerpool0-0 rank 0 COMPLETED",
        "h1: orphaned workers of u stopped by ann",
        "h1: orphaned worker u workerpool0-0 is gone",
        "nothing is left of what it ran before the restore",
        "maintenance of h1 in 12 s: its work moves to other hosts (new disk)",
        "the job uses 3 of 8 GPUs, for 28 s by now",
        "the job's GPUs are used again, or can't be read",
        "the job is 25 % slower than at its best, for 18 s by now; rank 3 on h1: the others wait for it, "
        "and it is often ready to run and has no core",
        "the job is as fast as before again",
        "every host has reported; the restore is complete",
        "the controller's ca certificate ends in 24 h: rotate the CA",
        "7 of 8 hosts are silent at once: likelier the network's or the controller's fault, so none is given up",
        "the controller's disk.state_dir: /var/lib/holdfast has 2 GiB free",
        "the controller's disk.state_dir is well again",
        "the controller's clock went forward by 24 h at once: no duration counts that",
        "submitted by ann: 1 rank on 1 worker",
        "ending as CANCELLED",
        "CANCELLED",
        "deleted: it ended more than 90 days ago",
        "nothing is left of it",
        "reservation conference of 8 H200 GPUs of rack=a, gpu in (h100,h200) for user bob in project vision made"
        " by ann",
        "reservation conference begins",
        "reservation conference deleted by bob",
        "quota of user ann set to 32 GPUs, any priority by root",
        "quota of each project without one set to any number of running jobs, 5 waiting jobs by root",
        "quota of user ann is that of the settings again, by root",
        "weight of project vision set to 2 by ann",
        "weight of project speech set to 0.5 by ann",
        "weight of project speech cleared by ann",
        "what projects have used counts half after 24 h from now on",
        "project vision is guaranteed 64 GPUs by ann",
        "project speech is guaranteed 1 GPU by ann",
        "guarantee of project speech cleared by ann",
        "template nightly@1 created by ann",
        "template nightly@2 created by bob",
        "schedule nightly created by ann: '0 3 * * *' in Europe/Berlin",
        "schedule nightly paused by ann",
        "schedule nightly resumed by ann",
        "run of 1970-01-01 00:00 UTC is n-1",
        "runs from 1970-01-01 00:00 UTC to 1970-01-01 00:00 UTC left out: full",
        "schedule gone created by ann: '@daily' in UTC",
        "schedule gone removed by ann",
        "template gone@1 created by ann",
        "template gone removed by ann",
    ]


def test_one_of_a_thing_is_not_many() -> None:
    cluster, one = Cluster(), Gang((Pool(1, Task(("true",))),))
    fold(
        cluster,
        event := ev.JobSubmitted(
            job_id="a",
            at=Wall(1.0),
            owner="ann",
            request_id="r",
            display_name="train",
            labels={},
            gang=one,
            spec_json="{}",
        ),
    )
    assert message_of(event, cluster.jobs["a"]) == "submitted by ann: 1 rank on 1 worker"
