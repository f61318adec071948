"""Targets within this process: readers of what users write and hosts send; those of workers are in ``workers``."""

from __future__ import annotations

import base64
import gzip
import io
import json
import struct
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from google.protobuf import message_factory
from google.protobuf.message import DecodeError
from tests.fuzz.engine import Target, text
from tests.fuzz.workers import of_workers
from tests.scenarios.world import World
from tests.security.hostile_controller import Hostile
from tests.unit.hang.evidence.test_evidence import full

from holdfast import spec
from holdfast._base.identity import Identity, Kind
from holdfast._base.printable import StreamFilter, one_line
from holdfast._security import pki
from holdfast._security.enrolment import requests, tokens
from holdfast._session import hang_wire
from holdfast.bundles.archive import Reader
from holdfast.errors import BundleRefused, Denied, HoldfastError, InvalidInput
from holdfast.hang.evidence import evidence_json
from holdfast.hang.evidence.render_evidence import render
from holdfast.hang.pipeline import step_pattern
from holdfast.hang.records import reader, recording
from holdfast.spec.parse import text as spec_text
from holdfast.v1 import access_pb2, agent_pb2, cluster_pb2, hang_pb2, host_pb2, job_pb2, secret_pb2
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.sanity import check_sanity
from holdfast_controller.shell.base.config import CertificateConfig
from holdfast_controller.shell.calls import bounds
from holdfast_controller.shell.calls.job_filter import read_filter
from holdfast_controller.shell.convert import agent_messages
from holdfast_controller.shell.convert.clean_words import clean
from holdfast_controller.shell.enrolment.authority import Authority
from holdfast_controller.shell.rest.read_mask import parse_mask
from holdfast_controller.shell.services import job_lists
from holdfast_controller.shell.services.agent_service import input_of

JOB = b"""displayName: train
jobSpec:
  workerPoolSpecs:
  - replicaCount: 2
    machineSpec: {cpuCount: 4, memoryMb: "1024", acceleratorCount: 8}
    processSpec: {command: [python, train.py], args: ["--lr", "1e-3"], env: [{name: A, value: b}]}
  scheduling: {gracePeriod: 30s, priority: 2, hostSelector: {labels: {rack: a}}}
  faultTolerance: {hangDetection: {action: RESTART, timeout: 15m, stepPattern: 'step=(\\d+)'}}
labels: {team: vision}
"""
JOB_JSON = json.dumps(
    {
        "displayName": "x",
        "jobSpec": {"workerPoolSpecs": [{"replicaCount": "1", "processSpec": {"command": ["true"]}}]},
    }
).encode()


def targets(folder: Path) -> list[Target]:
    """All of them; files that they need lie in ``folder``."""
    return [*_of_strangers(folder), *_of_users(), *_of_hosts(), *of_workers(folder)]


# What anyone may send to the port that needs no certificate


def _of_strangers(folder: Path) -> Iterator[Target]:
    key = requests.new_key()
    request = x509.load_pem_x509_csr(requests.request(key)).public_bytes(serialization.Encoding.DER)
    yield Target(
        "signing requests",
        lambda data: requests.requested_key(_pem(data, b"CERTIFICATE REQUEST")),
        (request,),
        requests.MAX_BYTES,
        (InvalidInput,),
        (b"\x30\x80", b"\x06\x08", b"\x2b\x81\x04\x00\x22", b"\x2a\x86\x48\xce\x3d\x03\x01\x07", b"\x2b\x65\x70"),
    )
    keys = folder / "strangers"
    authority: list[Authority] = []

    def a_certificate(data: bytes) -> None:
        if not authority:
            keys.mkdir()
            pki.create_ca("fuzz", keys)
            authority.append(Authority(keys, CertificateConfig()))
            made = authority[0].sign(Identity("fuzz", Kind.HOST, "h"), key.public_key(), 1.8e9)
            authority[0].holder(made, key.public_key(), 1.8e9)
            found.append(x509.load_pem_x509_certificate(made).public_bytes(serialization.Encoding.DER))
        # Half of the inputs are edits of a real one.
        whole = found[0][: len(data) % 97] + data + found[0][len(data) % 97 :] if len(data) % 2 else data
        authority[0].holder(_pem(whole, b"CERTIFICATE"), key.public_key(), 1.8e9)

    found: list[bytes] = []
    refusals = (InvalidInput, Denied)
    yield Target(
        "certificates", a_certificate, (b"", b"\x30\x82\x01\x00"), 1 << 14, refusals, (b"\x30\x80", b"\xa3")
    )
    yield Target(
        "tokens", lambda data: tokens.digest(text(data)), (tokens.draw().encode(),), 1 << 14, (InvalidInput,)
    )


