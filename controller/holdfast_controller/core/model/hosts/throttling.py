"""How much each host may have stored in an hour, by kind of message, and what happens beyond that.

Theory of operation. A message is charged after the fact, with the bytes that it has added to the store, whatever they
are: so no kind of content needs a rule of its own. A host that owes is throttled in that kind until the debt is paid
back at the hourly rate. Of what the newest message replaces only the newest is kept meanwhile; progress is left out;
anything else, exits above all, waits and is lost at no time. Heartbeats are always heard, so a host that tells too
much of its GPUs doesn't lose its work by it.

An honest host stays far below: its agent sends an inventory when something has changed, and an exit once.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from holdfast_controller.core.model.accounts.token_buckets import Buckets
from holdfast_controller.core.model.clock import Mono, Wall
from holdfast_controller.core.model.hosts.host import Host

HOUR_S = 3600.0
MIB = 1 << 20
HOSTS_MOST = 100_000
"""Hosts that are kept apart at once; each has a certificate of ours."""


class MessageKind(enum.Enum):
    """Kinds of messages of a host, by the names that metrics and events use."""

    HELLO = "hello"
    INVENTORY = "inventory"
    WORKER = "worker"
    EXIT = "exit"
    PROGRESS = "progress"
    ARCHIVE = "archive"
    EVIDENCE = "evidence"


PER_HOUR: dict[MessageKind, int] = {
    MessageKind.HELLO: 2 * MIB,
    MessageKind.INVENTORY: 2 * MIB,
    MessageKind.WORKER: 64 * MIB,
    MessageKind.EXIT: 64 * MIB,
    MessageKind.PROGRESS: 16 * MIB,
    MessageKind.ARCHIVE: 1 * MIB,
    MessageKind.EVIDENCE: 128 * MIB,
}
"""Bytes that one host's messages of a kind may add to the store in an hour, all at once or spread over it."""


def _allowances() -> dict[MessageKind, Buckets]:
    return {kind: Buckets(float(most), most / HOUR_S, HOSTS_MOST) for kind, most in PER_HOUR.items()}


@dataclass
class Allowances:
    """The bytes that each host may still store, by kind of message."""

    _left: dict[MessageKind, Buckets] = field(default_factory=_allowances)

    def charge(self, host: str, kind: MessageKind, stored_bytes: int, now: Mono) -> None:
        """Take what a message has added to the store from its host's allowance."""
        if stored_bytes:
            self._left[kind].charge(host, stored_bytes, now)

    def owed_s(self, host: str, kind: MessageKind, now: Mono) -> float:
        """Seconds until a message of this kind is taken in as usual; 0: now."""
        return self._left[kind].owed_s(host, now)


def throttled_in_words(host: Host, now: Wall) -> str:
    """Which messages of a host were held back within the last hour, and at what rate; empty where none was."""
    kinds = [MessageKind(kind) for kind, at in sorted(host.throttled.items()) if now - at < HOUR_S]
    if not kinds:
        return ""
    rates = ", ".join(f"{kind.value} ({PER_HOUR[kind] >> 20} MiB an hour)" for kind in kinds)
    return f"exceeds what a host may store, so some messages are held back: {rates}; its key may be stolen"
