"""How workers' features and evidence travel from an agent: between ``holdfast.hang`` and the contract."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast._base.printable import one_line
from holdfast._session.alike import Alike
from holdfast.hang.evidence import evidence_json
from holdfast.hang.evidence.evidence import Evidence
from holdfast.hang.pipeline.features import (
    GpuFeatures,
    GpuLook,
    GpuUse,
    Motion,
    OutputFeatures,
    RankFeatures,
    WorkerFeatures,
)
from holdfast.hang.pipeline.rank_times import RankTimes
from holdfast.hang.pipeline.samples import State
from holdfast.hang.pipeline.waits import Wait, WaitKind
from holdfast.v1 import agent_pb2

WORDS_MOST = 500
"""Characters of one text about a rank; they become sentences in a job's history."""
_MOTIONS, _LOOKS, _KINDS = dict(Motion.__members__), dict(GpuLook.__members__), dict(WaitKind.__members__)
_STATES = {state.value: state for state in State}
_REPORT = Alike(WorkerFeatures, agent_pb2.FeatureReport)
_OUTPUT = Alike(OutputFeatures, agent_pb2.FeatureReport)
_RANK = Alike(RankFeatures, agent_pb2.RankFeatures, but={"motion", "state"})
_WAIT = Alike(Wait, agent_pb2.Wait, but={"kind"})
_GPU = Alike(GpuFeatures, agent_pb2.GpuFeatures, but={"look"})
_TIMES = Alike(RankTimes, agent_pb2.RankTimes)
_USE = Alike(GpuUse, agent_pb2.GpuUse)
_PHASES = frozenset({"train", "evaluate", "save"})


def to_proto(job_id: str, generation: int, features: WorkerFeatures, sent_s: float) -> agent_pb2.FeatureReport:
    """The vector as sent at ``sent_s`` of the agent's clock."""
    return agent_pb2.FeatureReport(
        job_id=job_id,
        generation=generation,
        sent_s=sent_s,
        **_REPORT.encode(features),
        **_OUTPUT.encode(features.output),
        ranks=[_rank_to_proto(rank) for rank in features.ranks],
        gpus=[agent_pb2.GpuUse(**_USE.encode(gpu)) for gpu in features.gpus],
    )


def _rank_to_proto(rank: RankFeatures) -> agent_pb2.RankFeatures:
    message = agent_pb2.RankFeatures(
        motion=rank.motion.name,
        state=rank.state.value if rank.state is not None else "",
        **_RANK.encode(rank),
    )
    if rank.wait is not None:
        message.wait.CopyFrom(agent_pb2.Wait(kind=rank.wait.kind.name, **_WAIT.encode(rank.wait)))
    if rank.times is not None:
        message.times.CopyFrom(agent_pb2.RankTimes(**_TIMES.encode(rank.times)))
    if rank.gpu is not None:
        message.gpu.CopyFrom(agent_pb2.GpuFeatures(look=rank.gpu.look.name, **_GPU.encode(rank.gpu)))
    return message


def from_proto(host: str, message: agent_pb2.FeatureReport) -> WorkerFeatures:
    """The vector again, still on the agent's clock. A word that this version doesn't know counts as unseen."""
    return WorkerFeatures(
        worker=one_line(message.worker, WORDS_MOST),
        host=host,
        at_s=message.at_s,
        ranks=tuple(_rank_from_proto(rank) for rank in message.ranks),
        output=OutputFeatures(
            **_OUTPUT.decode(message) | {"phase": message.phase if message.phase in _PHASES else ""}
        ),
        declared_idle=one_line(message.declared_idle, WORDS_MOST),
        own_world=message.own_world,
        gpus=tuple(GpuUse(**_USE.decode(gpu)) for gpu in message.gpus),
    )


def _rank_from_proto(message: agent_pb2.RankFeatures) -> RankFeatures:
    # Thousands of ranks are reported each second, so each field is read by itself.
    has = message.HasField
    return RankFeatures(
        rank=message.rank,
        motion=_MOTIONS.get(message.motion, Motion.UNSEEN),
        still_since_s=message.still_since_s,
        still_longest_s=message.still_longest_s,
        last_work_s=message.last_work_s if has("last_work_s") else None,
        work=_words(message.work),
        helpers_s=message.helpers_s if has("helpers_s") else None,
        cpu_share=message.cpu_share,
        switches_s=message.switches_s if has("switches_s") else None,
        switch_share=message.switch_share if has("switch_share") else None,
        state=_STATES.get(message.state),
        wchan=_words(message.wchan),
        gpu=_gpu_from_proto(message.gpu) if has("gpu") else None,
        exit_code=message.exit_code if has("exit_code") else None,
        traced=message.traced,
        paused_by_us=message.paused_by_us,
        mount=_words(message.mount),
        wait=_wait_from_proto(message.wait) if has("wait") else None,
        hardware=_words(message.hardware),
        broken=message.broken,
        times=_times_from_proto(message.times) if has("times") else None,
    )


