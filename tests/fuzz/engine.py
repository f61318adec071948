"""Feeds a target with inputs that no one thought of, and holds it to three promises: it refuses or answers, soon, and
keeps nothing.

An input is a seed of the target's and a few edits, drawn by Hypothesis, so that a failure shrinks to a short one. An
edit may repeat a piece up to the target's bound, so inputs of a mebibyte come from a few drawn numbers.
"""

from __future__ import annotations

import gc
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

STALL_S = 0.1
"""Of CPU time for one input; waiting for a busy machine does not count."""
GROWTH_BYTES = 96 << 20
"""What a whole run may add to the resident memory: arenas of the allocator, caches with a bound."""
MEMORY_BYTES = 4 << 30
"""Of a process that is fuzzed: an input that makes its reader ask for more is a finding, and not the machine's end."""
TOKENS = (
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b"'",
        b":",
        b",",
        b"\\",
        b"\n",
        b"\r\n",
        b" ",
        b"\t",
        b"\0",
        b"(",
        b")",
        b"*",
        b"+",
    ),
    *(
        b"-",
        b"0",
        b"9",
        b"1e999",
        b"-1",
        b"NaN",
        b"Infinity",
        b"null",
        b"true",
        b"&a",
        b"*a",
        b"<<",
        b"!!python/object",
    ),
    *(
        b"\xff",
        b"\xc2\x85",
        b"\xe2\x80\xae",
        b"\xed\xa0\x80",
        b"\\ud800",
        b"\x1b[2J",
        b"%",
        b"%00",
        b"..",
        b"/",
        b"=",
    ),
    *(b"\x80", b"\x7f", b"\xf0\x9f\x9a\x80", b"\xc2\xb2", b"18446744073709551616", b"9" * 5000),
)


def bound_memory(pid: int = 0) -> tuple[int, int]:
    """Bound the memory of this process, or of another one; returns the limits from before."""
    before = resource.prlimit(pid, resource.RLIMIT_DATA)
    resource.prlimit(pid, resource.RLIMIT_DATA, (MEMORY_BYTES, before[1]))
    return before


class Stall(AssertionError):
    """One input took too much CPU time."""


class Growth(AssertionError):
    """Inputs left memory, descriptors or files behind."""


@dataclass
class Target:
    """Something that reads what others write. ``call`` raises one of ``refusals``, or returns."""

    name: str
    call: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    most_bytes: int
    """The bound that is set before ``call``."""
    refusals: tuple[type[BaseException], ...] = ()
    tokens: tuple[bytes, ...] = ()
    cpu_s: Callable[[], float] = time.thread_time
    stall_s: float = STALL_S
    close: Callable[[], None] = lambda: None
    inputs: int = 0
    slowest_s: float = 0.0
    longest: int = 0
    grown_mib: int = 0
    """By which one turn raised the peak of the process' memory at most."""
    findings: list[str] = field(default_factory=list)

    def try_one(self, data: bytes) -> None:
        """Feed one input. Raises what the target raised beyond its refusals, or ``Stall``."""
        self.inputs += 1
        self.longest = max(self.longest, len(data))
        took_s = self._timed(data)
        if took_s > self.stall_s:  # not the collector's fault, nor that of a first import
            took_s = min(took_s, self._timed(data), self._timed(data))
        self.slowest_s = max(self.slowest_s, took_s)
        if took_s > self.stall_s:
            raise Stall(f"{self.name}: {len(data)} bytes took {took_s:.2f} s of CPU time: {data[:200]!r}")

    def _timed(self, data: bytes) -> float:
        before = self.cpu_s()
        try:
            self.call(data)
        except self.refusals:
            pass
        except BaseException as error:
            error.add_note(f"{self.name}: {len(data)} bytes: {data[:2000]!r}")
            raise
        return self.cpu_s() - before


def text(data: bytes) -> str:
    """The input as text, whatever it holds."""
    return data.decode("utf-8", "replace")


_EDITS = ("insert", "repeat", "delete", "double", "cut", "overwrite")


def inputs(target: Target) -> st.SearchStrategy[bytes]:
    """Seeds of the target after some edits, within its bound."""
    pieces = st.sampled_from(target.tokens + TOKENS) | st.binary(min_size=1, max_size=12)
    edit = st.tuples(st.sampled_from(_EDITS), st.integers(0, 65535), st.integers(0, 20), pieces)
    return st.builds(
        lambda start, edits: edited(start, edits, target.most_bytes),
        st.sampled_from(target.seeds) | st.binary(max_size=40),
        st.lists(edit, max_size=5),
    )


def edited(data: bytes, edits: list[tuple[str, int, int, bytes]], most_bytes: int) -> bytes:
    """``data`` after the edits; places are in 65536ths of its length, amounts powers of two."""
    for kind, place, power, piece in edits:
        at, room = len(data) * place >> 16, max(0, most_bytes - len(data))
        match kind:
            case "insert":
                data = data[:at] + piece + data[at:]
            case "repeat":
                data = data[:at] + piece * min(1 << power, room // len(piece)) + data[at:]
            case "delete":
                data = data[:at] + data[at + (1 << power) :]
            case "double":
                part = data[at : at + 64] or b" "
                data = data[:at] + part * min(1 << power, room // len(part)) + data[at:]
            case "cut":
                data = data[:at]
            case "overwrite":
                data = data[:at] + piece + data[at + len(piece) :]
    return data[:most_bytes]


def run(target: Target, examples: int, number: int) -> None:
    """Try so many inputs, the same ones for the same ``number``. Raises the smallest failure that was found."""

    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
        report_multiple_bugs=False,
    )
    @given(inputs(target))
    def attempt(data: bytes) -> None:
        target.try_one(data)

    for start in target.seeds:
        target.try_one(start)
    attempt()


@dataclass(frozen=True)
class Held:
    """What this process holds."""

    resident_bytes: int
    descriptors: int

    @classmethod
    def now(cls, pid: int = 0) -> Held:
        """Of this process, or of another one."""
        if not pid:
            gc.collect()
        process = pid or os.getpid()
        with open(f"/proc/{process}/statm") as file:
            pages = int(file.read().split()[1])
        return cls(pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir(f"/proc/{process}/fd")))

    def check(self, before: Held) -> None:
        """Raises ``Growth``."""
        grown = self.resident_bytes - before.resident_bytes
        if grown > GROWTH_BYTES:
            raise Growth(f"the memory has grown by {grown >> 20} MiB")
        if self.descriptors > before.descriptors + 4:
            raise Growth(f"{self.descriptors - before.descriptors} descriptors were left open")
