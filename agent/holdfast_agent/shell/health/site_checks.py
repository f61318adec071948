"""Runs the site's own checks of a host's health, each at its own pace, and keeps what each said last."""

from __future__ import annotations

import os
from collections.abc import Mapping

import anyio

from holdfast._base.printable import one_line
from holdfast._daemon import log
from holdfast_agent.core.health import site_rules
from holdfast_agent.core.health.engine import Reading
from holdfast_agent.core.health.site_rules import OFF, PROGRAM, HealthRule
from holdfast_agent.shell.base import programs
from holdfast_agent.shell.base.programs import How, Program, Ran

PRINTED_BYTES = 64 << 10
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class SiteChecks:
    """The programs of ``[health.NAME]``. What one said counts until its next run has ended."""

    def __init__(self, site: Mapping[str, HealthRule]) -> None:
        self._site = {name: rule for name, rule in site.items() if rule.command and rule.health != OFF}
        self._said: dict[str, list[Reading]] = {}
        self._problems: dict[str, str] = {}

    def readings(self) -> list[Reading]:
        """Newest words of all programs, and whether each could be run. One that couldn't has said nothing."""
        found = [reading for said in self._said.values() for reading in said]
        told = [
            Reading(PROGRAM, name, float(bool(said)), said or "it ran") for name, said in self._problems.items()
        ]
        return [*found, *told]

    async def run(self) -> None:
        """Run them until cancelled; one that hangs holds up no other."""
        async with anyio.create_task_group() as tasks:
            for name, rule in self._site.items():
                tasks.start_soon(self._keep_running, name, rule)

    async def _keep_running(self, name: str, rule: HealthRule) -> None:
        while True:
            await self.run_once(name, rule)
            await anyio.sleep(rule.every)

    async def run_once(self, name: str, rule: HealthRule) -> None:
        """Run one program, and take what it says."""
        env = {"PATH": os.environ.get("PATH", _PATH), "LANG": "C.UTF-8", "HOLDFAST_CHECK": name}
        ran = await programs.run_async(Program(rule.command, rule.timeout, env, may_gain=True))
        problem, said = _problem(ran), list[Reading]()
        if not problem:
            try:
                said = site_rules.printed(name, ran.output)
            except ValueError as error:
                problem = str(error)
        if problem:
            problem = f"{rule.command[0]}: {problem}"
            log.warning("health.program", check=name, error=problem)
        self._said[name], self._problems[name] = said, problem


def _problem(ran: Ran) -> str:
    """Why a run says nothing; empty where it ended well."""
    if ran.how is not How.ENDED:
        return ran.problem or ran.how.value
    if ran.code:
        lines = ran.errors.decode("utf-8", "replace").strip().split("\n")
        said = one_line(lines[-1], site_rules.MOST_CHARACTERS)
        return f"it {ran.failure}" + (f": {said}" if said else "")
    return "it printed too much" if len(ran.output) > PRINTED_BYTES else ""
