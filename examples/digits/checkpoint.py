"""Checkpoints that are whole or not there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

_KEEP = 2


@dataclass(frozen=True)
class Checkpoint:
    """What training needs to go on after `step` steps. `settings` says what run this belongs to."""

    step: int
    parameters: npt.NDArray[np.float32]
    velocity: npt.NDArray[np.float32]
    settings: str


def save(directory: Path, checkpoint: Checkpoint) -> Path:
    """Writes `step-NNNNNNNN.npz`, durable on return; a crash in between leaves the older ones untouched.

    The newest two are kept.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"step-{checkpoint.step:08d}.npz"
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.savez(
            file,
            step=checkpoint.step,
            parameters=checkpoint.parameters,
            velocity=checkpoint.velocity,
            settings=checkpoint.settings,
        )
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    _sync_directory(directory)
    for old in _all(directory)[:-_KEEP]:
        old.unlink()
    return path


def newest(directory: Path) -> Checkpoint | None:
    """The checkpoint with the highest step, None where there is none."""
    paths = _all(directory)
    if not paths:
        return None
    with np.load(paths[-1]) as file:
        return Checkpoint(int(file["step"]), file["parameters"], file["velocity"], str(file["settings"]))


def _all(directory: Path) -> list[Path]:
    return sorted(directory.glob("step-*.npz"), key=lambda path: int(path.stem.removeprefix("step-")))


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
