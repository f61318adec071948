"""Counts of things, as sentences have them."""


def count(number: int, noun: str) -> str:
    """``1 GPU``, ``2 GPUs``, ``1,024 GPUs``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
