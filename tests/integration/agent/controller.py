"""A controller for the agent's tests: it records what it hears and says what the test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from holdfast._security.tls import TlsFiles, caller, server_credentials
from holdfast.v1 import agent_pb2, agent_pb2_grpc, job_pb2, spec_pb2

WITHIN_S = 180.0


@dataclass
class Controller(agent_pb2_grpc.AgentServiceServicer):
    """Speaks ``AgentService`` on a port of its own."""

    tls: TlsFiles
    port: int = 0
    epoch: int = 1
    acknowledge: bool = True
    acks_heartbeats: bool = False
    """What the welcome promises."""
    answers: bool = False
    """Whether it keeps that."""
    takes_exits_together: bool = False
    protocol: int = 0
    """What the welcome says; 0 as controllers did that came before the number."""
    hellos: list[agent_pb2.Hello] = field(default_factory=list)
    heard: list[agent_pb2.SessionRequest] = field(default_factory=list)
    callers: list[str] = field(default_factory=list)
    session: Any = None
    transfer: Any = None
    chunks: dict[int, list[agent_pb2.TransferChunk]] = field(default_factory=dict)
    ends: dict[int, str] = field(default_factory=dict)
    evidence: dict[int, agent_pb2.EvidenceReport] = field(default_factory=dict)
    assigned: dict[tuple[str, str], agent_pb2.Assignment] = field(default_factory=dict)
    takes_output: asyncio.Event = field(default_factory=asyncio.Event)
    """While it is cleared, nothing is read of the bulk stream: an agent's writes wait there."""
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _server: Any = None

    async def start(self) -> None:
        self.takes_output.set()
        self._server = grpc.aio.server()
        agent_pb2_grpc.add_AgentServiceServicer_to_server(self, self._server)
        self.port = self._server.add_secure_port(f"127.0.0.1:{self.port}", server_credentials(self.tls))
        assert self.port
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def Session(  # type: ignore[override]  # it writes by itself
        self, requests: AsyncIterator[agent_pb2.SessionRequest], context: Any
    ) -> None:
        self.callers.append(str(caller(context)))
        first = await context.read()
        self.hellos.append(first.hello)
        self.session = context
        welcome = agent_pb2.Welcome(epoch=self.epoch)
        welcome.heartbeat_interval.FromMilliseconds(500)
        welcome.assignments = len(self.assigned)
        welcome.acks_heartbeats = self.acks_heartbeats
        welcome.takes_exits_together = self.takes_exits_together
        welcome.protocol = self.protocol
        await self.say(agent_pb2.SessionResponse(welcome=welcome))
        for assignment in list(self.assigned.values()):
            await self.say(agent_pb2.SessionResponse(assignment=assignment))
        await self._note()
        while True:
            message = await context.read()
            if message is grpc.aio.EOF:
                return
            self.heard.append(message)
            if message.WhichOneof("message") == "heartbeat" and self.answers:
                await self.say(agent_pb2.SessionResponse(heartbeat_ack=agent_pb2.HeartbeatAck()))
            if self.acknowledge and (sequences := [report.sequence for report in _exits_in(message)]):
                ack = agent_pb2.ExitAck(sequence=sequences[0], others=sequences[1:])
                await self.say(agent_pb2.SessionResponse(exit_ack=ack))
            await self._note()

    async def Transfer(  # type: ignore[override]  # it writes by itself
        self, requests: AsyncIterator[agent_pb2.TransferRequest], context: Any
    ) -> None:
        assert (await context.read()).WhichOneof("message") == "hello"
        self.transfer = context
        await self._note()
        while True:
            await self.takes_output.wait()
            message = await context.read()
            if message is grpc.aio.EOF:
                return
            if message.WhichOneof("message") == "chunk":
                self.chunks.setdefault(message.chunk.id, []).append(message.chunk)
            elif message.WhichOneof("message") == "evidence":
                self.evidence[message.evidence.id] = message.evidence
            else:
                self.ends[message.end.id] = message.end.problem
            await self._note()

    async def say(self, message: agent_pb2.SessionResponse) -> None:
        """To the agent, in its newest session."""
        async with self._writing:
            await self.session.write(message)

    async def transfer_say(self, **message: Any) -> None:
        """To the agent, on its bulk stream."""
        async with self._writing:
            await self.transfer.write(agent_pb2.TransferResponse(**message))

    async def open(self, number: int, *, since: float | None = None, **fields: Any) -> None:
        """Start a reading of rank 0's stdout in generation 1, unless asked otherwise."""
        wanted: dict[str, Any] = {
            "id": number,
            "job_id": "job-1",
            "generation": 1,
            "worker": "workerpool0-0",
            "stream": job_pb2.LOG_STREAM_STDOUT,
            "credit_bytes": 1 << 30,
            **fields,
        }
        message = agent_pb2.OpenLog(**wanted)
        if since is not None:
            message.since.FromMilliseconds(int(since * 1000))
        await self.transfer_say(open=message)

    async def read(self, number: int, **fields: Any) -> tuple[str, str]:
        """(text, problem) of a whole reading."""
        await self.open(number, **fields)
        await self.until(lambda: number in self.ends, f"the end of reading {number}")
        return self.text(number), self.ends[number]

    def text(self, number: int) -> str:
        """What a reading has brought so far."""
        return b"".join(chunk.data for chunk in self.chunks.get(number, ())).decode()

    async def _note(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def until(self, found: Callable[[], Any], what: str = "") -> Any:
        """Wait until ``found()`` is true, and return what it returned."""
        async with self._changed:
            try:
                async with asyncio.timeout(WITHIN_S):
                    await self._changed.wait_for(found)
            except TimeoutError:
                raise AssertionError(f"never heard {what or found}; heard: {self.heard}") from None
        return found()

    async def connected(self, times: int = 1) -> agent_pb2.Hello:
        """The agent's hello of its n-th session."""
        await self.until(lambda: len(self.hellos) >= times, "a hello")
        return self.hellos[times - 1]

    async def assign(self, assignment: agent_pb2.Assignment) -> None:
        """Tell the agent; said again in every later session."""
        self.assigned[assignment.job_id, assignment.worker] = assignment
        await self.say(agent_pb2.SessionResponse(assignment=assignment))

    def assign_later(self, assignment: agent_pb2.Assignment) -> None:
        """What the agent is told from its next session on."""
        self.assigned[assignment.job_id, assignment.worker] = assignment

    def reports(self, worker: str = "workerpool0-0") -> list[agent_pb2.WorkerReport]:
        """Of one worker, in the order heard."""
        kinds = [m.worker_report for m in self.heard if m.WhichOneof("message") == "worker_report"]
        return [report for report in kinds if report.worker == worker]

    def exits(self, generation: int = 0) -> list[agent_pb2.ExitReport]:
        """In the order heard."""
        said = [report for message in self.heard for report in _exits_in(message)]
        return [report for report in said if generation in (0, report.exit.generation)]

    async def state(self, state: str, generation: int = 1, worker: str = "workerpool0-0") -> agent_pb2.WorkerReport:
        """Wait for a report of that state, such as RUNNING."""
        number = agent_pb2.ReportedState.Value(f"REPORTED_STATE_{state}")

        def found() -> agent_pb2.WorkerReport | None:
            said = [r for r in self.reports(worker) if r.state == number and r.generation == generation]
            return said[-1] if said else None

        report: agent_pb2.WorkerReport = await self.until(found, f"{state} of generation {generation} of {worker}")
        return report

    async def heartbeats(self, count: int) -> None:
        """Wait for so many further ones: whatever the agent does at once, it has done by then."""

        def beats() -> int:
            return sum(m.WhichOneof("message") == "heartbeat" for m in self.heard)

        before = beats()
        await self.until(lambda: beats() >= before + count, f"{count} heartbeats")

    async def exit(self, rank: int = 0, generation: int = 1) -> agent_pb2.ExitReport:
        """Wait for a rank's exit."""

        def found() -> agent_pb2.ExitReport | None:
            said = [r for r in self.exits(generation) if r.exit.rank == rank]
            return said[0] if said else None

        report: agent_pb2.ExitReport = await self.until(
            found, f"the exit of rank {rank} of generation {generation}"
        )
        return report


def assignment(
    phase: str,
    command: list[str] | None = None,
    *,
    job: str = "job-1",
    worker: str = "workerpool0-0",
    generation: int = 1,
    attempt: int = 1,
    epoch: int = 1,
    grace_s: float = 5.0,
    stop_reason: str = "STOPPED",
    processes: int = 1,
    first_rank: int = 0,
    prepared: agent_pb2.WorkerReport | None = None,
    cwd: str = "",
    env: dict[str, str] | None = None,
    gpus: tuple[str, ...] = (),
    fence_s: float = 0.0,
    warn_signal: int = 0,
    notice_signal: int = 0,
    notice_s: float = 0.0,
    run_as: str = "",
    output: str = "",
) -> agent_pb2.Assignment:
    """What a controller would send."""
    pool, replica = worker.removeprefix("workerpool").split("-")
    message = agent_pb2.Assignment(
        epoch=epoch,
        job_id=job,
        attempt=attempt,
        generation=generation,
        worker=worker,
        phase=agent_pb2.AssignmentPhase.Value(f"ASSIGNMENT_PHASE_{phase}"),
        stop_reason=job_pb2.ExitReason.Value(f"EXIT_REASON_{stop_reason}"),
    )
    message.grace_period.FromMilliseconds(int(grace_s * 1000))
    message.warn_signal = warn_signal
    message.notice_signal = notice_signal
    message.notice.FromMilliseconds(int(notice_s * 1000))
    if fence_s:
        message.fence.FromMilliseconds(int(fence_s * 1000))
    if command is None:
        return message
    launch = message.launch
    launch.owner = "ann"
    launch.process.CopyFrom(spec_pb2.ProcessSpec(command=command, working_directory=cwd))
    for name, value in (env or {}).items():
        launch.process.env.add(name=name, value=value)
    launch.first_rank, launch.processes, launch.world_size = first_rank, processes, processes
    launch.pool, launch.replica, launch.worker_count, launch.worker_index = int(pool), int(replica), 1, 0
    launch.gpus.extend(gpus)
    launch.output_uri = output
    launch.run_as = run_as
    if prepared is not None:
        launch.rendezvous.master_address = "127.0.0.1"
        launch.rendezvous.master_port = prepared.master_port
        launch.rendezvous.secret = "s3cret"
        launch.rendezvous.pools.add(addresses=[f"127.0.0.1:{prepared.port}"])
    return message


def _exits_in(message: agent_pb2.SessionRequest) -> list[agent_pb2.ExitReport]:
    alone = [message.exit_report] if message.HasField("exit_report") else []
    return [*alone, *message.exit_reports.reports]
