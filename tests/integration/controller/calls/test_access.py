"""Every call by every sort of caller, over real TLS; and what happens to streams whose reader loses its rights."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any, cast

import grpc
import pytest
from tests.integration.controller import rpcs
from tests.integration.controller.access_table import CALLERS, expected
from tests.integration.controller.cluster import WITHIN_S, Certificates, Controller, job, refusal
from tests.support.stubs import access_stub, hang_stub, job_stub

from holdfast._base import rpc_status
from holdfast._base.identity import Identity, Kind
from holdfast._security import pki, tls
from holdfast._security.tls import SERVER_NAME, TlsFiles
from holdfast.errors import WrongState
from holdfast.v1 import access_pb2, access_pb2_grpc, agent_pb2, hang_pb2, job_pb2
from holdfast_controller.core.access.rules import RULES
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.calls.audit_words import Ended

pytestmark = pytest.mark.anyio

USERS = {"viewer": "vera", "elsewhere": "elsa", "other": "otto", "owner": "owen", "void": "vic", "unknown": "ulf"}
ROLES = {
    "vera": ("vision", 1),
    "elsa": ("speech", 1),
    "otto": ("vision", 2),
    "owen": ("vision", 2),
    "vic": ("*", 3),
}


@pytest.fixture
def config(config: ControllerConfig, certificates: Certificates) -> ControllerConfig:
    directory = certificates.directory
    for name in (*USERS.values(), "root"):
        certificates.files[name] = pki.issue(directory, Identity("test", Kind.USER, name), directory, name)
    foreign = directory / "foreign"
    foreign.mkdir()
    pki.create_ca("test", foreign)
    theirs = pki.issue(foreign, Identity("test", Kind.USER, "root"), foreign, "root")
    certificates.files["wrong-ca"] = TlsFiles(directory / "ca.pem", theirs.cert, theirs.key)
    return dataclasses.replace(config, admins=("root",), ca_directory=directory, enrolment_listen="127.0.0.1:0")


@pytest.fixture
async def people(controller: Controller) -> access_pb2_grpc.AccessServiceAsyncStub:
    """What root calls to rule over people; they are there already."""
    stub = access_stub(controller.channel("root"))
    for name, (project, role) in ROLES.items():
        grant = access_pb2.Grant(project=project, role=role)  # type: ignore[arg-type]
        await stub.AddUser(access_pb2.AddUserRequest(name=name, grant=grant), timeout=WITHIN_S)
    return stub


async def owens_job(controller: Controller) -> str:
    jobs = job_stub(controller.channel("owen"))
    made = await jobs.CreateJob(job_pb2.CreateJobRequest(job=job(project="vision")), timeout=WITHIN_S)
    return str(made.job.id)


async def rest(stream: Any) -> list[str]:
    """The types of the events that are still to come."""
    found = []
    while (event := await stream.read()) is not grpc.aio.EOF:
        found.append(event.type)
    return found


def channel(controller: Controller, caller: str, port: int) -> grpc.aio.Channel:
    files = controller.certificates.files
    if caller == "none":
        credentials = grpc.ssl_channel_credentials(files["root"].ca.read_bytes())
    else:
        named = {"host": "host/host-0", "host-b": "host/host-1", "admin": "root", "wrong-ca": "wrong-ca"}
        credentials = tls.channel_credentials(files[named.get(caller) or USERS[caller]])
    options = [("grpc.ssl_target_name_override", SERVER_NAME), ("grpc.use_local_subchannel_pool", 1)]
    made = grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options)
    controller.channels.append(made)
    return made


def fields(call: str, job_id: str, queued: str) -> dict[str, Any]:
    """A request that goes as far as it can for a job that has ended, and stays, and hosts that aren't there."""
    service, _, name = call.partition("/")
    match service, name:
        case _, "CreateJob" | "DryRunJob":
            return {"job": job(project="vision")}
        case _, "DeleteJob":
            return {"id": queued}
        case "JobService" | "HangService", _:
            return {"id": job_id} if name != "ListJobs" else {}
        case _, "ExportAudit":
            return {}
        case "HostService" | "AccessService", "ListHosts" | "WatchHosts" | "ListUsers" | "GetCaller" | "ReadAudit":
            return {}
        case "ScheduleService", "CreateSchedule" | "CreateTemplate":
            return {"job": job(project="vision"), "name": "No name"}
        case "ScheduleService", "ListSchedules" | "ListTemplates":
            return {}
        case "ScheduleService", _:
            return {"project": "vision", "name": "nowhere"}
        case _, "SetMotd":
            return {"text": "hello"}
        case _, "SetShare":
            return {"project": "vision", "weight": 2.0}
        case _, "SetQuota":
            return {"user": "tom", "limits": {"gpus": 64}}
        case _, "CreateReservation":
            return {"reservation": {"name": "No name", "project": "vision"}}
        case _, "SetGuarantee":
            return {"project": "vision", "gpus": 64}
        case _, "CreateToken":
            return {"host": "host-9"}
        case _, "AddUser":
            return {"name": "tom", "grant": access_pb2.Grant(project="*", role=access_pb2.ROLE_VIEWER)}
        case "HostService" | "AccessService", _:
            return {"name": "nowhere"}
        case _, "Session":
            return {"hello": agent_pb2.Hello(boot_id="b")}
        case _, "Transfer":
            return {"hello": agent_pb2.TransferHello()}
        case _:
            return {}


