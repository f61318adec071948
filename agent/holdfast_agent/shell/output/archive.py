"""Copies the output of workers that are over to their job's base output directory, behind everybody's back.

What is to be copied stands in a file for each worker from its preparation on, so that it survives this agent: it is
due once the worker is forgotten, and goes when all is copied and the controller knows. Nothing waits for it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import anyio
import anyio.to_thread

from holdfast._daemon import log
from holdfast._session.assignment import Launch
from holdfast._session.reports import WorkerId
from holdfast_agent.core.launch.archiving import GIVE_UP_AFTER_S, in_words, is_due, pause_s
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser, output_directory
from holdfast_agent.shell.output import archive_copy
from holdfast_agent.shell.users.accounts import Accounts, NoAccount

AT_ONCE = 2
COPY_S = 1800.0
LINE_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Order:
    """One worker's output. Times are on the wall clock: they outlive boots."""

    job: str
    worker: str
    base: str
    due_since: float = 0.0
    """0 while the worker is still there."""
    next_try: float = 0.0
    failures: int = 0
    problem: str = ""
    """As the controller should know it."""
    told: str = ""
    """As the controller has heard it."""
    copied: bool = False
    run_as: str = ""
    """The account that the job names."""

    @property
    def key(self) -> WorkerId:
        """The worker whose output is copied."""
        return WorkerId(self.job, self.worker)


@dataclass
class Archive:
    """Copies of workers' output. ``tell`` sends a worker's problem to the controller; False where it can't."""

    directory: Path
    facts: HostFacts
    accounts: Accounts
    tell: Callable[[WorkerId, str], bool]
    _wake: anyio.Event = field(default_factory=anyio.Event)
    _limit: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(AT_ONCE))
    _busy: set[WorkerId] = field(default_factory=set)

    def keep(self, key: WorkerId, launch: Launch) -> None:
        """Note that the worker's output is to be copied, if its job names a directory. Raises ``OSError``."""
        base = output_directory(launch.output_uri)
        order = Order(key.job, key.worker, base, run_as=launch.task.account)
        if os.path.isabs(base) and self._read(self._path(key)) != order:
            self._write(order)

    def release(self, key: WorkerId) -> None:
        """Make the copy due, since the worker is over; does nothing where no copy was noted."""
        order = self._read(self._path(key))
        if order is not None and not order.due_since:
            self._try_to_write(replace(order, due_since=time.time()))
            self._wake.set()

    def recover(self, known: Collection[WorkerId]) -> None:
        """Make copies of workers that are no longer ``known`` due, once at the agent's start."""
        for order in self._orders():
            if order.key not in known:
                self.release(order.key)

    async def run(self) -> None:
        """Copy what is due until cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                self._wake = anyio.Event()
                now = time.time()
                waiting = [order for order in self._orders() if order.due_since and order.key not in self._busy]
                for order in waiting:
                    if is_due(order.next_try, now):
                        self._busy.add(order.key)
                        tasks.start_soon(self._work, order)
                times = [order.next_try - now for order in waiting if not is_due(order.next_try, now)]
                with anyio.move_on_after(min(times) if times else None):
                    await self._wake.wait()

    async def _work(self, begun: Order) -> None:
        order = begun
        if not order.copied:
            async with self._limit:
                problem = await anyio.to_thread.run_sync(self._copy, order, abandon_on_cancel=True)
            if problem:
                log.warning("archive.copy_failed", worker=str(order.key), error=problem)
                problem = in_words(problem, time.time() - order.due_since)
            order = replace(order, copied=not problem, problem=problem)
        if order.problem != order.told and self.tell(order.key, order.problem):
            order = replace(order, told=order.problem)
        if not self._settle(begun, order):
            await anyio.sleep(pause_s(1))
        self._busy.discard(order.key)
        self._wake.set()

    def _copy(self, order: Order) -> str:
        try:
            user = self.accounts.look_up(order.run_as)
        except NoAccount as problem:
            return str(problem)
        return copy(f"{self.facts.log_dir}/{order.job}", order, user)

    def _settle(self, begun: Order, order: Order) -> bool:
        """Store what is left to copy; False if the disk refuses it."""
        if self._read(self._path(order.key)) != begun:
            return True  # the worker is there again
        over = order.copied or time.time() - order.due_since >= GIVE_UP_AFTER_S
        if over and order.told == order.problem:
            self._path(order.key).unlink(missing_ok=True)
            return True
        failures = order.failures + 1
        return self._try_to_write(replace(order, failures=failures, next_try=time.time() + pause_s(failures)))

    def _orders(self) -> list[Order]:
        found = map(self._read, sorted(self.directory.glob("*.json")))
        return [order for order in found if order is not None]

    def _path(self, key: WorkerId) -> Path:
        return self.directory / f"{key.job}.{key.worker}.json"

    def _read(self, path: Path) -> Order | None:
        try:
            return Order(**json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            log.warning("archive.unreadable", path=str(path), error=str(error))
            return None

    def _write(self, order: Order) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(order.key)
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(order)))
        fresh.replace(path)

    def _try_to_write(self, order: Order) -> bool:
        try:
            self._write(order)
        except OSError as error:
            log.warning("archive.write_failed", worker=str(order.key), error=str(error))
            return False
        return True


def copy(logs: str, order: Order, user: WorkerUser) -> str:
    """Copy with the rights of the worker's user; why that failed, empty when all is there. Blocks."""
    program = [sys.executable, "-I", "-S", archive_copy.__file__, logs, order.base, order.job, order.worker]
    try:
        done = subprocess.run(
            [*become(user), *program],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"},
            timeout=COPY_S,
        )
    except subprocess.TimeoutExpired:
        return f"{order.base}: did not take it within {COPY_S:g} s"
    except OSError as error:
        return f"the copy could not be started: {error.strerror}"
    if done.returncode == 0:
        return ""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    said = "".join(c for c in lines[-1] if c.isprintable()) if lines else ""
    return said[:LINE_CHARACTERS] or f"the copy ended with code {done.returncode}"


def become(user: WorkerUser) -> list[str]:
    """The command that runs another one as this user.

    A program does so, since forking a process that changes its user does not work with gRPC's threads.
    """
    if user.uid is None:
        return []
    groups = f"--groups={','.join(map(str, user.groups))}" if user.groups else "--clear-groups"
    return ["setpriv", f"--reuid={user.uid}", f"--regid={user.gid}", groups, "--no-new-privs", "--"]
