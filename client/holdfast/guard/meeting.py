"""Brings the tasks of one job together: the others find task 0, prove who they are, and learn its controller's address.

Lines of JSON over TCP. Nothing secret is said in the clear: the seed comes inside a credential, or is known before, and
each line after the greeting proves that its sender has it (``lines``). The ports follow from the job's name, so that no
task needs to learn them; who else listens there proves nothing, and is passed by: the port is part of each proof, so
that a conversation can't be passed on to the port on which task 0 does listen. A connection stays open as long as its
guard lives, so each side notices at once when the other is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast._base.cancellation import connection_handler
from holdfast._base.identity import BACKDATED_S
from holdfast._base.version import __version__
from holdfast.errors import ConfigError, Unauthenticated, Unavailable
from holdfast.guard.allocation import Allocation
from holdfast.guard.lines import LINE_BYTES, Link, read_line, write_line

CANDIDATES = 16
FIRST_PORT, LAST_PORT = 10_000, 29_999
"""Outside of what kernels give to outgoing connections, and of Slurm's own ports below."""
CONNECTED_S, ANSWER_S = 3.0, 10.0
"""For a connection, and for a step of the greeting, which may run munge."""
REFUSED, SILENCE = "nothing listens there", "no answer"
AGAIN_S = 0.1
NEWCOMERS, OF_ONE_ADDRESS = 256, 64
"""Connections at a time that have not proven anything."""

Seal = Callable[[], str]
Unseal = Callable[[str], bytes]


def ports(job: str) -> list[int]:
    """Ports on which task 0 may listen, in the order in which they are tried."""
    number = int.from_bytes(hashlib.sha256(job.encode()).digest()[:4])
    span = LAST_PORT - FIRST_PORT + 1 - CANDIDATES
    return [FIRST_PORT + number % span + index for index in range(CANDIDATES)]


class Host:
    """Task 0's side.

    ``present`` are tasks that have come, ``lost`` those of them that are gone again, ``signals`` what they have got.
    """

    def __init__(
        self, place: Allocation, seed: bytes, controller: str, seal: Seal | None, command: Sequence[str] = ()
    ) -> None:
        self._command = _mark(command)
        self._place, self._seed, self._controller = place, seed, controller
        self._seal = seal
        self._links: dict[int, Link] = {}
        self._newcomers: Counter[str] = Counter()
        """By address: who holds all the places of one host keeps no other host's tasks out."""
        self._server: asyncio.Server | None = None
        self.present: dict[int, str] = {}
        self.lost: dict[int, str] = {}
        self.signals: dict[int, int] = {}
        self.abandoned: set[int] = set()
        """Tasks whose process of the launcher is dead."""
        self.problem = ""
        self.changed = asyncio.Event()
        self._job = ""

    @property
    def gone(self) -> dict[int, str]:
        """Tasks that are not there, though the job runs, and their names; empty for one that has never come."""
        others = range(1, self._place.tasks)
        here = self.present.keys() - self.lost.keys() - self.abandoned
        return {task: self.present.get(task, "") for task in others if task not in here}

    async def listen(self, address: str) -> None:
        """Raises ``ConfigError`` where all of the job's ports are taken."""
        for port in ports(self._place.job):
            try:
                self._server = await asyncio.start_server(self._greet, address, port, limit=LINE_BYTES)
                return
            except OSError as error:
                problem = error
        raise ConfigError(f"No port for the tasks to meet on {self._place.host}: {problem}.")

    async def close(self) -> None:
        """Stop listening, and hang up on all tasks that are still there."""
        if self._server is not None:
            self._server.close()
        for link in self._links.values():
            link.close()

    def tell_job(self, job: str) -> None:
        """Send the job's id to every task, also to those that come later."""
        self._job = job
        self.tell({"job": job})

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send to every task that is there."""
        for task, link in list(self._links.items()):
            if task not in self.lost:
                link.send(message)

    @connection_handler
    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task, address = -1, str((writer.get_extra_info("peername") or ("",))[0])
        self._newcomers[address] += 1
        try:
            if self._newcomers[address] > OF_ONE_ADDRESS or self._newcomers.total() > NEWCOMERS:
                return
            async with asyncio.timeout(ANSWER_S):
                task = await self._admit(reader, writer)
        except (OSError, ValueError, KeyError, TypeError, TimeoutError, asyncio.IncompleteReadError):
            return  # no task of this job, or one that is gone again
        except (ConfigError, Unauthenticated):
            return
        finally:
            self._newcomers -= Counter((address,))
            if task < 0:
                writer.close()
        await self._attend(task)

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        nonce = secrets.token_hex(16)
        credential = await asyncio.to_thread(self._seal) if self._seal else ""
        write_line(writer, {"job": self._place.job, "nonce": nonce, "credential": credential})
        theirs = str((await read_line(reader))["nonce"])
        words = (nonce, theirs, str(writer.get_extra_info("sockname")[1]))
        link = Link(reader, writer, self._seed, words, first_task=True)
        said = await link.receive()
        task, name = int(said["task"]), str(said["name"])
        if not 0 < task < self._place.tasks or task in self.present:
            raise ValueError("no such task")
        if said["version"] != __version__:
            self.problem = (
                f"Task {task} on {name} has Holdfast {said['version']:.40}, and task 0 on {self._place.name} has "
                f"{__version__}: install one release on all hosts."
            )
            self.changed.set()
        if abs(apart := float(said["clock"]) - time.time()) >= BACKDATED_S:
            self.problem = self.problem or (
                f"The clock of {name} is {abs(apart):.0f} s {'ahead of' if apart > 0 else 'behind'} that of "
                f"{self._place.name}: certificates would not hold there. Set the clocks, by NTP for instance."
            )
            self.changed.set()
        if said.get("command") != self._command:
            self.problem = self.problem or (
                f"Task {task} on {name} guards another command than task 0 on {self._place.name}: have one script do "
                "what each rank is to do, by its RANK."
            )
            self.changed.set()
        link.send({"controller": self._controller})
        if self._job:
            link.send({"job": self._job})
        link.keep_asking()
        self.present[task] = name
        self._links[task] = link
        self.changed.set()
        return task

    async def _attend(self, task: int) -> None:
        with contextlib.suppress(
            OSError, ValueError, KeyError, TypeError, Unauthenticated, asyncio.IncompleteReadError
        ):
            while True:
                said = await self._links[task].receive()
                if "signal" in said:
                    self.signals[task] = int(said["signal"])
                elif "abandoned" in said:
                    self.abandoned.add(task)
                else:
                    name, text = self.present[task], str(said["problem"])
                    self.problem = self.problem or (text if name in text else f"Task {task} on {name}: {text}")
                self.changed.set()
        self._links[task].close()
        self.lost[task] = self.present[task]
        self.changed.set()


class Guest:
    """Another task's side, once it was admitted."""

    def __init__(self, link: Link, seed: bytes, controller: str, address: str) -> None:
        self._link = link
        link.keep_asking()
        self.seed, self.controller = seed, controller
        self.address = address
        """Ours, as task 0 sees it."""

    async def hear(self) -> dict[str, Any] | None:
        """The next message of task 0; None once it is gone."""
        try:
            return await self._link.receive()
        except (OSError, ValueError, Unauthenticated, asyncio.IncompleteReadError):
            return None

    def complain(self, problem: str) -> None:
        """Tell task 0 why this one can't start."""
        self._link.send({"problem": problem})

    def pass_on(self, number: int) -> None:
        """Tell task 0 that a signal wants the job to end."""
        self._link.send({"signal": number})

    def abandon(self) -> None:
        """Tell task 0 that this task's process of the launcher is dead."""
        self._link.send({"abandoned": True})

    def leave(self) -> None:
        """Hang up, which says that this task is done."""
        self._link.close()


