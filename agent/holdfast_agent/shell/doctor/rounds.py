"""All looks at once, each with a deadline: what hangs is a finding of its own, and holds up no other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from holdfast._base.dataclass import dataclass
from holdfast._security.tls import TlsFiles
from holdfast.doctor import certificates, disks, looks, reach
from holdfast.doctor.findings import Finding, error, needs_root, ok
from holdfast.errors import ConfigError
from holdfast_agent.core.doctor import (
    accounts,
    cgroups,
    clock,
    containers,
    debugging,
    gpus,
    limits,
    memory,
    network,
    packages,
    service,
)
from holdfast_agent.core.model.gpus import Reading
from holdfast_agent.shell import config
from holdfast_agent.shell.config import Config
from holdfast_agent.shell.doctor import host, outside

JOIN = "holdfast-agent join …    # with the line that an admin gets from: holdfast host token create NAME"
STEPS = 4
"""Times ``patience_s`` that a look may take as a whole: one may consist of several questions."""


@dataclass(frozen=True)
class _Look:
    """One area's, which reads and judges."""

    area: str
    work: Callable[[], Iterable[Finding]]

    def findings(self) -> list[Finding]:
        try:
            return list(self.work())
        except PermissionError as problem:
            return [needs_root(self.area, str(problem))]


def make(path: Path, patience_s: float) -> tuple[str, list[Finding]]:
    """The host's name and the findings of all checks, for the agent with the settings at ``path``."""
    try:
        settings = config.load(path)
    except ConfigError as problem:
        if isinstance(problem.__cause__, PermissionError):
            return host.own_name(), [needs_root("settings.file", problem.message)]
        found = error("settings.file", problem.message, "The agent doesn't start.", problem.fix or f"Edit {path}.")
        others = [_Look("time.ntp", lambda: clock.check(host.clock()))]
        return host.own_name(), [found, *_all(others, patience_s)]
    return settings.name, [ok("settings.file", str(path)), *_all(list(_looks(settings, patience_s)), patience_s)]


def _looks(settings: Config, patience_s: float) -> Iterator[_Look]:
    files = TlsFiles(settings.ca, settings.cert, settings.key)

    def look_at_certificates() -> Iterator[Finding]:
        renews, wanted = bool(settings.enrolment), f"host/{settings.name}"
        return certificates.check(looks.certificates(files, renews=renews, wanted=wanted), again=JOIN)

    def look_at_gpus() -> Iterator[Finding]:
        found = outside.gpus(settings, patience_s)
        yield from gpus.check(found)
        known = found.reading.gpus if isinstance(found.reading, Reading) else ()
        yield from containers.check(host.container_engine(settings, tuple(gpu.uuid for gpu in known)))

    yield _Look("service", lambda: service.check(host.service(settings)))
    yield _Look("accounts", lambda: accounts.check(host.accounts(settings)))
    yield _Look("gpus", look_at_gpus)
    yield _Look("cgroups", lambda: cgroups.check(host.cgroup_tree(settings)))
    yield _Look("limits", lambda: limits.check(host.limits(settings)))
    yield _Look("memory", lambda: memory.check(host.memory(settings)))
    for name, folder in _folders(settings).items():
        yield _Look(f"disk.{name}", partial(disk, settings, name, folder))
    yield _Look("network", lambda: network.check(outside.network(settings)))
    yield _Look("certificates", look_at_certificates)
    yield _Look("controller", lambda: reach.check(looks.reach_any(settings.controller, files)[1]))
    yield _Look("time.ntp", lambda: clock.check(host.clock()))
    yield _Look("packages", lambda: packages.check(host.packages(settings)))
    yield _Look("debugging", lambda: debugging.check(host.debugging(settings)))


def quick(settings: Config) -> list[Finding]:
    """Findings of the looks that take only a few system calls: free space on the disks and in /dev/shm."""
    found = [
        each for name, folder in _folders(settings).items() for each in disk(settings, name, folder, sync=False)
    ]
    return [*found, *memory.check(host.memory(settings))]


def _folders(settings: Config) -> dict[str, Path]:
    """Each folder that the agent writes to, by its setting."""
    cache = settings.packages.cache_dir
    found = {"state_dir": settings.state_dir, "log_dir": settings.log_dir}
    return found if cache is None else {**found, "cache_dir": cache}


def disk(settings: Config, name: str, folder: Path, *, sync: bool = True) -> Iterator[Finding]:
    """Check one of the agent's folders."""
    least_mb, durable, executes = settings.checks.disk_free_mb, name == "state_dir", name != "log_dir"
    facts = disks.look(name, folder, least_mb=least_mb, durable=durable, executes=executes, sync=sync)
    return disks.check(replace(facts, keeps_work_away=name in ("state_dir", "log_dir")))


def _all(each: list[_Look], patience_s: float) -> Iterator[Finding]:
    # Never shut down: a thread that hangs in the kernel is left behind, and our caller ends the process.
    threads = ThreadPoolExecutor(len(each))
    waiting = [(look, threads.submit(look.findings)) for look in each]
    deadline = time.monotonic() + patience_s * STEPS
    for look, future in waiting:
        try:
            yield from future.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            why = "What was asked hangs: a disk, a file server or a driver that does not answer."
            name = look.area if "." in look.area else f"{look.area}.look"
            yield error(name, f"no answer within {patience_s * STEPS:g} s", why, "dmesg | tail -50")
