"""Copies the output of workers to the archive below their job's base output directory, in the background.

A file for each worker says from its preparation on what is to be copied, so that this survives the agent. While the
worker is there, its output is appended every ``SHIP_EVERY_S``, some megabytes at a time, so that a host that dies
takes little of it away. The rest is due once the worker is forgotten, and the file goes when all is copied and the
controller knows. Nothing waits for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, field, replace
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from holdfast._base.dataclass import dataclass
from holdfast._base.printable import one_line
from holdfast._daemon import log
from holdfast._session.assignment import Launch
from holdfast._session.reports import WorkerId
from holdfast_agent.core.launch.archiving import MOST_TRIES, in_words, is_due, pause_s
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser, output_directory
from holdfast_agent.shell.base import programs
from holdfast_agent.shell.base.programs import How, Program
from holdfast_agent.shell.output import archive_copy
from holdfast_agent.shell.users.accounts import Accounts, NoAccount

AT_ONCE = 2
COPY_S = 1800.0
SHIP_EVERY_S, SHIP_S = 15.0, 120.0
SHIP_BYTES = 16 << 20
"""Of each stream, each time: about a MiB a second for each at most."""
MAKE_S = 10.0
"""A file server that doesn't answer for so long before a start is left to the program."""
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


@dataclass(slots=True)
class Shipped:
    """Sizes of a present worker's streams that were copied, and when to look again (monotonic)."""

    sizes: dict[str, int] = field(default_factory=dict)
    next_at: float = 0.0
    failures: int = 0


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
    _shipped: dict[WorkerId, Shipped] = field(default_factory=dict)
    _early: dict[WorkerId, str] = field(default_factory=dict)
    """By worker: the problem with its directories that was reported before the order was kept."""

    def keep(self, key: WorkerId, launch: Launch) -> None:
        """Note that the worker's output is to be copied, if its job names a directory. Raises ``OSError``."""
        base = output_directory(launch.output_uri)
        if not os.path.isabs(base):
            return
        known = self._read(self._path(key))
        told = self._early.pop(key, known.told if known is not None else "")
        order = Order(key.job, key.worker, base, run_as=launch.task.account, problem=told, told=told)
        if known != order:
            self._write(order)
            self._wake.set()

    async def make_directories(self, key: WorkerId, launch: Launch, user: WorkerUser) -> None:
        """Have the directories that the AIP_* variables name. A failure is reported as a problem of the archive."""
        base = output_directory(launch.output_uri)
        if not os.path.isabs(base):
            return
        order = Order(key.job, key.worker, base)
        with anyio.move_on_after(2 * MAKE_S):
            made = partial(copy, "", order, user, within_s=MAKE_S)
            if problem := await anyio.to_thread.run_sync(made, abandon_on_cancel=True):
                log.warning("archive.directories_failed", worker=str(key), error=problem)
                words = in_words(problem, 0)
                if self.tell(key, words):
                    self._early[key] = words

    def release(self, key: WorkerId) -> None:
        """Make the copy due, since the worker is over; does nothing where no copy was noted."""
        order = self._read(self._path(key))
        if order is not None and not order.due_since:
            self._try_to_write(replace(order, due_since=time.time()))
            self._wake.set()

    def drop(self, job: str) -> None:
        """Copy nothing more of a job that was deleted."""
        for order in self._orders():
            if order.job == job:
                self._path(order.key).unlink(missing_ok=True)
                self._shipped.pop(order.key, None)

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
                orders = [order for order in self._orders() if order.key not in self._busy]
                for order in orders:
                    if not order.due_since and self._has_grown(order):
                        self._busy.add(order.key)
                        tasks.start_soon(self._ship, order)
                waiting = [order for order in orders if order.due_since]
                for order in waiting:
                    if is_due(order.next_try, now):
                        self._busy.add(order.key)
                        tasks.start_soon(self._work, order)
                times = [order.next_try - now for order in waiting if not is_due(order.next_try, now)]
                times += [SHIP_EVERY_S] if len(waiting) < len(orders) or self._busy else []
                with anyio.move_on_after(min(times, default=None)):
                    await self._wake.wait()

    def _has_grown(self, order: Order) -> bool:
        """Whether there is more to append, of a worker that is there, and the last time was a while ago."""
        last = self._shipped.setdefault(order.key, Shipped())
        return time.monotonic() >= last.next_at and self._written(order.key) != last.sizes

    def _written(self, key: WorkerId) -> dict[str, int]:
        """Sizes of the worker's streams, by path."""
        sizes = {}
        # A disk may be ill. And its user may remove any of it where workers have the agent's account.
        with contextlib.suppress(OSError):
            for path in Path(self.facts.log_dir, key.job).glob(f"g*/{key.worker}.r*"):
                with contextlib.suppress(OSError):
                    if path.suffix in (".out", ".err"):
                        sizes[str(path)] = path.lstat().st_size
        return sizes

    async def _ship(self, order: Order) -> None:
        last, sizes = self._shipped[order.key], self._written(order.key)
        async with self._limit:
            once = partial(self._copy, order, most=SHIP_BYTES, within_s=SHIP_S)
            problem = await anyio.to_thread.run_sync(once, abandon_on_cancel=True)
        last.failures = last.failures + 1 if problem else 0
        last.next_at = time.monotonic() + max(SHIP_EVERY_S, pause_s(last.failures) if problem else 0.0)
        if not problem:
            copied = ((path, last.sizes.get(path, 0) + SHIP_BYTES) for path in sizes)
            last.sizes = {path: min(sizes[path], most) for path, most in copied}
        words = in_words(problem, 0) if problem else ""
        if words != order.told and self._read(self._path(order.key)) == order and self.tell(order.key, words):
            self._try_to_write(replace(order, problem=words, told=words))
        self._busy.discard(order.key)
        self._wake.set()

    async def _work(self, begun: Order) -> None:
        order = begun
        if not order.copied:
            async with self._limit:
                problem = await anyio.to_thread.run_sync(self._copy, order, abandon_on_cancel=True)
            if problem:
                log.warning("archive.copy_failed", worker=str(order.key), error=problem)
                problem = in_words(problem, order.failures + 1)
            order = replace(order, copied=not problem, problem=problem)
        if order.problem != order.told and self.tell(order.key, order.problem):
            order = replace(order, told=order.problem)
        if not self._settle(begun, order):
            await anyio.sleep(pause_s(1))
        self._busy.discard(order.key)
        self._wake.set()

    def _copy(self, order: Order, *, most: int = 0, within_s: float = COPY_S) -> str:
        try:
            user = self.accounts.look_up(order.run_as)
        except NoAccount as problem:
            return str(problem)
        return copy(f"{self.facts.log_dir}/{order.job}", order, user, most=most, within_s=within_s)

    def _settle(self, begun: Order, order: Order) -> bool:
        """Store what is left to copy; False if the disk refuses it."""
        if self._read(self._path(order.key)) != begun:
            return True  # the worker is there again
        over = order.copied or order.failures + 1 >= MOST_TRIES
        if over and order.told == order.problem:
            self._path(order.key).unlink(missing_ok=True)
            self._shipped.pop(order.key, None)
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


def copy(logs: str, order: Order, user: WorkerUser, *, most: int = 0, within_s: float = COPY_S) -> str:
    """Copy with the rights of the worker's user; why that failed, empty when all is there. Blocks.

    At most ``most`` bytes of each stream, unless that is 0.
    """
    ran = programs.run(
        archive_copy_program(user, within_s, "append", logs, order.base, order.job, order.worker, str(most))
    )
    if ran.how is How.NOT_STARTED:
        return f"the copy could not be started: {ran.problem}"
    if ran.how is How.LATE:
        return f"{order.base}: did not take it within {within_s:g} s"
    if ran.code == 0:
        return ""
    lines = ran.errors.decode("utf-8", "replace").strip().splitlines()
    said = one_line(lines[-1], LINE_CHARACTERS) if lines else ""
    return said or (ran.code is None and f"the copy {ran.problem}") or f"the copy {ran.failure}"


def archive_copy_program(user: WorkerUser, within_s: float, *words: str) -> Program:
    """``archive_copy`` with these words, which are not to be seen in its command line, as this user."""
    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", archive_copy.WORDS: json.dumps(words)}
    return Program([sys.executable, "-I", "-S", archive_copy.__file__], within_s, env, user=user)
