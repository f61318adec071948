"""What travels between controller and agent comes out as it went in, and no field is forgotten on the way."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from holdfast._base.job_file.choices import NumaBinding
from holdfast._session import codec
from holdfast._session.assignment import (
    Assignment,
    Launch,
    PackagedCode,
    Phase,
    Rendezvous,
    SecretVariable,
    Task,
    WarmStart,
)
from holdfast._session.reports import (
    Exit,
    ExitReason,
    ExitReport,
    RankBinding,
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
    host_fault=True,
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
    silent_peers=((1, 4), (6, 5)),
    warm_ranks=2,
    warm="2 ranks parked: 1932 modules wait in 74 MiB",
    in_process_ranks=1,
    bindings=tuple(
        (rank, RankBinding("0-15,64-79", True, "0", ("mlx5_0", "mlx5_1"), "2 of its cores are far"))
        for rank in (6, 7)
    ),
)
LAUNCH = Launch(
    task=Task(
        command=("python", "train.py"),
        args=("--fast",),
        env=(("A", "1"), ("B", "$(A)")),
        working_directory="/home/ada",
        image="registry.example/train:1",
        code=PackagedCode("ab" * 32, ("numpy",), ("pkg.tar.gz",)),
        account="ada",
        secrets=(SecretVariable("TOKEN", secret="wandb"), SecretVariable("KEY", "/etc/key", "other")),
        terminal=True,
    ),
    first_rank=8,
    processes=2,
    world_size=16,
    gpus=("GPU-1", "GPU-2"),
    restart_count=3,
    owner="ann",
    last_end="HANG",
    rendezvous=Rendezvous("10.0.0.1", 20_001, "s3cret", (("10.0.0.1:1", "10.0.0.2:2"), ("10.0.0.3:3",))),
    pool=1,
    replica=4,
    worker_count=8,
    worker_index=5,
    cpu_count=32,
    memory_mb=1024,
    step_pattern=r"step (\d+)",
    output_uri="gs://bucket/out",
    spec_json='{"workerPoolSpecs": []}',
    process_starts=2,
    lacks="the secret wandb is gone",
    idle_below_pct=5,
    hang_timeout_s=7.5,
    warm=WarmStart(("mylib.data",), ("pandas",), in_process=True),
    numa_binding=NumaBinding.EXCLUSIVE,
)
ASSIGNMENT = Assignment(
    epoch=6,
    key=KEY,
    attempt=2,
    generation=5,
    phase=Phase.RUN,
    grace_s=7.5,
    stop_reason=ExitReason.HANG_KILLED,
    launch=LAUNCH,
    fence_s=60.0,
    peer_fence_s=50.0,
    warn_signal=10,
    notice_signal=12,
    notice_s=30.0,
    hung_ranks=(3, 4),
)
ROUNDS: list[tuple[Any, Any, Any]] = [
    (EXIT_REPORT, codec.exit_report_to_proto, codec.exit_report_from_proto),
    (WORKER_REPORT, codec.worker_report_to_proto, codec.worker_report_from_proto),
    (ASSIGNMENT, codec.assignment_to_proto, codec.assignment_from_proto),
]
UNSENT = {
    "Exit.late_exit",  # for users: the controller adds it
    "Rank.local_rank",  # likewise
    "Launch.secrets",  # their values, which the controller's vault adds
    "SecretEnvVar.file",  # of a secret that is the controller's
    "Rendezvous.packed_pools",  # instead of its pools
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


@given(
    st.builds(
        Assignment,
        epoch=numbers,
        key=keys,
        attempt=numbers,
        generation=numbers,
        phase=st.sampled_from(Phase),
        grace_s=st.integers(0, 10_000).map(lambda halves: halves / 2),
        stop_reason=st.sampled_from(ExitReason),
        launch=st.none()
        | st.builds(
            Launch,
            task=st.builds(
                Task,
                command=st.lists(texts).map(tuple),
                env=st.lists(st.tuples(texts, texts)).map(tuple),
                image=texts,
                code=st.none() | st.builds(PackagedCode, texts, st.lists(texts).map(tuple)),
                secrets=st.lists(st.builds(SecretVariable, texts, texts, texts)).map(tuple),
            ),
            first_rank=numbers,
            processes=numbers,
            world_size=numbers,
            output_uri=texts,
            spec_json=texts,
            rendezvous=st.none()
            | st.builds(Rendezvous, texts, numbers, texts, st.lists(st.lists(texts).map(tuple)).map(tuple)),
        ),
        fence_s=st.integers(0, 10_000).map(lambda halves: halves / 2),
        peer_fence_s=st.integers(0, 10_000).map(lambda halves: halves / 2),
        warn_signal=numbers,
    )
)
def test_any_assignment_comes_back_equal(assignment: Assignment) -> None:
    assert codec.assignment_from_proto(codec.assignment_to_proto(assignment)) == assignment


def test_an_assignment_is_the_same_within_the_message_that_is_sent() -> None:
    sent = agent_pb2.SessionResponse()
    codec.assignment_to_proto(ASSIGNMENT, sent.assignment)
    assert sent == agent_pb2.SessionResponse(assignment=codec.assignment_to_proto(ASSIGNMENT))
    assert sent.assignment.launch.rendezvous.pools


def order_of_a_large_gang(workers: int = 2048) -> Assignment:
    """Hosts and ports as a site has them: no two are alike."""
    addresses = tuple(f"10.{n >> 8}.{n & 255}.7:{20_000 + n * 7919 % 10_000}" for n in range(workers))
    rendezvous = Rendezvous("10.0.0.7", 31_000, "s3cret", (addresses[:1], addresses[1:]))
    return dataclasses.replace(ASSIGNMENT, launch=dataclasses.replace(LAUNCH, rendezvous=rendezvous))


def test_addresses_of_a_large_gang_are_packed_for_agents_that_unpack_them() -> None:
    order = order_of_a_large_gang()
    packed, plain = (codec.assignment_to_proto(order, packed=each) for each in (True, False))
    assert codec.assignment_from_proto(packed) == codec.assignment_from_proto(plain) == order
    assert 3 * packed.ByteSize() < plain.ByteSize()
    assert not plain.launch.rendezvous.packed_pools, "an agent of an earlier release would find none"


def test_addresses_of_a_small_gang_stay_as_they_are() -> None:
    order = order_of_a_large_gang(codec.PACKED_FROM - 1)
    assert codec.assignment_to_proto(order, packed=True) == codec.assignment_to_proto(order)


@pytest.mark.parametrize(
    "packed",
    [
        b"no zlib",
        zlib.compress(b"\xff no rendezvous"),
        zlib.compress(bytes(codec.UNPACKED_MOST + 1)),
        zlib.compress(b"x" * 100)[:-6],
    ],
)
def test_addresses_that_cannot_be_unpacked_are_refused(packed: bytes) -> None:
    message = codec.assignment_to_proto(ASSIGNMENT)
    message.launch.rendezvous.packed_pools = packed
    with pytest.raises(InvalidInput, match="packed_pools"):
        codec.assignment_from_proto(message)


def test_hosts_are_not_told_whose_a_secret_is() -> None:
    task = Task(("x",), secrets=(SecretVariable("TOKEN", secret="wandb", holder="user/ann"),))
    message = codec.assignment_to_proto(dataclasses.replace(ASSIGNMENT, launch=Launch(task, 0, 1, 1)))
    assert b"ann" not in message.SerializeToString()


def test_rendezvous_of_a_generation_is_encoded_once_and_never_taken_for_another() -> None:
    other = dataclasses.replace(LAUNCH, rendezvous=Rendezvous("10.9.9.9", 1, "x"))
    found = [
        codec.assignment_to_proto(dataclasses.replace(ASSIGNMENT, launch=each)) for each in (LAUNCH, other, LAUNCH)
    ]
    addresses = [each.launch.rendezvous.master_address for each in found]
    assert addresses == ["10.0.0.1", "10.9.9.9", "10.0.0.1"]


@pytest.mark.parametrize(
    ("spec", "uri"),
    [
        ('{"baseOutputDirectory": {"outputUriPrefix": "/data/out"}}', "/data/out"),
        ('{"baseOutputDirectory": null}', ""),
        ("{}", ""),
        ("", ""),
        ("[1]", ""),
    ],
)
def test_controller_of_0_1_0_says_where_results_go_in_the_spec_alone(spec: str, uri: str) -> None:
    message = codec.assignment_to_proto(ASSIGNMENT)
    message.launch.job_spec_json = spec
    message.launch.ClearField("output_uri")
    launch = codec.assignment_from_proto(message).launch
    assert launch is not None and launch.output_uri == uri


def test_task_knows_whether_it_starts_its_ranks_by_itself() -> None:
    assert Task(("torchrun", "train.py")).may_launch
    assert Task(("./run.sh",)).may_launch
    assert not Task(("python", "train.py")).may_launch


def test_unknown_phase_is_refused_and_an_unknown_reason_to_stop_is_an_ordinary_stop() -> None:
    unknown: Any = 99
    message = codec.assignment_to_proto(ASSIGNMENT)
    message.stop_reason = unknown
    assert codec.assignment_from_proto(message).stop_reason is ExitReason.STOPPED
    message.phase = unknown
    with pytest.raises(InvalidInput, match="upgrade the agent first"):
        codec.assignment_from_proto(message)


def test_every_reason_and_state_has_a_number_of_its_own() -> None:
    reasons = {name.removeprefix("EXIT_REASON_") for name in job_pb2.ExitReason.keys()}  # noqa: SIM118
    states = {name.removeprefix("REPORTED_STATE_") for name in agent_pb2.ReportedState.keys()}  # noqa: SIM118
    assert reasons - {"UNSPECIFIED"} == {reason.name for reason in ExitReason}
    assert states - {"UNSPECIFIED"} == {state.name for state in ReportedState}
    phases = {name.removeprefix("ASSIGNMENT_PHASE_") for name in agent_pb2.AssignmentPhase.keys()}  # noqa: SIM118
    assert phases - {"UNSPECIFIED"} == {phase.name for phase in Phase}


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
