"""Bounds on a host's reports about itself and its workers: a host that was taken over must not fill the store.

What names something is refused where it is too long; what only explains is cut, and ends in "…".
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.errors import InvalidInput, Violation
from holdfast.v1 import agent_pb2, host_pb2

NAME_MOST = 255
TEXT_MOST = 4_000
"""An agent's own messages are a fifth of that at most."""
LABELS_MOST, LABEL_MOST = 64, 63
GPUS_MOST, FAULTS_MOST = 256, 512
"""Faults of all GPUs of a host together."""
INVENTORY_MOST = 256 << 10
"""Bytes of an inventory; eight GPUs with all their faults take four thousand."""
PLACES_MOST = 4_096
RANKS_MOST = 1_024
"""Of one worker, as for an agent."""
LINES_MOST, LINE_MOST = 50, 4_096


def explained(text: str) -> str:
    """A text for people, within the bound."""
    return text if len(text) <= TEXT_MOST else text[: TEXT_MOST - 1] + "…"


def last_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """The newest lines of a rank's output, within the bounds."""
    return tuple(line[-LINE_MOST:] for line in list(lines)[-LINES_MOST:])


def check_hello(message: agent_pb2.Hello) -> None:
    """Raises ``InvalidInput`` for what no agent of ours would say."""
    labels = [text for pair in message.labels.items() for text in pair]
    names = (message.address, message.boot_id, message.agent_version)
    wrong = [
        *_too_many("labels", len(message.labels), LABELS_MOST),
        *_too_many("workers", len(message.workers), PLACES_MOST),
        *_too_long("labels", labels, LABEL_MOST),
        *_too_long("hello", names, NAME_MOST),
    ]
    _refuse(wrong)


def check_inventory(message: host_pb2.Inventory) -> None:
    """Raises ``InvalidInput`` likewise."""
    names = [name for gpu in message.gpus for name in (gpu.uuid, gpu.model)]
    causes = [fault.cause for gpu in message.gpus for fault in gpu.faults]
    wrong = [
        *_too_many("gpus", len(message.gpus), GPUS_MOST),
        *_too_many("faults", len(causes), FAULTS_MOST),
        *_too_large("inventory", message.ByteSize(), INVENTORY_MOST),
        *_too_long("gpus", [*names, *causes], NAME_MOST),
    ]
    _refuse(wrong)


def check_report(message: agent_pb2.WorkerReport) -> None:
    """Raises ``InvalidInput`` likewise."""
    _refuse(_too_many("ranks", len(message.ranks), RANKS_MOST))


def _too_many(field: str, count: int, most: int) -> list[Violation]:
    return [Violation(field, f"has {count} entries; a host may tell of {most}")] if count > most else []


def _too_long(field: str, texts: Iterable[str], most: int) -> list[Violation]:
    longest = max(map(len, texts), default=0)
    return [Violation(field, f"holds a text of {longest} characters; {most} are allowed")] if longest > most else []


def _too_large(field: str, size: int, most: int) -> list[Violation]:
    return [Violation(field, f"has {size} bytes; {most} are allowed")] if size > most else []


def _refuse(wrong: list[Violation]) -> None:
    if wrong:
        raise InvalidInput(wrong, what="What the host says of itself")
