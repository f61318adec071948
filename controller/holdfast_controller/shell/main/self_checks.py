"""The controller's own checks, beside the event loop: its disks, its certificates' files, backups, the audit log, mail.

A quick round each minute takes a few system calls. The audit log's chain is verified once a day, in a process of the
lowest priority. What fails is recorded once, and once that it is over (``core.hosts.checks``).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Iterator
from dataclasses import replace

from holdfast._daemon import log
from holdfast._daemon.abandonable import Late, Threads
from holdfast.doctor import certificates, disks, looks
from holdfast.doctor.findings import Finding, Status, error, warning
from holdfast.doctor.open_findings import OpenFindings, notable
from holdfast_controller.core import events as ev
from holdfast_controller.core.messages.maintenance import span
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.hosts.host import CheckStatus, FailedCheck
from holdfast_controller.core.step.host_commands import ControllerChecked
from holdfast_controller.shell.backup.places import newest_backup
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.notify.dispatcher import Dispatcher
from holdfast_controller.shell.store import codec

QUICK_S, QUICK_WITHIN_S = 60.0, 20.0
QUIET_ROUNDS = 3
"""A finding is over once so many quick rounds have not made it."""
VERIFY_FIRST_S, VERIFY_EVERY_S, VERIFY_WITHIN_S = 300.0, 86_400.0, 1_800.0
LEAST_MB = 256
"""For the log: some 100,000 jobs' events."""
SLOW_S = 1.0
"""A commit takes milliseconds."""
_NOTHING_DECIDED = "The controller ends when it can't write, and nothing is decided until there is space."
_BATCH = 500


async def run(driver: Driver, config: Callable[[], ControllerConfig], dispatcher: Dispatcher) -> None:
    """Look until cancelled. ``config`` gives the settings in effect."""
    driver.cluster.failed_checks.update(await _recorded(driver))
    found = OpenFindings(over_s=QUIET_ROUNDS * QUICK_S)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_look_quickly(driver, config, dispatcher, found))
        tasks.create_task(_verify_audit(driver, config, found))


async def _look_quickly(
    driver: Driver, config: Callable[[], ControllerConfig], dispatcher: Dispatcher, found: OpenFindings
) -> None:
    threads = Threads(each=1, most=1)  # a look that hangs is left behind, and none is made beside it
    while True:
        try:
            made = await threads.call("look", QUICK_WITHIN_S, lambda: list(_quick(config())))
            # How a folder is set up is left to the doctor.
            made = [each for each in made if each.notify or not each.check.startswith("disk.")]
        except Late:
            why = "A disk or a file server that does not answer: what needs it waits."
            made = [error("disk.look", f"no answer within {QUICK_WITHIN_S:g} s", why, "dmesg | tail -50")]
        _take(driver, found, "quick", notable([*made, *_slow(driver), *_undelivered(dispatcher)]))
        await asyncio.sleep(QUICK_S)


async def _verify_audit(driver: Driver, config: Callable[[], ControllerConfig], found: OpenFindings) -> None:
    await asyncio.sleep(VERIFY_FIRST_S)
    while True:
        _take(driver, found, "audit", await _audit(config()))
        await asyncio.sleep(VERIFY_EVERY_S)


def _take(driver: Driver, found: OpenFindings, kind: str, made: list[Finding]) -> None:
    found.take(kind, made, wall=time.time(), mono=time.monotonic())
    driver.feed(ControllerChecked(tuple(_failed(finding, since) for finding, since in found.all())))


def _quick(config: ControllerConfig) -> Iterator[Finding]:
    folders = {"state_dir": config.state_dir}
    if config.log_file is not None:
        folders["log_file"] = config.log_file.absolute().parent
    for name, folder in folders.items():
        facts = disks.look(name, folder, least_mb=LEAST_MB, durable=name == "state_dir", sync=False)
        yield from disks.check(replace(facts, without_space=_NOTHING_DECIDED))
    again = "journalctl -u holdfast-controller    # says why it was not renewed"
    found = certificates.check(looks.certificates(config.tls, renews=config.ca_directory is not None), again=again)
    yield from (each for each in found if each.status is Status.ERROR)  # endings are watched elsewhere
    yield from _backup(config)


