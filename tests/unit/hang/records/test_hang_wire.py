"""Features and evidence survive the wire, what is absent included; what is no evidence is refused."""

from __future__ import annotations

import base64
import dataclasses
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast._base.printable import one_line
from holdfast._session import hang_wire
from holdfast.hang.evidence import evidence_json
from holdfast.hang.evidence.evidence import Evidence, ProcessEvidence, RankEvidence
from holdfast.hang.pipeline.features import (
    GpuFeatures,
    GpuLook,
    Motion,
    OutputFeatures,
    RankFeatures,
    WorkerFeatures,
)
from holdfast.hang.pipeline.samples import State
from holdfast.hang.pipeline.waits import Wait, WaitKind
from holdfast.v1 import agent_pb2

numbers = st.floats(allow_nan=False, width=64)
maybe = st.none() | numbers
words = st.text(st.characters(codec="utf-8"), max_size=8).map(one_line)
gpus = st.builds(GpuFeatures, st.sampled_from(GpuLook), maybe, maybe, maybe, maybe, maybe)
waits = st.builds(Wait, st.sampled_from(WaitKind), words, maybe, words, maybe)
ranks = st.builds(
    RankFeatures,
    rank=st.integers(0, 99_999),
    motion=st.sampled_from(Motion),
    still_since_s=numbers,
    still_longest_s=numbers,
    last_work_s=maybe,
    work=words,
    helpers_s=maybe,
    cpu_share=numbers,
    switches_s=maybe,
    switch_share=maybe,
    state=st.none() | st.sampled_from(State),
    wchan=words,
    gpu=st.none() | gpus,
    exit_code=st.none() | st.integers(-64, 255),
    traced=st.booleans(),
    paused_by_us=st.booleans(),
    mount=words,
    wait=st.none() | waits,
    hardware=words,
    broken=st.booleans(),
)
vectors = st.builds(
    WorkerFeatures,
    worker=words,
    host=st.just("host-1"),
    at_s=numbers,
    ranks=st.lists(ranks, max_size=3).map(tuple),
    output=st.builds(
        OutputFeatures,
        *(maybe, maybe, maybe, st.booleans(), st.booleans()),
        began_work=st.none() | st.booleans(),
        step_total=maybe,
        step_fell=st.booleans(),
        phase=st.sampled_from(["", "train", "evaluate", "save"]),
        saved_step=maybe,
        resumed_step=maybe,
        bar_step=maybe,
        bar_is_step=st.booleans(),
        step_s=maybe,
        first_step=maybe,
        first_step_s=maybe,
    ),
    declared_idle=words,
)


def travelled(features: WorkerFeatures) -> WorkerFeatures:
    sent = hang_wire.to_proto("job-1", 3, features, 5.0).SerializeToString()
    return hang_wire.from_proto("host-1", agent_pb2.FeatureReport.FromString(sent))


@given(vectors)
def test_features_survive_the_wire(features: WorkerFeatures) -> None:
    assert travelled(features) == features


def test_what_is_absent_stays_absent_and_zero_stays_zero() -> None:
    absent = RankFeatures(1, Motion.BLOCKED, 7.0, gpu=GpuFeatures(GpuLook.UNCLEAR))
    zero = RankFeatures(
        2,
        Motion.EXITED,
        0.0,
        last_work_s=0.0,
        helpers_s=0.0,
        switches_s=0.0,
        switch_share=0.0,
        exit_code=0,
        gpu=GpuFeatures(GpuLook.IDLE, 0.0, 0.0, 0.0, 0.0, 0.0),
    )
    output = OutputFeatures(last_progress_s=None, step=0.0)
    features = WorkerFeatures("workerpool0-0", "host-1", 1.0, (absent, zero), output)
    assert travelled(features) == features


def test_a_phase_that_this_version_does_not_know_is_none() -> None:
    sent = agent_pb2.FeatureReport(phase="dream")
    assert hang_wire.from_proto("host-1", sent).output.phase == ""


def test_a_kind_of_wait_that_this_version_does_not_know_is_unknown() -> None:
    sent = agent_pb2.FeatureReport(ranks=[agent_pb2.RankFeatures(wait=agent_pb2.Wait(kind="MOON", what="x"))])
    assert hang_wire.from_proto("host-1", sent).ranks[0].wait == Wait(WaitKind.UNKNOWN, "x")


def test_a_wait_for_a_process_at_work_travels() -> None:
    wait = Wait(WaitKind.CHILD, "pid 7 `python`, at work", 4.0, "train.py:9 `pool.next`", at_work=True)
    rank = RankFeatures(0, Motion.BLOCKED, 4.0, wait=wait)
    features = WorkerFeatures("workerpool0-0", "host-1", 5.0, (rank,))
    assert travelled(features).ranks[0].wait == wait


def test_the_report_says_whose_it_is_and_when_it_was_sent() -> None:
    report = hang_wire.to_proto("job-1", 3, WorkerFeatures("workerpool0-0", "host-1", 4.0, ()), 5.0)
    assert (report.job_id, report.generation, report.worker) == ("job-1", 3, "workerpool0-0")
    assert (report.at_s, report.sent_s) == (4.0, 5.0)