def _gpu_from_proto(message: agent_pb2.GpuFeatures) -> GpuFeatures:
    has = message.HasField
    return GpuFeatures(
        look=_LOOKS.get(message.look, GpuLook.BLIND),
        util_pct=message.util_pct if has("util_pct") else None,
        memory_util_pct=message.memory_util_pct if has("memory_util_pct") else None,
        power_w=message.power_w if has("power_w") else None,
        power_share=message.power_share if has("power_share") else None,
        links_share=message.links_share if has("links_share") else None,
    )


def _wait_from_proto(message: agent_pb2.Wait) -> Wait:
    since_s, until_s = _present(message, "since_s"), _present(message, "until_s")
    kind = _KINDS.get(message.kind, WaitKind.UNKNOWN)
    return Wait(kind, _words(message.what), since_s, _words(message.place), until_s, at_work=message.at_work)


def _times_from_proto(message: agent_pb2.RankTimes) -> RankTimes:
    has = message.HasField
    return RankTimes(
        seen_s=message.seen_s,
        ran_s=message.ran_s if has("ran_s") else None,
        queued_s=message.queued_s if has("queued_s") else None,
        looks=message.looks,
        stopped=message.stopped,
        storage=message.storage,
        aside=message.aside,
        step=message.step if has("step") else None,
        step_s=message.step_s if has("step_s") else None,
        gpu_looks=message.gpu_looks,
        clock_mhz=message.clock_mhz,
        util_pct=message.util_pct,
        throttled=message.throttled,
        gpu_s=message.gpu_s,
        energy_j=message.energy_j,
    )


def _words(text: str) -> str:
    return one_line(text, WORDS_MOST) if text else ""


def _present(message: agent_pb2.FeatureReport | agent_pb2.GpuUse | agent_pb2.Wait, name: str) -> float | None:
    value: float | None = getattr(message, name) if message.HasField(name) else None  # type: ignore[arg-type]
    return value


@dataclass(frozen=True, slots=True)
class WorkerEvidence:
    """Evidence of one worker, or why there is none. ``host`` is empty where it is not known.

    ``samples`` are gzipped lines of a recording from before the hang, where they were asked for and kept.
    """

    worker: str
    host: str
    evidence: Evidence | None = None
    problem: str = ""
    samples: bytes = b""
    # Dumps of torch's flight recorder by rank, likewise.
    dumps: Mapping[int, bytes] = field(default_factory=dict)


def received(worker: str, host: str, content: bytes, problem: str = "") -> WorkerEvidence:
    """A worker's packed evidence as a reader takes it: never an error, at worst a problem in words."""
    if not content:
        return WorkerEvidence(worker, host, problem=problem or "nothing came")
    try:
        evidence = unpack(content)
    except ValueError as error:
        return WorkerEvidence(worker, host, problem=f"what came is no evidence: {error}")
    return WorkerEvidence(worker, host or evidence.host, evidence, problem)


def pack(evidence: Evidence) -> bytes:
    """Evidence as it travels and is kept: compressed JSON."""
    return zlib.compress(evidence_json.encode(evidence).encode())


def unpack(content: bytes) -> Evidence:
    """The evidence again. Raises ``ValueError`` for anything else, a bomb included."""
    expander = zlib.decompressobj()
    try:
        text = expander.decompress(content, evidence_json.MAX_BYTES + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(text) > evidence_json.MAX_BYTES:
        raise ValueError(f"more than {evidence_json.MAX_BYTES} bytes")
    if not expander.eof or expander.unused_data:
        raise ValueError("it is cut off, or more follows it")
    try:
        return evidence_json.decode(text.decode(errors="replace"))
    except OverflowError as error:
        raise ValueError(f"no evidence: {error}") from error


DUMPS_BYTES = 768 << 10
DUMP_BYTES = 32 << 20
"""Of one dump, expanded."""


def pack_dumps(dumps: Mapping[int, bytes]) -> bytes:
    """Compressed dumps of flight recorders as they travel and are kept; the largest are left out if it is too much."""
    texts = {rank: base64.b64encode(dump).decode() for rank, dump in dumps.items()}
    kept: dict[int, str] = {}
    left = DUMPS_BYTES
    for rank, text in sorted(texts.items(), key=lambda item: len(item[1])):
        left -= len(text) + 32
        if left < 0:
            break
        kept[rank] = text
    return json.dumps(kept).encode() if kept else b""


def unpack_dumps(content: bytes) -> dict[int, bytes]:
    """The dumps again, expanded, by rank. Raises ``ValueError`` for anything else, a bomb included."""
    if not content:
        return {}
    try:
        packed = {int(rank): base64.b64decode(text, validate=True) for rank, text in json.loads(content).items()}
        return {rank: _expanded(dump) for rank, dump in packed.items()}
    except (AttributeError, TypeError, RecursionError, zlib.error) as error:
        raise ValueError(f"no dumps: {error!r}") from error


def _expanded(packed: bytes) -> bytes:
    expander = zlib.decompressobj()
    data = expander.decompress(packed, DUMP_BYTES + 1)
    if len(data) > DUMP_BYTES:
        raise ValueError(f"more than {DUMP_BYTES} bytes")
    if not expander.eof:
        raise ValueError("it is cut off")
    return data
