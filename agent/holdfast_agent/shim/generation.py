"""One launch of the ranks: which of them live, how each ended, what was reported, and how they are stopped.

`reported` and `unsynced` keep the promise that an exit is reported only once it is durable: a record goes to the
journal and to `unsynced`; after a sync the shim moves it to `reported`, which is replayed to a new connection.
"""

from __future__ import annotations

import enum
import os
import signal
import time

from holdfast_agent.shim import error_file
from holdfast_agent.shim.last_lines import is_copied, shows_exception, tail
from holdfast_agent.shim.processes import Process, descendants, group_exists, now_s, signal_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from holdfast_agent.shim.journal import Journal, Record
    from holdfast_agent.shim.launch import Identity, Plan
    from holdfast_agent.shim.lease import Fence
    from holdfast_agent.shim.peers import Peers
    from holdfast_agent.shim.terminal import Terminal
    from holdfast_agent.shim.walls.cgroup import Cgroup
    from holdfast_agent.shim.walls.namespaces import Room

STUCK_EVERY_S = 5.0
KILL_FASTEST_S, KILL_SLOWEST_S = 0.01, 1.0  # from one KILL of all to the next; doubles while nothing new turns up
WORDS_S = 1.0  # for a pipe's reader, such as tee, to write down what a rank said last
STOP_WORDS = {"STOPPED": "stopped as asked", "HANG_KILLED": "stopped because the job hung"}


class Phase(enum.Enum):
    """Phase of the worker, in the words of `hello`."""

    IDLE = "idle"  # nothing launched by this shim
    RUNNING = "running"
    STOPPING = "stopping"
    EMPTY = "empty"  # durably so


class Rank:
    """A started rank. While it is in `Generation.live` it has not been reaped, so its pid is its own."""

    __slots__ = ("error_file", "pid", "rank", "start_ticks", "stderr", "stdout")

    def __init__(self, rank: int, pid: int, stdout: bytes, stderr: bytes, error_file: bytes = b"") -> None:
        self.rank, self.pid, self.stdout, self.stderr, self.error_file = rank, pid, stdout, stderr, error_file
        try:
            self.start_ticks = Process(pid).start_ticks
        except OSError:  # no descriptor left
            self.start_ticks = 0

    def last_lines(self) -> list[str]:
        """The last lines of stderr, or of stdout if an exception is printed there alone, as in scripts with `2>&1`."""
        lines = tail(self.stderr)
        if self.stdout == self.stderr or shows_exception(lines):
            return lines
        others = tail(self.stdout)
        return others if shows_exception(others) else lines

    def is_written_for(self) -> bool:
        """Whether a process below us reads a pipe and writes to the rank's output: what the rank said is on its way."""
        return is_copied((self.stdout, self.stderr), [process.pid for process in seen()])


def seen(apart: Collection[int] = ()) -> list[Process]:
    """Our descendants as far as they can be seen at present; whether any is left is for waitpid to say.

    ``apart`` are those that wait for the next generation, which are none of this one's processes.
    """
    try:
        return descendants(apart=apart)
    except OSError:
        return []


class Stop:
    """A stop in progress: TERM has been sent, KILL comes at the deadline and again until nothing is left."""

    def __init__(self, deadline: float, reason: str | None, words: str = "") -> None:
        self.reason = reason  # None: not requested; the ranks are gone and have left processes behind
        self.words = words  # before what is said of each exit; empty for those of the reason
        self.interval_s = KILL_FASTEST_S
        self.seen: set[int] = set()
        self.spared: dict[int, float] = {}  # by pid of a rank that leaves by itself: when it gets TERM after all
        self.shorten(deadline)

    def shorten(self, deadline: float) -> None:
        """Set the time of KILL, in seconds since boot."""
        self.deadline = self.next_kill = deadline
        self.next_report = deadline + STUCK_EVERY_S


