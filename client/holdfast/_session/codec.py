"""The session's values to protobuf and back: the only place that knows both.

A plain field that is called the same on both sides travels by itself (``Alike``); the others are named here.

Decoding checks nothing but enums. What a peer may say at most is for its receiver to judge.
"""

from __future__ import annotations

import enum
import json
import zlib
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from google.protobuf.message import DecodeError

from holdfast._base.job_file.choices import NumaBinding
from holdfast._base.proto_values import duration, seconds, timestamp
from holdfast._session.alike import Alike
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
    raised_in,
)
from holdfast.errors import InvalidInput, Violation
from holdfast.v1 import agent_pb2, job_pb2, spec_pb2


class _Enum:
    """One of our enums and its twin on the wire. Errors name its ``field`` and its ``reader``."""

    def __init__(
        self, ours: type[enum.Enum], wire: Any, prefix: str, field: str, reader: str = "controller"
    ) -> None:
        self._field, self._reader = field, reader
        self._numbers = {each: wire.Value(prefix + each.name) for each in ours}
        self._ours: dict[int, Any] = {number: each for each, number in self._numbers.items()}

    def encode(self, value: enum.Enum) -> Any:
        """Its number on the wire."""
        return self._numbers[value]

    def decode(self, number: int, default: enum.Enum | None = None) -> Any:
        """``default``, or else ``InvalidInput``, for a number that this version does not know."""
        found = self._ours.get(number, default)
        if found is None:
            problem = f"{number} is no value that this {self._reader} knows"
            raise InvalidInput([Violation(self._field, problem, f"upgrade the {self._reader} first")])
        return found


_REASONS = _Enum(ExitReason, job_pb2.ExitReason, "EXIT_REASON_", "exit_reason")
_STATES = _Enum(ReportedState, agent_pb2.ReportedState, "REPORTED_STATE_", "reported_state")
_PHASES = _Enum(Phase, agent_pb2.AssignmentPhase, "ASSIGNMENT_PHASE_", "phase", "agent")
_BINDINGS = _Enum(NumaBinding, spec_pb2.NumaBinding, "NUMA_BINDING_", "numa_binding", "agent")
KNOWN_GENERATIONS = 64
"""Rendezvous that are kept encoded."""
PACKED_FROM = 64
"""Workers whose addresses are worth packing: they take 1 kB of each order, and those of all grow with the square."""
UNPACKED_MOST = 4 << 20
"""Bytes of packed addresses: as many as a message may have."""


_EXIT = Alike(Exit, job_pb2.Exit)
_BINDING = Alike(RankBinding, job_pb2.RankBinding)
_REPORT = Alike(WorkerReport, agent_pb2.WorkerReport)
_ASSIGNMENT = Alike(Assignment, agent_pb2.Assignment)
_LAUNCH = Alike(Launch, agent_pb2.Launch)
_TASK = Alike(Task, spec_pb2.ProcessSpec)
_CODE = Alike(PackagedCode, spec_pb2.PackagedCode)
_SECRET = Alike(SecretVariable, spec_pb2.SecretEnvVar)


def exit_to_proto(exit_: Exit) -> job_pb2.Exit:
    """How a rank ended, without the last lines of its output, which travel beside it."""
    return job_pb2.Exit(
        **_EXIT.encode(exit_),
        reason=_REASONS.encode(exit_.reason),
        end_time=timestamp(exit_.end_time) if exit_.end_time else None,
    )


def exit_from_proto(message: job_pb2.Exit, stderr_tail: Iterable[str] = ()) -> Exit:
    """The same again. Raises ``InvalidInput`` for an unknown reason."""
    found = _EXIT.decode(message)
    if found["raised"] is None:  # from a release that has no such field
        found["raised"] = raised_in(message.message)
    found["reason"] = _REASONS.decode(message.reason)
    found["end_time"] = seconds(message.end_time)
    found["stderr_tail"] = tuple(stderr_tail)
    return Exit(**found)


def exit_report_to_proto(report: ExitReport) -> agent_pb2.ExitReport:
    """A rank's exit, for the controller."""
    return agent_pb2.ExitReport(
        sequence=report.sequence,
        job_id=report.key.job,
        worker=report.key.worker,
        exit=exit_to_proto(report.exit),
        stderr_tail=report.exit.stderr_tail,
        port_taken=report.port_taken,
    )


