"""What travels between controller and agent comes out as it went in, and no field is forgotten on the way."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from holdfast._session import codec
from holdfast._session.reports import (
    Exit,
    ExitReason,
    ExitReport,
    ReportedState,
    WorkerId,
    WorkerReport,
    decode_status,
    raised_in,
)
from holdfast.errors import InvalidInput
from holdfast.v1 import agent_pb2, job_pb2

KEY = WorkerId("job-1", "workerpool0-3")
EXIT = Exit(
    attempt=2,
    generation=5,
    rank=7,
    reason=ExitReason.NONZERO_EXIT,
    exit_code=3,
    signal=9,
    core_dumped=True,
    message="exited with code 3",
    end_time=1.75e9 + 0.5,
    stderr_tail=("one", "two"),
    raised="ValueError: bad batch",
)
EXIT_REPORT = ExitReport(11, KEY, EXIT, port_taken=True)
WORKER_REPORT = WorkerReport(
    key=KEY,
    attempt=2,
    generation=5,
    state=ReportedState.STUCK,
    port=20_001,
    master_port=20_002,
    shim_pid=99,
    pids=((6, 1006), (7, 1007)),
    message="outlive KILL",
    host_fault=True,
    gpus=("GPU-1",),
)
ROUNDS: list[tuple[Any, Any, Any]] = [
    (EXIT_REPORT, codec.exit_report_to_proto, codec.exit_report_from_proto),
    (WORKER_REPORT, codec.worker_report_to_proto, codec.worker_report_from_proto),
]
UNSENT = {
    "Exit.late_exit",  # for users: the controller adds it
    "Rank.local_rank",  # likewise
}


def plain(value: Any) -> Iterator[tuple[str, Any]]:
    """Every field of a value and of the values in it."""
    for each in dataclasses.fields(value):
        inner = getattr(value, each.name)
        yield f"{type(value).__name__}.{each.name}", inner
        if dataclasses.is_dataclass(inner):
            yield from plain(inner)


def unset(message: Message) -> Iterator[str]:
    """Every field of a message and of the messages in it that has no value, or the default one."""
    present = {field.name for field, _ in message.ListFields()}
    for field in message.DESCRIPTOR.fields:
        if field.name not in present:
            yield f"{message.DESCRIPTOR.name}.{field.name}"
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.full_name.startswith("google."):
            for each in [value] if isinstance(value, Message) else value:
                yield from unset(each)


@pytest.mark.parametrize(("value", "to_proto", "from_proto"), ROUNDS)
def test_value_with_every_field_set_fills_every_field_and_comes_back(
    value: Any, to_proto: Any, from_proto: Any
) -> None:
    assert [name for name, inner in plain(value) if inner in (None, "", 0, (), False)] == []
    message = to_proto(value)
    assert set(unset(message)) - UNSENT == set()
    assert from_proto(type(message).FromString(message.SerializeToString())) == value


numbers, texts = st.integers(0, 2**31 - 1), st.text(max_size=20)
optional = st.none() | st.integers(0, 255)
exits = st.builds(
    Exit,
    attempt=numbers,
    generation=numbers,
    rank=numbers,
    reason=st.sampled_from(ExitReason),
    exit_code=optional,
    signal=optional,
    core_dumped=st.booleans(),
    message=texts,
    end_time=st.integers(0, 2**31).map(lambda halves: halves / 2),
    stderr_tail=st.lists(texts).map(tuple),
    raised=texts,
)
keys = st.builds(WorkerId, texts, texts)


@given(st.builds(ExitReport, numbers, keys, exits, st.booleans()))
def test_any_exit_comes_back_equal(report: ExitReport) -> None:
    assert codec.exit_report_from_proto(codec.exit_report_to_proto(report)) == report


@given(
    st.builds(
        WorkerReport,
        key=keys,
        attempt=numbers,
        generation=numbers,
        state=st.sampled_from(ReportedState),
        port=numbers,
        pids=st.dictionaries(numbers, numbers).map(lambda pids: tuple(sorted(pids.items()))),
        message=texts,
        host_fault=st.booleans(),
        gpus=st.lists(texts).map(tuple),
    )
)
def test_any_worker_s_state_comes_back_equal(report: WorkerReport) -> None:
    assert codec.worker_report_from_proto(codec.worker_report_to_proto(report)) == report


def test_every_reason_and_state_has_a_number_of_its_own() -> None:
    reasons = {name.removeprefix("EXIT_REASON_") for name in job_pb2.ExitReason.keys()}  # noqa: SIM118
    states = {name.removeprefix("REPORTED_STATE_") for name in agent_pb2.ReportedState.keys()}  # noqa: SIM118
    assert reasons - {"UNSPECIFIED"} == {reason.name for reason in ExitReason}
    assert states - {"UNSPECIFIED"} == {state.name for state in ReportedState}


def test_number_of_a_newer_peer_is_refused_with_what_to_upgrade() -> None:
    unknown: Any = 99
    with pytest.raises(InvalidInput, match="upgrade the controller first"):
        codec.exit_from_proto(job_pb2.Exit(reason=unknown))
    with pytest.raises(InvalidInput, match="99 is no value"):
        codec.worker_report_from_proto(agent_pb2.WorkerReport(state=unknown))


def test_exit_of_an_agent_of_0_1_0_has_what_was_raised_in_its_message() -> None:
    told = "exited with code 1; it raised ValueError: bad batch; ValueError: bad batch"
    reason = job_pb2.EXIT_REASON_NONZERO_EXIT
    exit_ = codec.exit_from_proto(job_pb2.Exit(rank=1, reason=reason, exit_code=1, message=told))
    assert (exit_.message, exit_.raised) == (told, "ValueError: bad batch")
    of_now = codec.exit_to_proto(dataclasses.replace(EXIT, message=told, raised=""))
    assert codec.exit_from_proto(of_now).raised == ""


@pytest.mark.parametrize(
    ("message", "raised"),
    [
        ("exited with code 1", ""),
        ("", ""),
        ("exited with code 1; it raised KeyError: 3", "KeyError: 3"),
        ("exited with code 1; it raised a; b; a; b", "a; b"),
        ("exited with code 1; it raised a; the kernel has killed a process of this worker", "a"),
    ],
)
def test_raised_exception_is_found_in_old_messages(message: str, raised: str) -> None:
    assert raised_in(message) == raised


@pytest.mark.parametrize(
    ("status", "decoded"),
    [
        (None, (None, None, False)),
        (0, (0, None, False)),
        (3 << 8, (3, None, False)),
        (9, (None, 9, False)),
        (11 | 0x80, (None, 11, True)),
    ],
)
def test_wait_status_is_decoded(status: int | None, decoded: tuple[int | None, int | None, bool]) -> None:
    assert decode_status(status) == decoded