class Generation:
    """`failures` is the reading end of the pipe by which children say that they can't become their program."""

    def __init__(
        self, number: int, journal: Journal, failures: int, room: Room | None = None, cgroup: Cgroup | None = None
    ) -> None:
        self.number = number
        self.asked = number  # highest generation that a stop has named
        self.live: dict[int, Rank] = {}
        self.reported: list[Record] = []
        self.unsynced: list[Record] = []
        self.stop: Stop | None = None
        self.gone = False  # waitpid has said so, and the cgroup
        self.childless = False  # waitpid has said so, but not the cgroup
        self.journal = journal
        self.room = room  # None: ranks share the host's /dev/shm
        self.cgroup = cgroup  # None: the host has none
        self.fence: Fence | None = None  # None: it runs on whatever becomes of the controller
        self.peers: Peers | None = None  # answered and asked also when the ranks are gone, until the next launch
        self.warned = False
        self.terminals: dict[int, Terminal] = {}  # by rank
        self.plans: dict[int, tuple[Plan, Identity]] = {}  # by rank: how it was started, for shells beside it
        self.unheard: list[tuple[Rank, int, float, float]] = []  # ended, but said to be so only by a deadline
        self.keepers: set[int] = set()  # pids of those that keep a shell; not reaped, so theirs
        self.injected: dict[int, int] = {}  # by pid of its keeper: the rank that has a fault
        self.shells: Cgroup | None = None  # of all shells; None without one, or before the first
        self.apart: set[int] = (
            set()
        )  # pids that wait for the next generation: the keeper of what is parked, survivors
        self.asked_for_next = False  # a stop has said that another generation follows
        self.held_until: float | None = None  # nothing of it is left, but the parked ranks wait for an order
        self._groups: set[int] = set()  # of all ranks; a rank's pid names its group
        self._failures_fd = failures
        self._failures: dict[int, tuple[int, str]] = {}
        """By rank: an errno or 0, and the words."""
        self._swept = False

    @property
    def phase(self) -> Phase:
        """The worker's phase; EMPTY only once that is durable."""
        if self.gone and not self.unsynced:
            return Phase.EMPTY
        return Phase.STOPPING if self.stop else Phase.RUNNING

    def proven_empty(self) -> bool:
        """Whether the cgroup is empty too, once waitpid knows no child. Its processes are killed without a grace."""
        if all(each is None or each.is_empty() for each in (self.cgroup, self.shells)):
            return True
        now = now_s()
        self.stop = self.stop or Stop(now, None)
        if self.stop.deadline > now:
            self.stop.shorten(now)
        self.childless = True
        return False

    def leave_room(self) -> None:
        """Lets go of its room, which is then gone with the last shim that does so, and of its cgroup."""
        if self.shells:
            self.shells.close()
            self.shells = None
        if self.cgroup:
            self.cgroup.close()
            self.cgroup = None
        if self.room:
            self.room.close()
            self.room = None

    def close(self) -> None:
        """Lets go of its files and its socket."""
        self.leave_peers()
        self.leave_terminals()
        os.close(self._failures_fd)
        self.journal.close()

    def leave_peers(self) -> None:
        """Answer and ask the gang's other workers no more."""
        if self.peers:
            self.peers.close()
            self.peers = None

    def shells_cgroup(self) -> Cgroup | None:
        """The cgroup for shells beside its ranks, made with the first. Raises OSError."""
        if self.cgroup and self.shells is None:
            self.shells = self.cgroup.beside()
        return self.shells

    def end_shells(self) -> None:
        """Have all shells killed now: no user at one delays a restart."""
        for pid in self.keepers:
            os.kill(pid, signal.SIGTERM)

    def leave_terminals(self) -> None:
        """Hang up what still has a terminal, after the last of its output."""
        for each in self.terminals.values():
            each.drain()
            each.close()
        self.terminals.clear()

    # -- records

    def note(self, record: Record) -> None:
        """Add a record that may be reported before it is durable; written at once if the disk takes it."""
        self.journal.add(record)
        self.reported.append(record)
        self._write()

    def _write(self) -> None:
        try:
            self.journal.write()
        except OSError:
            pass  # written again with the next sync

    def record(self, record: Record) -> None:
        """Add a record that has to be durable before it is reported."""
        self.journal.add(record)
        self.unsynced.append(record)

    def forking(self) -> None:
        """Record that ranks are forked from now on: should the shim die meanwhile, who knows what has run."""
        self.journal.add({"ev": "forking"})
        self._write()

    def started(self, rank: Rank, *, warm: bool = False, in_process: bool = False) -> None:
        """Record that a rank was forked, or released: should the shim die now, the journal names it."""
        self.live[rank.pid] = rank
        self._groups.add(rank.pid)
        how = {name: True for name, is_so in (("warm", warm), ("in_process", in_process)) if is_so}
        self.note({"ev": "started", "rank": rank.rank, "pid": rank.pid, "start_ticks": rank.start_ticks, **how})

    def not_forked(self, rank: int, problem: str) -> None:
        """Record a rank for which there was no process."""
        self._exited(rank, None, "NOT_STARTED", problem, "", [], time.time())

    def reaped(self, rank: Rank, status: int) -> None:
        """Record a rank's end, once what it has said is written down: that has `WORDS_S` where a pipe is between."""
        failed = os.waitstatus_to_exitcode(status) > 0 and self.stop is None
        if failed and not shows_exception(rank.last_lines()) and rank.is_written_for():
            self.unheard.append((rank, status, time.time(), now_s() + WORDS_S))
        else:
            self.ended(rank, status, time.time())

    def hear(self, *, now: bool = False) -> bool:
        """Record the ends that no words are on their way for any more, or all of them now. Returns whether any was."""
        over = [each for each in self.unheard if now or now_s() >= each[3] or not each[0].is_written_for()]
        for rank, status, end_time, _ in over:
            self.ended(rank, status, end_time)
        self.unheard = [each for each in self.unheard if each not in over]
        return bool(over)

    def ended(self, rank: Rank, status: int, end_time: float) -> None:
        """Record how a reaped rank ended, and whether that was asked for."""
        if (terminal := self.terminals.get(rank.rank)) is not None:
            terminal.drain()
        self._read_failures()
        if rank.rank in self._failures:
            number, problem = self._failures[rank.rank]
            return self._exited(rank.rank, None, "CANNOT_START", problem, "", [], end_time, number)
        code = os.waitstatus_to_exitcode(status)
        if code >= 0:
            reason, message = "NONZERO_EXIT" if code else "COMPLETED", f"exited with code {code}"
        else:
            reason, message = "SIGNALED", f"killed by signal {-code} ({signal_name(-code)})"
            message += ", core dumped" if os.WCOREDUMP(status) else ""
        raised = error_file.raised(rank.error_file) if code and rank.error_file else ""
        if raised:
            message += f"; it raised {raised}"
        if self.cgroup and self.cgroup.ran_out_of_memory():
            if code == -signal.SIGKILL and not (self.stop and now_s() >= self.stop.deadline):
                message += f": out of memory{self.cgroup.limit}"
                return self._exited(
                    rank.rank, status, "OUT_OF_MEMORY", message, raised, rank.last_lines(), end_time
                )
            message += f"; the kernel has killed a process of this worker for lack of memory{self.cgroup.limit}"
        if self.stop and self.stop.reason:
            reason = self.stop.reason
            words = self.stop.words or STOP_WORDS.get(reason, f"stopped ({reason})")
            message = f"{words}: {message}"
        return self._exited(rank.rank, status, reason, message, raised, rank.last_lines(), end_time)

    def unwound(self, rank: Rank) -> None:
        """Record the end of a rank whose process goes on: there is no status."""
        assert self.stop is not None
        assert self.stop.reason is not None
        self.stop.spared.pop(rank.pid, None)
        words = self.stop.words or STOP_WORDS.get(self.stop.reason, f"stopped ({self.stop.reason})")
        message = f"{words}: it left its work, and its process waits for the next generation"
        self._exited(rank.rank, None, self.stop.reason, message, "", rank.last_lines(), time.time())

    def _exited(
        self,
        rank: int,
        status: int | None,
        reason: str,
        message: str,
        raised: str,
        lines: list[str],
        end_time: float,
        number: int = 0,
    ) -> None:
        record: Record = {"ev": "exited", "rank": rank, "status": status, "end_time": end_time, "errno": number}
        self.record(record | {"reason": reason, "message": message, "raised": raised, "stderr_tail": lines})

    def _read_failures(self) -> None:
        try:
            while data := os.read(self._failures_fd, 1 << 16):
                for line in data.decode("utf-8", "replace").splitlines():
                    rank, number, problem = line.split(" ", 2)
                    self._failures[int(rank)] = int(number), problem
        except BlockingIOError:
            pass

    # -- signals

    def warn(self, number: int) -> bool:
        """Send a signal to each live rank, once in a generation's life. Returns whether it was sent now."""
        if self.warned or self.stop or not self.live:
            return False
        self.warned = True
        for pid in self.live:  # not reaped, so theirs
            try:
                os.kill(pid, number)
            except OSError:
                pass  # it now runs as a user whom we may not signal
        self.note({"ev": "warned", "signal": number})
        return True

    def terminate(self) -> None:
        """Send TERM to the process group of each rank, dead ranks included; not to those that leave by themselves.

        CONT follows, since a process that stands still takes no other signal.
        """
        spared = self.stop.spared if self.stop else {}
        self._terminate(self.live.keys() - spared.keys())
        if any(group_exists(pid) for pid in self._groups - self.live.keys()):
            for process in seen(self.apart):
                if process.group in self._groups and process.group not in self.live:
                    process.terminate()

    def _terminate(self, pids: Collection[int]) -> None:
        for pid in pids:
            for number in (signal.SIGTERM, signal.SIGCONT):
                try:
                    os.killpg(pid, number)
                except ProcessLookupError:
                    os.kill(pid, number)  # it has joined another group

    def give_up(self, pids: Collection[int]) -> None:
        """Send TERM to ranks that were spared it, because they don't leave by themselves."""
        if self.stop:
            for pid in pids:
                self.stop.spared.pop(pid, None)
            self._terminate([pid for pid in pids if pid in self.live])

    def sweep(self) -> None:
        """Send TERM once to processes that dead ranks have left, except those that `terminate` has reached."""
        if self._swept or self.stop is None:
            return
        self._swept = True
        for process in seen(self.apart):
            if self.stop.reason is None or process.group not in self._groups:
                process.terminate()

    def kill(self, stop: Stop) -> list[Process]:
        """Send KILL to every descendant and return them. The next KILL comes no sooner than this one took."""
        began = now_s()
        for cgroup in (self.cgroup, self.shells):
            if cgroup:
                cgroup.kill()
        found = seen(self.apart)
        for cgroup in (self.cgroup, self.shells):
            if cgroup:
                found += cgroup.others(found)
        for process in found:
            if not process.dead:
                process.send(signal.SIGKILL)
        pids = {process.pid for process in found}
        fresh = not found or pids - stop.seen  # none found means that something is too quick to be seen
        stop.interval_s = KILL_FASTEST_S if fresh else min(2 * stop.interval_s, KILL_SLOWEST_S)
        stop.seen = pids
        ended = now_s()
        stop.next_kill = ended + max(stop.interval_s, ended - began)
        return found