def mark(answer: rpcs.Answer) -> str:
    match answer.code:
        case grpc.StatusCode.UNAUTHENTICATED:
            return "U"
        case grpc.StatusCode.PERMISSION_DENIED:
            return "D"
        case grpc.StatusCode.NOT_FOUND if answer.message.startswith("There is no job"):
            return "N"
        case grpc.StatusCode.UNAVAILABLE if not answer.ours:
            return "-"
        case grpc.StatusCode.INTERNAL:
            return "?"
        case _:
            return "+"


def test_every_rpc_has_a_rule_and_a_row() -> None:
    calls = rpcs.all_methods()
    assert set(RULES) == set(calls), "an RPC without a rule is refused to everybody"
    assert set(expected()) == {call.rpartition(".")[2] for call in calls}


async def test_every_call_by_every_caller_is_answered_as_the_table_says(
    controller: Controller, people: access_pb2_grpc.AccessServiceAsyncStub
) -> None:
    job_id, queued = await owens_job(controller), await owens_job(controller)
    jobs = job_stub(controller.channel("owen"))
    await jobs.CancelJob(job_pb2.CancelJobRequest(id=job_id), timeout=WITHIN_S)
    await people.RemoveUser(access_pb2.RemoveUserRequest(name="vic"), timeout=WITHIN_S)
    token = await people.CreateToken(access_pb2.CreateTokenRequest(host="host-8"), timeout=WITHIN_S)
    ports = {True: int(token.enrolment.rpartition(":")[2]), False: controller.port}
    async with controller.agent("host-1"):
        found: dict[str, dict[str, str]] = {call: {} for call in expected()}

        async def column(caller: str) -> None:
            links = {port: channel(controller, caller, port) for port in ports.values()}
            for path, method in rpcs.all_methods().items():
                call = path.rpartition(".")[2]
                link = links[ports[call.startswith("EnrolmentService")]]
                for _ in range(5):
                    answer = await rpcs.ask(link, path, method, fields(call, job_id, queued))
                    # A stream that is refused may break in our own write instead: then it was no answer.
                    if mark(answer) == expected()[call][caller] or mark(answer) not in "-?":
                        break
                found[call][caller] = mark(answer)

        await asyncio.gather(*map(column, CALLERS))
    wrong = [
        f"{call} by {caller}: {found[call][caller]}, not {cell}"
        for call, row in expected().items()
        for caller, cell in row.items()
        if found[call][caller] != cell
    ]
    assert wrong == []


