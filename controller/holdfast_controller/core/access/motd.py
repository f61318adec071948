"""The message of the day: set by admins, shown to every user."""

from __future__ import annotations

from holdfast._base.printable import spaced_line
from holdfast.errors import InvalidInput, Violation
from holdfast_controller.core.events import access as ev
from holdfast_controller.core.step.access_commands import MotdAsked
from holdfast_controller.core.step.actions import Refuse, Reply
from holdfast_controller.core.step.step import Step

MAX_BYTES = 4_096
MAX_LINES = 24
"""What a terminal shows at once."""


def on_motd(step: Step, asked: MotdAsked) -> None:
    """Set the message of the day, or clear it. Setting the same text again changes nothing."""
    text = cleaned(asked.text)
    lines, size = text.count("\n") + 1, len(text.encode(errors="replace"))
    if lines > MAX_LINES or size > MAX_BYTES:
        problem = f"has {lines} lines and {size:,} bytes; at most {MAX_LINES} and {MAX_BYTES:,} are allowed"
        fix = "say where the rest is to be found"
        step.do(Refuse(asked.token, InvalidInput([Violation("text", problem, fix)])))
        return
    known = step.cluster.people.motd
    if text != (known.text if known is not None else ""):
        step.emit(ev.MotdSet(at=step.now.wall, text=text, by=asked.by))
    step.do(Reply(asked.token, ""))


def cleaned(text: str) -> str:
    """The text's lines, each safe to show, without blank ones at its beginning and end."""
    lines = [spaced_line(line).rstrip() for line in text.splitlines()]
    return "\n".join(lines).strip("\n")
