"""Which files that a training has open for writing tell of its progress."""

from __future__ import annotations

import enum
import re


class FileKind(enum.Enum):
    """Kind of a growing file: a checkpoint, TensorBoard's events, or other output."""

    CHECKPOINT = "checkpoint"
    # TensorBoard's.
    EVENTS = "events"
    OTHER = "other"


# What writers add while they write: words, and hexadecimal numbers, which follow a word or a separator. A number that
# could follow a number would be cut into numbers in exponentially many ways.
_SUFFIXES = re.compile(
    r"\.(pt|pth|ptl|ckpt|safetensors|distcp|bin|h5|hdf5|keras|npz|npy|msgpack|orbax|pdparams|pdopt|gguf|tar)"
    r"([0-9a-f]{4,})?([._-][0-9a-f]{4,}|[._-]?(tmp|temp|part|partial|incomplete|swp|lock)([0-9a-f]{4,})?)*$",
    re.IGNORECASE,
)
_WORDS = re.compile(r"(^|[/._-])(checkpoints?|ckpts?|global_step\d*)([/._-]|\d|$)", re.IGNORECASE)
# Shared memory and devices are no files, whatever they are called.
_NO_FILES = ("/dev/", "/proc/", "/sys/", "/memfd:", "/run/shm/")
_DELETED = " (deleted)"


def file_kind(path: str, log_dir: str) -> FileKind | None:
    """Kind of the file at ``path``; None if its growth means nothing: a device, shared memory, our logs."""
    if not path.startswith("/") or path.startswith(_NO_FILES) or path.endswith(_DELETED):
        return None
    if log_dir and path.startswith(log_dir.rstrip("/") + "/"):
        return None
    name = path.rpartition("/")[2]
    if name.startswith("events.out.tfevents"):
        return FileKind.EVENTS
    # Only the end of the path: a home folder of that name makes no checkpoint of everything in it.
    tail = "/".join(path.split("/")[-3:])
    if _SUFFIXES.search(name) or _WORDS.search(tail):
        return FileKind.CHECKPOINT
    return FileKind.OTHER
