"""Xids of NVIDIA's driver and the action each calls for.

The classes follow the "immediate action" of NVIDIA's Xid catalogue (Ampere and newer): restart the program, reset
the GPU or reboot its host, or nothing. Those that follow from the end of a process (43, 45), our own kill's too,
and notes about repaired memory (63, 92) ask for nothing; so does what the catalogue doesn't know. Where it leaves
it to a diagnosis (48, 74) the host is taken to be at fault: the next job there would only find out the hard way.

Of NVLink since Blackwell (144 to 150) a number says little: the same one is a link's passing trouble or its end, and
only the line in the kernel's log says which, ``Nonfatal`` or ``Fatal``. The program is restarted for all of them.
"""

from __future__ import annotations

import enum


class XidAction(enum.Enum):
    """Action for a GPU that reported an Xid."""

    IGNORE = "IGNORE"
    RESTART = "RESTART"
    """The program; the GPU is well."""
    REPLACE = "REPLACE"
    """The GPU: nothing runs on it again before a reset of it, or a reboot of its host (``Repair``)."""


class Repair(enum.Enum):
    """Repair that makes a faulty GPU fit for work again."""

    RESET = "RESET"
    """A reset of the GPU. The host's other GPUs are well, and stay in use."""
    REBOOT = "REBOOT"
    """A reboot of the host: what is broken is more than the GPU itself, such as its connection to the bus."""


FATAL_ALONE = frozenset(range(144, 151))
"""Xids that call for a repair where the kernel's log calls them fatal."""
_RESTART = (13, 31, 32, 38, 39, 66, 67, 68, 69, 94, 137, *FATAL_ALONE)
_REPLACE = (
    46, 48, 56, 58, 61, 62, 64, 74, 79, 80, 95, 109, 110, 119, 120, 122, 123, 136, 140,
    143, 151, 155, 156, 158,
)  # fmt: skip
TABLE: dict[int, XidAction] = dict.fromkeys(_RESTART, XidAction.RESTART) | dict.fromkeys(
    _REPLACE, XidAction.REPLACE
)
"""Every Xid that isn't ignored."""
_REBOOT = frozenset({79, 151})
"""For these the catalogue names the machine; it names the GPU for the others, or a search that ends in its reset."""
_MEANINGS = {
    46: "GPU stopped processing", 48: "double-bit memory error", 62: "microcontroller halted",
    64: "row remapping failed", 74: "NVLink error", 79: "fallen off the bus", 95: "uncontained memory error",
    109: "context switch timed out", 119: "GSP does not answer", 120: "GSP error", 140: "unrecovered memory error",
    151: "key rotation failed", **dict.fromkeys(FATAL_ALONE, "NVLink error"),
}  # fmt: skip


def action_of(xid: int) -> XidAction:
    """The action that an Xid calls for."""
    return TABLE.get(xid, XidAction.IGNORE)


def repair_of(xid: int, *, fatal: bool = False) -> Repair | None:
    """Repair that a GPU needs after this Xid; None where the GPU is well. ``fatal`` is what the kernel's log says."""
    if action_of(xid) is not XidAction.REPLACE and not (fatal and xid in FATAL_ALONE):
        return None
    return Repair.REBOOT if xid in _REBOOT else Repair.RESET


def in_words(xid: int) -> str:
    """The Xid with its meaning, such as "Xid 79 (fallen off the bus)"."""
    return f"Xid {xid} ({_MEANINGS[xid]})" if xid in _MEANINGS else f"Xid {xid}"
