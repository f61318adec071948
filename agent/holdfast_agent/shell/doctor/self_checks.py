"""The agent's own rounds of the doctor, beside the event loop: what fails is reported to the controller.

A quick round each minute takes a few system calls, in a thread that can be left behind: free space of disks and of
/dev/shm; the hardware's health is looked at as often. A whole round is the doctor in a process of its own, at the
lowest priority and bounded in time.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio

from holdfast._daemon import log
from holdfast._daemon.abandonable import Late, Threads
from holdfast.doctor.findings import Finding, Status, error, from_view
from holdfast.doctor.open_findings import OpenFindings, notable
from holdfast.v1 import agent_pb2, host_pb2
from holdfast_agent.gpu.reader import GpuSource
from holdfast_agent.shell.base import programs
from holdfast_agent.shell.base.programs import How, Program
from holdfast_agent.shell.config import Config
from holdfast_agent.shell.doctor import rounds
from holdfast_agent.shell.gpus.gpu_watch import GpuWatch
from holdfast_agent.shell.health.watch import HealthWatch

QUICK_S, QUICK_WITHIN_S = 60.0, 20.0
QUIET_ROUNDS = 3
"""A finding is over once so many quick rounds have not made it."""
WHOLE_FIRST_S = (60.0, 300.0)
"""After the start: a rack that gets its power back doesn't look all at once."""
WHOLE_WITHIN_S = 300.0
_KNOWN_OTHERWISE = ("controller.", "gpus.", "time.controller", "service.agent")
"""Checks whose matter the controller sees by itself: it has this agent's session, inventory and clock."""
_STATUS = {
    Status.WARNING: host_pb2.CHECK_STATUS_WARNING,
    Status.ERROR: host_pb2.CHECK_STATUS_ERROR,
}


class SelfChecks:
    """The checks of one host. ``path`` is that of the agent's settings; ``send`` says whether there is a session."""

    def __init__(
        self,
        settings: Config,
        path: Path | None,
        send: Callable[[agent_pb2.SessionRequest], bool],
        source: GpuSource,
        gpus: GpuWatch,
    ) -> None:
        self.settings = settings
        """In effect; may be replaced."""
        self._path = path.absolute() if path is not None and settings.self_check else None
        self._send = send
        self._health = HealthWatch(source, gpus, settings.state_dir / "health.json", site=settings.health)
        self._health_known = False
        self._quick_s = min(QUICK_S, settings.self_check or QUICK_S)
        self._open = OpenFindings(over_s=QUIET_ROUNDS * self._quick_s)
        self._threads = Threads(each=1, most=1)
        self._looked = False
        self._whole = self._path is None
        """Whether a whole round has been made, or none will be: only then what is not reported is known to pass."""
        self._sent: agent_pb2.CheckReport | None = None

    async def run(self) -> None:
        """Look until cancelled."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._look_quickly)
                tasks.start_soon(self._look_at_hardware)
                tasks.start_soon(self._health.site_checks.run)
                if self._path is not None:
                    tasks.start_soon(self._look_at_all, self._path)
        finally:
            self._threads.close()
            self._health.close()

    def on_session(self) -> None:
        """Report everything that fails to a controller that may not know it."""
        self._sent = None
        self._report()

    async def _look_quickly(self) -> None:
        while True:
            try:
                found = await self._threads.call("quick", QUICK_WITHIN_S, rounds.quick, self.settings)
                found = [each for each in notable(found) if each.notify]
            except Late:
                why = "A disk or a file server that does not answer: what needs it stands still."
                found = [error("disk.look", f"no answer within {QUICK_WITHIN_S:g} s", why, "dmesg | tail -50")]
            except OSError as problem:
                log.warning("self_check.failed", error=str(problem))
                found = []
            self._take("quick", found)
            await anyio.sleep(self._quick_s)

    async def _look_at_hardware(self) -> None:
        while True:
            found = await self._health.look()
            self._health_known = True
            self._take("health", found)
            await anyio.sleep(self._quick_s)

    async def _look_at_all(self, path: Path) -> None:
        await anyio.sleep(min(random.uniform(*WHOLE_FIRST_S), self.settings.self_check))
        while True:
            found = await self._doctor(path)
            if found is not None:
                self._whole = True
                others = [each for each in notable(found) if not each.check.startswith(_KNOWN_OTHERWISE)]
                self._take("whole", [each for each in others if not each.notify or not _is_quick(each)])
            await anyio.sleep(self.settings.self_check)

    async def _doctor(self, path: Path) -> list[Finding] | None:
        """The findings of all checks; None where they could not be had."""
        command = (
            "nice",
            "-n",
            "19",
            sys.executable,
            "-P",
            "-m",
            "holdfast_agent",
            "doctor",
            "--config",
            str(path),
        )
        program = Program((*command, "-o", "json"), WHOLE_WITHIN_S, os.environ, umask=0o077, may_gain=True)
        ran = await programs.run_async(program)
        if ran.how is not How.ENDED:
            log.warning("self_check.failed", error=f"the doctor {ran.problem}")
            return None
        try:
            return from_view(json.loads(ran.output))
        except (ValueError, KeyError, TypeError) as problem:
            log.warning("self_check.failed", error=f"the doctor's answer can't be read: {problem!r}")
            return None

    def _take(self, kind: str, found: list[Finding]) -> None:
        self._open.take(kind, found, wall=time.time(), mono=time.monotonic())
        self._looked = True
        self._report()

    def _report(self) -> None:
        """Send what fails, if that is news: other figures alone are none."""
        if not self._looked:
            return
        report = agent_pb2.CheckReport(
            failed=[_failed(finding, since) for finding, since in self._open.all()],
            partial=not (self._whole and self._health_known),
        )
        if (self._sent is None or _gist(report) != _gist(self._sent)) and self._send(
            agent_pb2.SessionRequest(check_report=report)
        ):
            self._sent = report


def _is_quick(finding: Finding) -> bool:
    return finding.check.startswith("disk.") or finding.check == "memory.shm"


def _gist(report: agent_pb2.CheckReport) -> tuple[object, ...]:
    return report.partial, [(each.check, each.status, each.keeps_work_away) for each in report.failed]


def _failed(finding: Finding, since: float) -> host_pb2.FailedCheck:
    message = host_pb2.FailedCheck(
        health=host_pb2.HealthClass.Value(
            f"HEALTH_CLASS_{finding.health.name if finding.health else 'UNSPECIFIED'}"
        ),
        check=finding.check,
        status=_STATUS[finding.status],
        saw=finding.saw,
        why=finding.why,
        fix=finding.fix,
        keeps_work_away=finding.keeps_work_away,
    )
    message.since.FromNanoseconds(round(since * 1e9))
    return message