async def join(
    place: Allocation,
    hosts: Sequence[str],
    seed: bytes,
    unseal: Unseal | None,
    timeout_s: float,
    command: Sequence[str] = (),
) -> Guest:
    """Find task 0 at one of the addresses ``hosts``. Raises ``Unavailable`` after ``timeout_s``."""
    why = SILENCE
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                # A firewall hides all ports of an address: the next address is tried before the next port.
                for port, host in itertools.product(ports(place.job), hosts):
                    found = await _try(place, host, port, seed, unseal, command)
                    if isinstance(found, Guest):
                        return found
                    if found != REFUSED or why == SILENCE:
                        why = found
                await asyncio.sleep(AGAIN_S)
    except TimeoutError:
        first = ports(place.job)[0]
        raise Unavailable(
            f"Task {place.task} on {place.name} has not found task 0 on {place.first_host} ({', '.join(hosts)}) within "
            f"{timeout_s:.0f} s: {why}.",
            fix=f"See what task 0 says, and have TCP ports {first} to {first + CANDIDATES - 1} and 7000 to 9999 open "
            "between the hosts of a job.",
        ) from None


async def _try(
    place: Allocation, host: str, port: int, seed: bytes, unseal: Unseal | None, command: Sequence[str]
) -> Guest | str:
    try:
        async with asyncio.timeout(CONNECTED_S):
            reader, writer = await asyncio.open_connection(host, port, limit=LINE_BYTES)
    except ConnectionRefusedError:
        return REFUSED
    except (OSError, TimeoutError) as error:
        return str(error) or SILENCE
    try:
        async with asyncio.timeout(ANSWER_S):
            return await _introduce(place, reader, writer, seed, unseal, command)
    except Unauthenticated as error:
        why = error.message
    except (OSError, ValueError, KeyError, TypeError, TimeoutError, asyncio.IncompleteReadError):
        why = f"what listens on port {port} is not this job's guard"
    writer.close()
    return why


async def _introduce(
    place: Allocation,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    seed: bytes,
    unseal: Unseal | None,
    command: Sequence[str],
) -> Guest:
    said = await read_line(reader)
    if said["job"] != place.job:
        raise ValueError("another job's")
    if unseal is not None:
        seed = await asyncio.to_thread(unseal, str(said["credential"]))
    nonce = secrets.token_hex(16)
    write_line(writer, {"nonce": nonce})
    words = (str(said["nonce"]), nonce, str(writer.get_extra_info("peername")[1]))
    link = Link(reader, writer, seed, words, first_task=False)
    introduction: dict[str, Any] = {"task": place.task, "name": place.name, "version": __version__}
    link.send(introduction | {"command": _mark(command), "clock": time.time()})
    controller = str((await link.receive())["controller"])
    return Guest(link, seed, controller, str(writer.get_extra_info("sockname")[0]))


def _mark(command: Sequence[str]) -> str:
    """A mark that tells commands apart, which may be longer than a line."""
    return hashlib.sha256(json.dumps(list(command)).encode()).hexdigest()
