"""The thinnest agent: carries out assignments one by one and reports what the shims say."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from holdfast import __version__
from holdfast.tls import TlsFiles
from holdfast.v1 import agent_pb2, host_pb2

from holdfast_agent.core.environment import HostFacts, plan_ranks
from holdfast_agent.core.model import Assignment, ExitReason, Phase, PlaceKey, RankEnd
from holdfast_agent.shell import config, log, proc, wire
from holdfast_agent.shell.link import Link
from holdfast_agent.shell.ports import Ports
from holdfast_agent.shell.shims import Shims
from holdfast_agent.shell.spawner import Spawner


class Driver:
    def __init__(self, settings: config.Config, tls: TlsFiles) -> None:
        self._settings = settings
        self._tls = tls
        self._assigned: dict[PlaceKey, Assignment] = {}
        self._ranks: dict[PlaceKey, dict[int, int]] = {}
        self._sequence = 0

    async def run(self) -> None:
        settings = self._settings
        self._facts = HostFacts(
            settings.name,
            str(settings.log_dir),
            str(settings.state_dir / "scratch"),
            config.worker_user(settings),
            os.cpu_count() or 1,
            {f"GPU-sim-{i}": str(i) for i in range(settings.simulated_gpus)},
        )
        self._ports = Ports(settings.ports, settings.name)
        self._spawner = Spawner(settings.state_dir / "shims.log")
        self._spawner.warm()
        self._shims = Shims(
            settings.state_dir / "workers",
            self._spawner,
            self._from_shim,
            lambda key: log.warning("shim.lost", place=str(key)),
        )
        self._link = Link(settings.controller, self._tls, self)
        await self._link.run()

    def close(self) -> None:
        self._shims.close()
        self._spawner.close()

    def on_dialled(self) -> agent_pb2.Hello:
        inventory = host_pb2.Inventory(
            cpu_count=self._facts.cpu_count,
            memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            max_workers=self._settings.max_workers,
        )
        for uuid, index in self._facts.gpu_names.items():
            inventory.gpus.add(uuid=uuid, index=int(index), model="SIMULATED", memory_bytes=80 << 30)
        return agent_pb2.Hello(
            agent_version=__version__, boot_id=proc.boot_id(), inventory=inventory, address=self._settings.address
        )

    def on_welcome(self, welcome: agent_pb2.Welcome) -> bool:
        return True

    def on_disconnected(self) -> None:
        pass

    def heartbeat(self) -> agent_pb2.Heartbeat:
        return agent_pb2.Heartbeat()

    def on_message(self, message: agent_pb2.SessionResponse) -> None:
        if message.WhichOneof("message") != "assignment":
            return
        assignment = wire.assignment(message.assignment)
        key = assignment.key
        self._assigned[key] = assignment
        if assignment.phase is Phase.PREPARE:
            assert assignment.launch
            self._shims.ensure(key)
            ports = self._ports.hold(key, 2)
            self._report(
                key,
                agent_pb2.PLACE_STATE_PREPARED,
                port=ports[0],
                master_port=0 if assignment.launch.first_rank else ports[1],
            )
        elif assignment.phase is Phase.RUN:
            self._ports.release(key)
            ranks = []
            for rank in plan_ranks(assignment, self._facts):
                os.makedirs(os.path.dirname(rank.stdout), exist_ok=True)
                os.makedirs(rank.cwd, exist_ok=True)
                ranks.append(
                    {
                        "rank": rank.rank,
                        "argv": rank.argv,
                        "env": rank.env,
                        "cwd": rank.cwd,
                        "stdout": rank.stdout,
                        "stderr": rank.stderr,
                    }
                )
            self._ranks[key] = {}
            self._shims.send(
                key,
                {
                    "op": "launch",
                    "generation": assignment.generation,
                    "ranks": ranks,
                    "uid": None,
                    "gid": None,
                    "groups": None,
                    "umask": 18,
                    "core_bytes": 0,
                },
            )
        else:
            self._shims.send(
                key,
                {
                    "op": "stop",
                    "generation": assignment.generation,
                    "grace_s": assignment.grace_s,
                    "reason": assignment.stop_reason.value,
                },
            )

    def _from_shim(self, key: PlaceKey, message: dict[str, Any]) -> None:
        match message["ev"]:
            case "started":
                ranks = self._ranks[key]
                ranks[message["rank"]] = message["pid"]
                if len(ranks) == self._assigned[key].launch.processes:  # type: ignore[union-attr]
                    self._report(key, agent_pb2.PLACE_STATE_RUNNING)
            case "exited":
                self._sequence += 1
                end = RankEnd(
                    message["rank"],
                    message["status"],
                    ExitReason(message["reason"]),
                    message["message"],
                    message["end_time"],
                    tuple(message["stderr_tail"]),
                )
                self._link.send(
                    wire.exit_report(
                        self._sequence,
                        key,
                        self._assigned[key].attempt,
                        message["generation"],
                        end,
                        port_taken=False,
                    )
                )
            case "empty":
                self._report(key, agent_pb2.PLACE_STATE_EMPTY)
                self._ports.free(key)
                if self._assigned[key].phase is Phase.FORGET:
                    self._shims.dismiss(key)

    def _report(self, key: PlaceKey, state: agent_pb2.PlaceState.ValueType, **fields: Any) -> None:
        assigned = self._assigned[key]
        report = agent_pb2.WorkerReport(
            job_id=key.job,
            worker=key.worker,
            attempt=assigned.attempt,
            generation=assigned.generation,
            state=state,
            shim_pid=self._shims.pid(key),
            **fields,
        )
        first = assigned.launch.first_rank if assigned.launch else 0
        for rank, pid in self._ranks.get(key, {}).items():
            report.ranks.add(rank=rank, local_rank=rank - first, pid=pid)
        self._link.send(agent_pb2.SessionRequest(worker_report=report))
