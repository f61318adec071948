"""The audit log's hash chain: the hash in each line covers that line and the hash of the line before it.

A chain that verifies proves that no line between two kept ones was changed, removed or inserted since its newest hash
was noted elsewhere. By itself it proves less: a process that can write the files can write a new chain. So note the
newest hash on another machine (``--anchor``), or have a copy sent there as entries are made (``audit_syslog``).

A trail is one log with a chain of its own. Each of its files begins with a line that names the hash before it, so the
chain still verifies when retention has removed older files.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from holdfast._base.dataclass import dataclass

GENESIS = "0" * 64
"""Takes the place of the hash before the first line."""
FOLLOWS = "follows"
"""Field of the first line of a file: the hash of the line before it."""
TRAIL = "trail"
"""Field of the same line: the trail's name, so that one trail can't pass for another."""
_SEALED = re.compile(rb'(\{.{1,65536}),"hash":"([0-9a-f]{64})"\}')
_ANCHOR = re.compile(r"([a-z]{1,32}):([0-9]{1,18}):([0-9a-f]{64})")


def seal(fields: Mapping[str, object], number: int, previous: str) -> tuple[bytes, str]:
    """(line with its end, its hash) of an entry. ``number`` counts the trail's lines from 1."""
    body = json.dumps({**fields, "n": number}, separators=(",", ":"))[:-1].encode()
    digest = _digest(previous, body)
    return body + f',"hash":"{digest}"}}\n'.encode(), digest


def opened(line: bytes) -> tuple[dict[str, Any], str] | None:
    """(fields, hash) of a line that has a hash, which is not verified here; None for any other."""
    found = _SEALED.fullmatch(line.rstrip(b"\n"))
    fields = _fields(found[1] + b"}") if found is not None else None
    return (
        None if found is None or fields is None or type(fields.get("n")) is not int else (fields, found[2].decode())
    )


def _fields(line: bytes) -> dict[str, Any] | None:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _digest(previous: str, body: bytes) -> str:
    return hashlib.sha256(previous.encode() + body).hexdigest()


@dataclass(frozen=True)
class Anchor:
    """The number and hash of a line, as they were noted elsewhere."""

    trail: str
    number: int
    digest: str

    def __str__(self) -> str:
        return f"{self.trail}:{self.number}:{self.digest}"


def parse_anchor(text: str) -> Anchor:
    """The anchor that ``audit verify`` printed. Raises ``ValueError``."""
    found = _ANCHOR.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text[:80]!r} is no anchor; it has the form TRAIL:NUMBER:HASH")
    return Anchor(found[1], int(found[2]), found[3])


@dataclass
class Verification:
    """Verifies the lines of one trail, oldest first; ``problems`` says what is wrong."""

    trail: str
    anchors: Sequence[Anchor] = ()
    first: int = 0
    """Number of the oldest line; 0 without any."""
    last: int = 0
    head: str = ""
    """Hash of the newest line."""
    unchained: int = 0
    """Entries from before the chain was begun, by an older release."""
    torn: int = 0
    """Lines that a crash has left half written; no line was lost where the chain goes on over them."""
    problems: list[str] = field(default_factory=list)
    _before: str = ""
    _seen: dict[int, str] = field(default_factory=dict)

    @property
    def anchor(self) -> Anchor:
        """The newest line, to be noted elsewhere."""
        return Anchor(self.trail, self.last, self.head)

    def take(self, line: bytes) -> None:
        """Verify the next line. Lines after the first fault are not verified: their hashes depend on it."""
        if self.problems or not line.strip():
            return
        found = opened(line)
        if found is not None:
            self._take(line, *found)
        elif _fields(line) is None:
            self.torn += 1
        elif self.head:
            self.problems.append(f"a line without a hash comes after line {self.last}")
        else:
            self.unchained += 1

    def _take(self, line: bytes, fields: dict[str, Any], digest: str) -> None:
        number, follows = fields["n"], fields.get(FOLLOWS)
        if not self.head:
            if not isinstance(follows, str):
                self.problems.append(f"line {number} is the oldest, and lacks the hash of the line before it")
                return
            self.first, self._before, previous = number, follows, follows
        elif number != self.last + 1:
            self.problems.append(f"line {self.last + 1} is missing: line {number} comes after line {self.last}")
            return
        else:
            previous = self.head
        if follows is not None and fields.get(TRAIL) != self.trail:
            self.problems.append(f"line {number} is of another trail: {str(fields.get(TRAIL))[:32]!r}")
            return
        body = line.rstrip(b"\n")[: -len(f',"hash":"{digest}"}}')]
        if _digest(previous, body) != digest or (follows is not None and follows != previous):
            self.problems.append(f"line {number} was changed, or the line before it")
            return
        self.last, self.head = number, digest
        if any(anchor.number == number for anchor in self.anchors):
            self._seen[number] = digest

    def finish(self) -> None:
        """Compare the chain with the anchors, once every line was taken."""
        if not self.head and (self.unchained or self.torn) and not self.problems:
            self.problems.append("no line has a hash")
        if self.problems:
            return
        for anchor in self.anchors:
            problem = self._against(anchor)
            if problem:
                self.problems.append(problem)

    def _against(self, anchor: Anchor) -> str:
        if anchor.number > self.last:
            return f"line {anchor.number} was there when {anchor} was noted; now the newest is {self.last}"
        if anchor.number < self.first - 1:
            return f"line {anchor.number} is no longer kept, so {anchor} proves nothing; the oldest is {self.first}"
        known = self._before if anchor.number == self.first - 1 else self._seen.get(anchor.number)
        return "" if known == anchor.digest else f"line {anchor.number} has another hash than {anchor}"