def exit_report_from_proto(message: agent_pb2.ExitReport) -> ExitReport:
    """The same again. Raises ``InvalidInput`` for an unknown reason."""
    return ExitReport(
        sequence=message.sequence,
        key=WorkerId(message.job_id, message.worker),
        exit=exit_from_proto(message.exit, message.stderr_tail),
        port_taken=message.port_taken,
    )


def binding_to_proto(binding: RankBinding | None) -> job_pb2.RankBinding | None:
    """Cores, memory and network cards of a rank, for users and for the controller."""
    return None if binding is None else job_pb2.RankBinding(**_BINDING.encode(binding))


def worker_report_to_proto(report: WorkerReport) -> agent_pb2.WorkerReport:
    """A worker's state, for the controller."""
    bound = dict(report.bindings)
    return agent_pb2.WorkerReport(
        job_id=report.key.job,
        worker=report.key.worker,
        **_REPORT.encode(report),
        state=_STATES.encode(report.state),
        ranks=[
            job_pb2.Rank(rank=rank, pid=pid, binding=binding_to_proto(bound.get(rank))) for rank, pid in report.pids
        ],
        silent_peers=[
            agent_pb2.SilentPeer(worker_index=index, generation=generation)
            for index, generation in report.silent_peers
        ],
    )


def worker_report_from_proto(message: agent_pb2.WorkerReport) -> WorkerReport:
    """The same again. Raises ``InvalidInput`` for an unknown state."""
    return WorkerReport(
        key=WorkerId(message.job_id, message.worker),
        **_REPORT.decode(message),
        state=_STATES.decode(message.state),
        pids=tuple(sorted((each.rank, each.pid) for each in message.ranks)),
        silent_peers=tuple((each.worker_index, each.generation) for each in message.silent_peers),
        bindings=tuple(
            (each.rank, RankBinding(**_BINDING.decode(each.binding)))
            for each in sorted(message.ranks, key=lambda each: each.rank)
            if each.HasField("binding")
        ),
    )


def assignment_to_proto(
    assignment: Assignment, into: agent_pb2.Assignment | None = None, *, packed: bool = False
) -> agent_pb2.Assignment:
    """A worker's desired state, for its agent; written ``into`` a message. The values of secrets are not in it.

    ``packed``: the agent understands addresses of a large gang in fewer bytes.
    """
    message = agent_pb2.Assignment(
        **_ASSIGNMENT.encode(assignment),
        job_id=assignment.key.job,
        worker=assignment.key.worker,
        phase=_PHASES.encode(assignment.phase),
        grace_period=duration(assignment.grace_s),
        stop_reason=_REASONS.encode(assignment.stop_reason),
        launch=_launch_to_proto(assignment.launch) if assignment.launch is not None else None,
        fence=duration(assignment.fence_s) if assignment.fence_s else None,
        peer_fence=duration(assignment.peer_fence_s) if assignment.peer_fence_s else None,
        notice=duration(assignment.notice_s) if assignment.notice_s else None,
    )
    if into is not None:
        into.CopyFrom(message)
        message = into
    if assignment.launch is not None and assignment.launch.rendezvous is not None:
        # Last, in its place: a message that is made around another one copies it, and this has every worker's address.
        message.launch.rendezvous.CopyFrom(_rendezvous_to_proto(assignment.launch.rendezvous, packed=packed))
    return message


def assignment_from_proto(message: agent_pb2.Assignment) -> Assignment:
    """The same again; an unknown reason to stop is STOPPED.

    Raises ``InvalidInput`` for an unknown phase, and for addresses that can't be unpacked.
    """
    return Assignment(
        **_ASSIGNMENT.decode(message),
        key=WorkerId(message.job_id, message.worker),
        phase=_PHASES.decode(message.phase),
        grace_s=seconds(message.grace_period),
        stop_reason=_REASONS.decode(message.stop_reason, ExitReason.STOPPED),
        launch=_launch_from_proto(message.launch) if message.HasField("launch") else None,
        fence_s=seconds(message.fence),
        peer_fence_s=seconds(message.peer_fence),
        notice_s=seconds(message.notice),
    )


def _launch_to_proto(launch: Launch) -> agent_pb2.Launch:
    """A launch without its rendezvous."""
    return agent_pb2.Launch(
        **_LAUNCH.encode(launch),
        process=_task_to_proto(launch.task),
        image_uri=launch.task.image,
        run_as=launch.task.account,
        job_spec_json=launch.spec_json,
        warm=None if launch.warm is None else _warm_to_proto(launch.warm),
        numa_binding=_BINDINGS.encode(launch.numa_binding),
    )