def test_every_field_of_the_features_travels() -> None:
    for model, message, apart in (
        (RankFeatures, agent_pb2.RankFeatures, set()),
        (GpuFeatures, agent_pb2.GpuFeatures, set()),
        (OutputFeatures, agent_pb2.FeatureReport, set()),
        (WorkerFeatures, agent_pb2.FeatureReport, {"host", "output"}),
    ):
        there = {field.name for field in message.DESCRIPTOR.fields}
        assert {field.name for field in dataclasses.fields(model)} - apart <= there


def test_words_of_a_newer_agent_count_as_unseen() -> None:
    rank = agent_pb2.RankFeatures(motion="DANCING", state="?", gpu=agent_pb2.GpuFeatures(look="SPARKLING"))
    [read] = hang_wire.from_proto("host-1", agent_pb2.FeatureReport(ranks=[rank])).ranks
    assert (read.motion, read.state, read.gpu) == (Motion.UNSEEN, None, GpuFeatures(GpuLook.BLIND))


def test_words_of_a_host_are_safe_to_show_and_bounded() -> None:
    rank = agent_pb2.RankFeatures(
        work="\x1b]0;t\x07\n" + "x" * 9999, wait=agent_pb2.Wait(kind="FILE", what="a\u202eb")
    )
    report = agent_pb2.FeatureReport(ranks=[rank], declared_idle="a\r\nb")
    found = hang_wire.from_proto("host-1", report)
    [read] = found.ranks
    assert read.work.isprintable() and len(read.work) == hang_wire.WORDS_MOST
    assert read.wait is not None and read.wait.what == "a?b"
    assert found.declared_idle == "a b"


def evidence(ranks: int = 2) -> Evidence:
    each = (RankEvidence(rank, ProcessEvidence(100 + rank), stdout=("step 1",)) for rank in range(ranks))
    return Evidence("job-1", "workerpool0-0", "host-1", 1, 1_700_000_000.5, ranks=tuple(each))


def test_evidence_survives_packing() -> None:
    packed = hang_wire.pack(evidence())
    assert hang_wire.unpack(packed) == evidence()
    assert len(hang_wire.pack(evidence(50))) < len(evidence_json.encode(evidence(50))) / 4


def test_a_bomb_is_refused_before_it_grows() -> None:
    bomb = zlib.compress(b" " * (evidence_json.MAX_BYTES * 200), 9)
    assert len(bomb) < 200_000
    with pytest.raises(ValueError, match="more than 524288 bytes"):
        hang_wire.unpack(bomb)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not compressed",
        zlib.compress(b"not JSON"),
        zlib.compress(b"[]"),
        zlib.compress(b"\xff\xfe"),
        zlib.compress(b"{}"),
        zlib.compress(json.dumps({"version": 2}).encode()),
        zlib.compress(json.dumps({"version": 1, "frames": [["f", "f.py", "x"]]}).encode()),
        zlib.compress(json.dumps({"version": 1, "frames": []}).encode()),
        zlib.compress(b"[" * 100_000),
    ],
)
def test_what_is_no_evidence_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        hang_wire.unpack(content)


@pytest.mark.parametrize(
    "text",
    [
        '{"version": 1, "frames": [], "takenAtS": 1%s}' % ("0" * 400),
        '{"version": 1, "frames": [["f", "x.py", Infinity]]}',
    ],
)
def test_numbers_that_are_too_big_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        hang_wire.unpack(zlib.compress(text.encode()))


def test_evidence_with_a_tail_is_refused() -> None:
    """It would be kept, and nobody would know why it is so big."""
    with pytest.raises(ValueError, match="more follows"):
        hang_wire.unpack(hang_wire.pack(evidence()) + b"x" * 1000)


def test_half_an_evidence_is_refused() -> None:
    packed = hang_wire.pack(evidence(20))
    with pytest.raises(ValueError, match=r"\w"):
        hang_wire.unpack(packed[: len(packed) // 2])


def test_dumps_of_flight_recorders_travel_and_the_largest_stay_behind() -> None:
    dumps = {0: zlib.compress(b"one"), 9: zlib.compress(b"two")}
    assert hang_wire.unpack_dumps(hang_wire.pack_dumps(dumps)) == {0: b"one", 9: b"two"}
    assert hang_wire.pack_dumps({}) == b"" and hang_wire.unpack_dumps(b"") == {}
    packed = hang_wire.pack_dumps({0: b"x" * hang_wire.DUMPS_BYTES, **dict.fromkeys(range(1, 9), dumps[0])})
    assert sorted(hang_wire.unpack_dumps(packed)) == list(range(1, 9))


@pytest.mark.parametrize("content", [b"[", b"[1]", b'{"a": ""}', b'{"1": 7}', b'{"1": "!!"}', b'{"1": "eA=="}'])
def test_what_are_no_dumps_is_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError):
        hang_wire.unpack_dumps(content)


def test_a_bomb_is_no_dump() -> None:
    bomb = base64.b64encode(zlib.compress(b" " * (hang_wire.DUMP_BYTES + 1))).decode()
    with pytest.raises(ValueError, match="more than"):
        hang_wire.unpack_dumps(json.dumps({"1": bomb}).encode())
