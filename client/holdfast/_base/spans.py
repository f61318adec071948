"""Many numbers in few words, as the kernel and Slurm write them."""

from __future__ import annotations

from collections.abc import Iterable


def spans_of(numbers: Iterable[int]) -> str:
    """``0-2,4-7`` for 0, 1, 2, 4, 5, 6, 7; empty for none."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