async def test_streams_of_a_removed_user_end_with_the_reason(
    controller: Controller, people: access_pb2_grpc.AccessServiceAsyncStub
) -> None:
    job_id = await owens_job(controller)
    watching = job_stub(controller.channel("otto")).WatchJob(job_pb2.WatchJobRequest(id=job_id), timeout=WITHIN_S)
    mine = job_stub(controller.channel("owen")).WatchJob(job_pb2.WatchJobRequest(id=job_id), timeout=WITHIN_S)
    for stream in (watching, mine):
        first = await stream.read()
        assert isinstance(first, job_pb2.WatchJobResponse) and first.type == "JobSubmitted"
    await people.RemoveUser(access_pb2.RemoveUserRequest(name="otto"), timeout=WITHIN_S)

    code, error = await refusal(rest(watching))
    assert code is grpc.StatusCode.UNAUTHENTICATED
    assert "The certificate of user otto is void" in str(error)
    jobs = job_stub(controller.channel("owen"))
    await jobs.CancelJob(job_pb2.CancelJobRequest(id=job_id), timeout=WITHIN_S)
    assert "JobEnded" in await rest(mine), "who keeps its rights keeps its streams"


async def test_a_role_that_is_taken_ends_the_streams_that_it_let_through(
    controller: Controller, people: access_pb2_grpc.AccessServiceAsyncStub
) -> None:
    job_id = await owens_job(controller)
    await people.AddUser(
        access_pb2.AddUserRequest(name="vera", grant=access_pb2.Grant(project="speech", role=access_pb2.ROLE_USER)),
        timeout=WITHIN_S,
    )
    vera = job_stub(controller.channel("vera"))
    watching = vera.WatchJob(job_pb2.WatchJobRequest(id=job_id), timeout=WITHIN_S)
    await watching.read()
    await people.RemoveUser(access_pb2.RemoveUserRequest(name="vera", project="vision"), timeout=WITHIN_S)

    code, error = await refusal(rest(watching))
    assert code is grpc.StatusCode.NOT_FOUND
    assert str(error).startswith(f"There is no job {job_id!r}")
    listed = await vera.ListJobs(job_pb2.ListJobsRequest(), timeout=WITHIN_S)
    assert list(listed.jobs) == [], "what may not be looked at is not listed"


async def test_a_removed_host_is_cut_off_and_stays_out(
    controller: Controller, people: access_pb2_grpc.AccessServiceAsyncStub
) -> None:
    async with controller.agent("host-0") as agent:
        await agent.until(lambda a: a.said)
        await people.RemoveHost(access_pb2.RemoveHostRequest(name="host-0"), timeout=WITHIN_S)
        await agent.until(lambda a: a.over)
    async with controller.agent("host-0") as again:
        await again.until(lambda a: a.over)
        assert again.said == []
        assert await again.call.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_host_speaks_for_itself_only(
    controller: Controller, people: access_pb2_grpc.AccessServiceAsyncStub
) -> None:
    async with controller.agent("host-0") as own, controller.agent("host-1", gpus=0) as other:
        await own.until(lambda a: a.said)
        await other.until(lambda a: a.said)
        job_id = await owens_job(controller)
        jobs = job_stub(controller.channel("owen"))
        await own.until(lambda a: "RUN" in a.phases(job_id))
        await other.exit(job_id, 7)
        # The next thing that it says is answered, so the exit before has been looked at.
        beat = agent_pb2.SessionRequest(heartbeat=agent_pb2.Heartbeat())
        await other.call.write(beat)
        await other.until(lambda a: any(m.WhichOneof("message") == "heartbeat_ack" for m in a.said))
        shown = (await jobs.GetJob(job_pb2.GetJobRequest(id=job_id), timeout=WITHIN_S)).job
        assert other.acks() == []
        assert [len(worker.exits) for worker in shown.workers] == [0]