def _pem(der: bytes, label: bytes) -> bytes:
    body = base64.encodebytes(der)
    return b"-----BEGIN %b-----\n%b-----END %b-----\n" % (label, body, label)


# What users write


def _of_users() -> Iterator[Target]:
    def a_filter(data: bytes) -> None:
        _WORLD_JOB.update(found=_WORLD_JOB.get("found") or _a_job())
        read_filter(text(data)).found([_WORLD_JOB["found"]])

    yield Target(
        "list filters",
        a_filter,
        (b'state="RUNNING" AND (owner=ann OR NOT label.team:"vis*")', b'create_time>"2026-01-31T08:00:00Z"'),
        most_bytes=1 << 16,
        refusals=(InvalidInput,),
        tokens=(b" AND ", b" OR ", b"NOT ", b"labels.", b"state=", b'name:"', b"-", b" AND" + b" " * 99),
    )

    def a_token(data: bytes) -> None:
        bounds.check(job_pb2.ListJobsRequest(page_token=text(data)))
        job_lists._start(text(data))

    yield Target("page tokens", a_token, (b"100", b""), 1 << 16, (InvalidInput,))

    def a_request(data: bytes) -> None:
        bounds.check(_REQUESTS[data[0] % len(_REQUESTS) if data else 0].FromString(data[1:]))

    hostile = Hostile()
    seeds = tuple(
        bytes([number]) + hostile.fill(kind.DESCRIPTOR).SerializeToString() for number, kind in enumerate(_REQUESTS)
    )
    yield Target(
        "callers' messages",
        a_request,
        seeds,
        1 << 20,
        (InvalidInput, DecodeError),
        (b"\x0a\x00", b"\x12\x02\x0a\x00"),
    )
    yield Target(
        "read masks",
        lambda data: parse_mask(text(data)),
        (b"displayName,jobSpec.scheduling,workers.exits.rank", b"*"),
        1 << 16,
        (InvalidInput,),
        (b",", b"jobSpec.", b"."),
    )
    yield Target(
        "job files",
        lambda data: spec.job_to_proto(spec.parse(spec.load_text(text(data), source="job.yaml"), what="job.yaml")),
        (JOB, JOB_JSON),
        # A file of a user's own, on their own machine: YAML of a mebibyte takes seconds and delays no one else.
        1 << 14,
        (HoldfastError,),
        (b"- ", b"&x ", b"*x", b"<<: *x\n", b"? ", b"|\n", b"!!binary ", b"  ", b"replicaCount: ", b"env: "),
        stall_s=0.5,
    )
    yield Target(
        "JSON bodies",
        lambda data: spec.job_to_proto(
            spec.parse(spec_text.load_json(text(data), source="The body"), what="The body")
        ),
        (JOB_JSON, b"{}", b"[]"),
        1 << 20,
        (HoldfastError,),
        (b'"a":', b'{"a":', b"[[", b'{"processSpec":{"command":["a"]}},', b"\\u0000"),
        # Read in a thread, beside the loop.
        stall_s=2.0,
    )
    yield Target(
        "step patterns",
        lambda data: step_pattern.compiled(text(data)).search("epoch 3 step=17 loss=0.1 " * 10),
        (rb"step=(\d+)", rb"(?i)(?:epoch|step)\s*[:=]\s*(\d+)"),
        1 << 16,
        (step_pattern.BadPattern,),
        (
            b"(",
            b")",
            b"*",
            b"{1,1000}",
            b"\\d{1,500}",
            b"(?i)",
            b"[a-z]",
            b"|",
            b"(?:",
            b"(?=",
            b"\\p{L}",
            b"(a+)+",
        ),
    )
    yield Target(
        "bundles",
        _read_bundle,
        (_a_tar(), _a_tar() + b"\0" * 1024),
        1 << 20,
        (BundleRefused,),
        (b"\0" * 512, b"ustar\x0000", b"x", b"0" * 11, b"../", b"PaxHeader", b"12 path=a/b\n"),
    )
    yield Target("terminal output", lambda data: StreamFilter().feed(data), (b"\x1b[31mred\x1b[0m\r10%\n",), 1 << 16,
                 (), (b"\x1b[", b"\x1b]", b"\x1bP", b"\xc2\x9d", b"\xc2\x9b", b"\x1b\\", b"\x07"))  # fmt: skip
    yield Target("lines", lambda data: one_line(text(data)), (b"a",), 1 << 16)


