"""Protobuf to the core's values and back: the only place that knows both."""

from __future__ import annotations

import re
import signal

from google.protobuf import duration_pb2

from holdfast._session.reports import ExitReason, WorkerId
from holdfast.bundles import is_digest
from holdfast.v1 import agent_pb2, job_pb2, spec_pb2
from holdfast_agent.core.model.model import (
    Assignment,
    Launch,
    PackagedCode,
    Phase,
    Process,
    Rendezvous,
    SecretVariable,
)

_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_WORKER = re.compile(r"workerpool\d{1,4}-\d{1,6}")
_PHASES = {
    agent_pb2.ASSIGNMENT_PHASE_PREPARE: Phase.PREPARE,
    agent_pb2.ASSIGNMENT_PHASE_RUN: Phase.RUN,
    agent_pb2.ASSIGNMENT_PHASE_STOP: Phase.STOP,
    agent_pb2.ASSIGNMENT_PHASE_FORGET: Phase.FORGET,
}
_REASONS = {job_pb2.ExitReason.Value(f"EXIT_REASON_{reason.name}"): reason for reason in ExitReason}


def seconds(duration: duration_pb2.Duration) -> float:
    """A Duration as seconds."""
    return duration.seconds + duration.nanos / 1e9


def is_place(key: WorkerId) -> bool:
    """Whether both names are safe as file names."""
    return bool(_JOB.fullmatch(key.job) and _WORKER.fullmatch(key.worker))


def assignment(message: agent_pb2.Assignment) -> Assignment:
    """What the controller wants. Raises ``ValueError`` for names that are no safe file names, or a missing part."""
    phase = _PHASES.get(message.phase)
    if phase is None:
        raise ValueError(f"unknown phase {message.phase}")
    if not is_place(WorkerId(message.job_id, message.worker)):
        raise ValueError(f"{message.job_id!r}/{message.worker!r} names no worker")
    if message.generation < 1:
        raise ValueError(f"generation {message.generation} is below 1")
    launch = _launch(message.launch) if message.HasField("launch") else None
    if not 0 <= message.warn_signal < signal.NSIG:
        raise ValueError(f"{message.warn_signal} is no signal")
    if launch is None and phase in (Phase.PREPARE, Phase.RUN):
        raise ValueError(f"phase {phase.name} without a launch")
    if phase is Phase.RUN and (launch is None or launch.rendezvous is None):
        raise ValueError("phase RUN without a rendezvous")
    return Assignment(
        epoch=message.epoch,
        key=WorkerId(message.job_id, message.worker),
        attempt=message.attempt,
        generation=message.generation,
        phase=phase,
        grace_s=seconds(message.grace_period),
        stop_reason=_REASONS.get(message.stop_reason, ExitReason.STOPPED),
        launch=launch,
        fence_s=seconds(message.fence),
        warn_signal=message.warn_signal,
    )


def _launch(message: agent_pb2.Launch) -> Launch:
    if not message.process.command and not message.image_uri:
        raise ValueError("a launch without a command")
    if not 1 <= message.processes <= 1024:
        raise ValueError(f"a launch of {message.processes} processes")
    return Launch(
        process=_process(message.process),
        first_rank=message.first_rank,
        processes=message.processes,
        world_size=message.world_size,
        gpus=tuple(message.gpus),
        restart_count=message.restart_count,
        process_starts=message.process_starts,
        last_end=message.last_end,
        rendezvous=_rendezvous(message.rendezvous) if message.HasField("rendezvous") else None,
        pool=message.pool,
        replica=message.replica,
        worker_count=message.worker_count,
        worker_index=message.worker_index,
        cpu_count=message.cpu_count,
        job_spec_json=message.job_spec_json,
        step_pattern=message.step_pattern,
        memory_mb=message.memory_mb,
        image=message.image_uri,
        lacks=message.lacks,
        run_as=message.run_as,
    )


def _process(message: spec_pb2.ProcessSpec) -> Process:
    return Process(
        command=tuple(message.command),
        args=tuple(message.args),
        env=tuple((variable.name, variable.value) for variable in message.env),
        working_directory=message.working_directory,
        code=_code(message.packaged_code) if message.HasField("packaged_code") else None,
        secrets=tuple(SecretVariable(each.name, each.file) for each in message.secret_env),
    )


def _code(message: spec_pb2.PackagedCode) -> PackagedCode:
    if message.bundle and not is_digest(message.bundle):
        raise ValueError(f"{message.bundle[:80]!r} names no bundle")
    return PackagedCode(message.bundle, tuple(message.requirements), tuple(message.packages))


def _rendezvous(message: agent_pb2.Rendezvous) -> Rendezvous:
    pools = tuple(tuple(pool.addresses) for pool in message.pools)
    return Rendezvous(message.master_address, message.master_port, message.secret, pools)