async def test_who_did_what_and_who_was_refused_is_kept(
    controller: Controller, people: access_pb2_grpc.AccessServiceAsyncStub
) -> None:
    job_id = await owens_job(controller)
    otto = job_stub(controller.channel("otto"))
    await refusal(otto.CancelJob(job_pb2.CancelJobRequest(id=job_id), timeout=WITHIN_S))
    jobs = job_stub(controller.channel("owen"))
    await refusal(jobs.RestartJob(job_pb2.RestartJobRequest(id=job_id), timeout=WITHIN_S))
    stacks = hang_stub(controller.channel("owen"))
    await refusal(stacks.TakeStacks(hang_pb2.TakeStacksRequest(id=job_id), timeout=WITHIN_S).read())
    entries = (await people.ReadAudit(access_pb2.ReadAuditRequest(), timeout=WITHIN_S)).entries
    assert [(e.who, e.call, e.target, e.outcome) for e in entries][-4:] == [
        ("user/owen", "JobService/CreateJob", f"job/{job_id}", "OK"),
        ("user/otto", "JobService/CancelJob", f"job/{job_id}", "PERMISSION_DENIED"),
        ("user/owen", "JobService/RestartJob", f"job/{job_id}", "FAILED_PRECONDITION"),
        ("user/owen", "HangService/TakeStacks", f"job/{job_id}", "FAILED_PRECONDITION"),
    ]
    assert entries[-3].message == f"The job {job_id} is owen's; only its owner and admins may do that."
    assert "only a RUNNING job can be restarted in place" in entries[-2].message
    assert entries[-3].peer == "127.0.0.1"
    assert entries[0].target == "user/vera"
    refused = await people.ReadAudit(access_pb2.ReadAuditRequest(refused=True, who="user/otto"), timeout=WITHIN_S)
    assert [e.call for e in refused.entries] == ["JobService/CancelJob"]


async def test_how_a_call_failed_is_noted_before_its_caller_learns_of_it() -> None:
    happened: list[tuple[str, ...]] = []

    class Call:
        async def abort_with_status(self, status: grpc.Status) -> None:
            happened.append(("sent", status.details))

        def code(self) -> grpc.StatusCode:
            return grpc.StatusCode.NOT_FOUND

        def details(self) -> str:
            return "no such job"

    def note(outcome: str, message: str) -> None:
        happened.append((outcome, message))

    status = rpc_status.to_status(WrongState("The job a is QUEUED."))
    ended = Ended(cast(Any, Call()), note)
    await ended.abort_with_status(status)
    ended.note_end()
    assert happened == [("FAILED_PRECONDITION", status.details), ("sent", status.details)]
    Ended(cast(Any, Call()), note).note_end()
    assert happened[-1] == ("NOT_FOUND", "no such job"), "one that the framework ended"


async def test_a_flood_of_refusals_is_counted_and_not_written(
    controller: Controller, people: access_pb2_grpc.AccessServiceAsyncStub
) -> None:
    eve = job_stub(controller.channel("ulf"))
    for _ in range(60):
        await refusal(eve.ListJobs(job_pb2.ListJobsRequest(), timeout=WITHIN_S))
    otto = access_stub(controller.channel("otto"))
    await refusal(otto.ListUsers(access_pb2.ListUsersRequest(), timeout=WITHIN_S))
    entries = (await people.ReadAudit(access_pb2.ReadAuditRequest(refused=True), timeout=WITHIN_S)).entries
    written = sum(entry.who == "user/ulf" and not entry.unwritten for entry in entries)
    assert 20 <= written < 60
    assert written + sum(entry.unwritten for entry in entries) == 60
    assert entries[-1].who == "user/otto"
    summary = next(entry for entry in entries if entry.unwritten)
    assert summary.message.startswith(f"{60 - written} more of these within ")
    assert (summary.who, summary.call, summary.outcome) == ("user/ulf", "JobService/ListJobs", "PERMISSION_DENIED")


@pytest.mark.usefixtures("people")
async def test_an_admin_types_into_no_job_of_another_user(controller: Controller) -> None:
    job_id = await owens_job(controller)
    request = job_pb2.WriteTerminalRequest(id=job_id, data=b"rm -r /\r")
    code, error = await refusal(job_stub(controller.channel("root")).WriteTerminal(request))
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert str(error) == f"The job {job_id} is owen's; only its owner may do that."