def _warm_to_proto(warm: WarmStart) -> spec_pb2.WarmStart:
    # An agent of an earlier release takes any mode for AUTO.
    mode = spec_pb2.WARM_MODE_IN_PROCESS if warm.in_process else spec_pb2.WARM_MODE_AUTO
    return spec_pb2.WarmStart(mode=mode, preload=warm.preload, never=warm.never)


def _warm_from_proto(message: spec_pb2.WarmStart) -> WarmStart:
    in_process = message.mode == spec_pb2.WARM_MODE_IN_PROCESS
    return WarmStart(tuple(message.preload), tuple(message.never), in_process)


def _launch_from_proto(message: agent_pb2.Launch) -> Launch:
    plain = _LAUNCH.decode(message)
    if plain["output_uri"] is None:
        plain["output_uri"] = output_uri_in(message.job_spec_json)
    return Launch(
        **plain,
        task=_task_from_proto(message),
        rendezvous=_rendezvous_from_proto(message.rendezvous) if message.HasField("rendezvous") else None,
        spec_json=message.job_spec_json,
        warm=_warm_from_proto(message.warm) if message.HasField("warm") else None,
        numa_binding=_BINDINGS.decode(message.numa_binding, NumaBinding.NONE),
    )


def _task_to_proto(task: Task) -> spec_pb2.ProcessSpec:
    return spec_pb2.ProcessSpec(
        **_TASK.encode(task),
        env=[spec_pb2.EnvVar(name=name, value=value) for name, value in task.env],
        packaged_code=None if task.code is None else spec_pb2.PackagedCode(**_CODE.encode(task.code)),
        secret_env=[spec_pb2.SecretEnvVar(**_SECRET.encode(each)) for each in task.secrets],
    )


def _task_from_proto(launch: agent_pb2.Launch) -> Task:
    message = launch.process
    return Task(
        **_TASK.decode(message),
        env=tuple((each.name, each.value) for each in message.env),
        image=launch.image_uri,
        code=PackagedCode(**_CODE.decode(message.packaged_code)) if message.HasField("packaged_code") else None,
        account=launch.run_as,
        secrets=tuple(SecretVariable(**_SECRET.decode(each)) for each in message.secret_env),
    )


_newest: OrderedDict[tuple[int, bool], tuple[Rendezvous, agent_pb2.Rendezvous]] = OrderedDict()


def _rendezvous_to_proto(rendezvous: Rendezvous, *, packed: bool) -> agent_pb2.Rendezvous:
    """Encode the rendezvous of a generation once: all its workers are sent it at about the same time."""
    packed = packed and sum(map(len, rendezvous.pools)) >= PACKED_FROM
    known = _newest.get((id(rendezvous), packed))
    if known is None or known[0] is not rendezvous:
        pools = [agent_pb2.PoolAddresses(addresses=addresses) for addresses in rendezvous.pools]
        whole = agent_pb2.Rendezvous(pools=pools)
        message = agent_pb2.Rendezvous(
            master_address=rendezvous.master_address,
            master_port=rendezvous.master_port,
            secret=rendezvous.secret,
            pools=() if packed else pools,
            packed_pools=zlib.compress(whole.SerializeToString()) if packed else b"",
        )
        known = _newest[id(rendezvous), packed] = rendezvous, message
        if len(_newest) > KNOWN_GENERATIONS:
            _newest.popitem(last=False)
    return known[1]


def _rendezvous_from_proto(message: agent_pb2.Rendezvous) -> Rendezvous:
    found = _unpacked(message.packed_pools) if message.packed_pools else message.pools
    pools = tuple(tuple(pool.addresses) for pool in found)
    return Rendezvous(message.master_address, message.master_port, message.secret, pools)


def _unpacked(packed: bytes) -> Iterable[agent_pb2.PoolAddresses]:
    try:
        unpacking = zlib.decompressobj()
        whole = unpacking.decompress(packed, UNPACKED_MOST)
        if not unpacking.eof:
            raise ValueError(f"they are longer than {UNPACKED_MOST} bytes, or cut off")
        return agent_pb2.Rendezvous.FromString(whole).pools
    except (zlib.error, DecodeError, ValueError) as error:
        raise InvalidInput([Violation("packed_pools", str(error), "upgrade the agent first")]) from error


def output_uri_in(spec_json: str) -> str:
    """URI for a job's results, from its spec: 0.1.0 stored and sent it nowhere else. Empty where there is none."""
    try:
        return str(json.loads(spec_json)["baseOutputDirectory"]["outputUriPrefix"])
    except (ValueError, KeyError, TypeError):
        return ""