_WORLD_JOB: dict[str, Any] = {}
_REQUESTS: list[Any] = [
    message_factory.GetMessageClass(method.input_type)
    for file in (access_pb2, cluster_pb2, hang_pb2, host_pb2, job_pb2, secret_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]


def _a_job() -> Any:
    world = World(2)
    world.submit("job-1")
    return world.cluster.jobs["job-1"]


def _a_tar() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in ("a.py", "d/b.py", "d/" + "x" * 120):
            member = tarfile.TarInfo(name)
            member.size = 5
            archive.addfile(member, io.BytesIO(b"hello"))
    return made.getvalue()


def _read_bundle(data: bytes) -> None:
    """With sums that are right: else nothing gets beyond them."""
    fixed = bytearray(data)
    for at in range(0, min(len(fixed), 1 << 14) - 511, 512):
        block = fixed[at : at + 512]
        if any(block):
            block[148:156] = b" " * 8
            fixed[at + 148 : at + 156] = b"%06o\0 " % sum(block)
    for content in (bytes(fixed), data):
        found = Reader(io.BytesIO(content).read, files=1000, most_bytes=1 << 24)
        for entry in found.entries():
            for _ in found.content(entry):
                pass


# What hosts send


class Cluster:
    """The controller's core with two hosts and a running job; a new one now and then."""

    def __init__(self) -> None:
        self._said = 0
        self._new()

    def _new(self) -> None:
        self.world = World(2)
        self.world.submit("job-1")
        self.world.run("job-1")

    def session(self, data: bytes) -> None:
        """One message of a host's session, from its bytes to the decisions that follow."""
        self._said += 1
        if self._said % 200 == 0:
            self._new()
        message = agent_pb2.SessionRequest.FromString(data)
        bounds.check(message, from_host=True)
        session = self.world.sessions["host-0"]
        if message.HasField("hello"):
            incoming: Any = agent_messages.hello("host-0", session, clean(message.hello))
        else:
            incoming = input_of("host-0", session, message)
        self.world.mono += 0.01
        self.world.reactor.step(incoming, Now(Mono(self.world.mono), Wall(self.world.wall)))
        check_sanity(self.world.cluster)


_ODD_NUMBERS = tuple(
    struct.pack("<d", number)
    for number in (float("nan"), float("inf"), -1e308, 0.0, 5e-324, 1e-300, 1.0, 1e15, 1e300, 1.2e308, 1.7e308)
)


def _odd_features() -> Iterator[agent_pb2.FeatureReport]:
    """Vectors whose numbers are such that arithmetic on them overflows, minutes apart."""
    for at_s, step in (
        (100.0, 0.0),
        (131.0, 31e3 / 1.2e308),
        (162.0, 31e3 / 1.7e308),
        (193.0, 1e300),
        (224.0, 1e-20),
    ):
        times = agent_pb2.RankTimes(
            seen_s=at_s, looks=int(at_s), step=step, step_s=at_s, gpu_s=5e-324, energy_j=1e300
        )
        rank = agent_pb2.RankFeatures(rank=0, motion="WORKING", still_since_s=-1.7e308, times=times)
        yield agent_pb2.FeatureReport(
            job_id="job-1",
            generation=1,
            worker="workerpool0-0",
            sent_s=at_s,
            at_s=at_s,
            step=step,
            step_total=1.7e308,
            step_s=-1.7e308,
            last_progress_s=at_s,
            ranks=[rank],
        )


def _session_seeds() -> tuple[bytes, ...]:
    hostile = Hostile()
    made = [hostile.fill(agent_pb2.SessionRequest.DESCRIPTOR).SerializeToString() for _ in range(12)]
    gpu = host_pb2.Gpu(uuid="GPU-host-0-0", index=0, model="NVIDIA H100", memory_bytes=80 << 30)
    inventory = host_pb2.Inventory(cpu_count=16, memory_bytes=64 << 30, max_workers=8, gpus=[gpu])
    report = agent_pb2.WorkerReport(job_id="job-1", attempt=1, generation=1, worker="workerpool0-0")
    rank = agent_pb2.RankFeatures(rank=0, motion="STILL", still_since_s=1.0, still_longest_s=2.0)
    features = agent_pb2.FeatureReport(
        job_id="job-1", generation=1, worker="workerpool0-0", sent_s=5.0, at_s=4.0, ranks=[rank]
    )
    exited = agent_pb2.ExitReport(job_id="job-1", worker="workerpool0-0", sequence=1)
    exited.exit.generation = exited.exit.attempt = 1
    request = agent_pb2.SessionRequest
    own = [
        request(hello=agent_pb2.Hello(agent_version="1", boot_id="b", address="h", inventory=inventory)),
        request(heartbeat=agent_pb2.Heartbeat(inventory=inventory)),
        request(features=features),
        request(exit_report=exited),
    ]
    own += [request(features=each) for each in _odd_features()]
    for state in (1, 2, 3, 4, 5):
        report.state = state  # type: ignore[assignment]
        own.append(request(worker_report=report))
    return tuple(made + [message.SerializeToString() for message in own])


def _of_hosts() -> Iterator[Target]:
    cluster = Cluster()
    yield Target(
        "agents' messages",
        cluster.session,
        _session_seeds(),
        # What one message may have; above it gRPC refuses.
        1 << 20,
        (InvalidInput, DecodeError),
        (b"\x0a", b"\x12", b"\x7f\xf0", b"\xff\xff\xff\xff\x0f", *_ODD_NUMBERS, b"job-1"),
    )
    packed = hang_wire.pack(full())
    plain = evidence_json.encode(full()).encode()

    def evidence(data: bytes) -> None:
        render([hang_wire.unpack(zlib.compress(data, 1))], 100, full=True)

    yield Target(
        "evidence", evidence, (plain,), 1 << 17, (ValueError,), (b'"ranks":[', b'{"rank":0,', b"1e400", b"[0]")
    )
    yield Target("packed evidence", hang_wire.unpack, (packed,), 1 << 17, (ValueError,))
    dumps = hang_wire.pack_dumps({0: zlib.compress(b"one")})
    yield Target("packed dumps", hang_wire.unpack_dumps, (dumps,), 1 << 17, (ValueError,), (b'"0":"', b"=="))
    yield Target(
        "recordings",
        lambda data: [recording.decode(text(line)) for line in data.split(b"\n")[:20]],
        (b'{"v":1}', b"{}"),
        1 << 16,
        (HoldfastError,),
    )
    yield Target(
        "packed recordings",
        lambda data: sum(map(len, reader.unpacked(data))),
        (gzip.compress(b"a\nb\n" * 99),),
        1 << 16,
    )


def folder() -> Path:
    """A fresh directory for the targets' files."""
    return Path(tempfile.mkdtemp(prefix="holdfast-fuzz-"))