def _backup(config: ControllerConfig) -> Iterator[Finding]:
    if not config.backup_within:
        return
    made_at, within = newest_backup(config.state_dir), span(config.backup_within)
    age_s = time.time() - made_at
    if age_s > config.backup_within:
        saw = f"the newest backup is {span(age_s)} old" if made_at else "no backup was ever made"
        why = (
            f"controller.toml: backup_within asks for one every {within}. Without it the log is lost with its disk."
        )
        fix = "holdfast-controller backup FILE --passphrase-file FILE"
        yield error("backup.age", saw, why, fix)


def _slow(driver: Driver) -> Iterator[Finding]:
    quickest_s, driver.quickest_s = driver.quickest_s, math.inf
    if SLOW_S <= quickest_s < math.inf:
        where = driver.store.engine.name
        saw = f"each commit to {where} took {quickest_s:.1f} s or longer within the last minute"
        why = "Nothing is decided, and no host or user is answered, before such a commit."
        look = "iostat -x 5 3    # there, and where its synchronous replicas are"
        yield warning("store.slow", saw, why, look, notify=True)


def _undelivered(dispatcher: Dispatcher) -> Iterator[Finding]:
    for to, (count, reason) in sorted(dispatcher.given_up.items()):
        many = "1 notification was" if count == 1 else f"{count} notifications were"
        saw = f"{many} given up, since {to} can't be reached: {reason}"
        why = "Their receivers know nothing of what happened; the histories of hosts and jobs say it."
        yield warning("notifications.receivers", saw, why, "holdfast-controller notify CHANNEL", notify=True)


async def _audit(config: ControllerConfig) -> list[Finding]:
    """Whether the audit log's chain is whole; nothing where that could not be found out."""
    # -P: what lies in the directory that the controller was started in is none of its modules.
    verify = ("-m", "holdfast", "audit", "verify", "--in", str(config.state_dir), "-o", "json")
    command = (sys.executable, "-P", *verify)
    process: asyncio.subprocess.Process | None = None
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, 19)
        async with asyncio.timeout(VERIFY_WITHIN_S):
            said, _ = await process.communicate()
        trails = json.loads(said)
        broken = [f"{each['trail']}: {each['problems'][0]}" for each in trails if each["problems"]]
    except (TimeoutError, OSError, ValueError, KeyError, TypeError) as problem:
        log.warning("self_check.failed", error=f"the audit log can't be verified: {problem!r}")
        return []
    finally:
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
    why = "Lines of the audit log were removed or changed, which takes the rights of the controller."
    fix = f"holdfast audit verify --in {config.state_dir}"
    return [error("audit.chain", "; ".join(broken), why, fix)] if broken else []


async def _recorded(driver: Driver) -> dict[str, FailedCheck]:
    """The checks that failed when the last controller ended: a restart reports none of them again."""
    failed: dict[str, FailedCheck] = {}
    after = 0
    while records := await driver.history("cluster", after, _BATCH):
        after = records[-1].sequence
        for record in records:
            match codec.load_event(record.type, record.version, record.payload):
                case ev.ControllerCheckFailed() as event:
                    since = failed[event.check].since if event.check in failed else event.at
                    failed[event.check] = FailedCheck(
                        event.check, event.status, event.saw, event.why, event.fix, since
                    )
                case ev.ControllerCheckPassed(check=check):
                    failed.pop(check, None)
                case _:
                    pass
    return failed


def _failed(finding: Finding, since: float) -> FailedCheck:
    status = CheckStatus.ERROR if finding.status is Status.ERROR else CheckStatus.WARNING
    return FailedCheck(finding.check, status, finding.saw, finding.why, finding.fix, Wall(since))
