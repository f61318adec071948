"""What reaches the core of secrets; see ``stimuli``."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class SecretGiven:
    """A user has a value kept, which the shell has sealed."""

    token: int
    by: str
    holder: str
    name: str
    sealed: bytes = field(repr=False)


@dataclass(frozen=True)
class SecretRemovalAsked:
    """A user wants a value forgotten; ``force``: even if jobs will miss it."""

    token: int
    by: str
    holder: str
    name: str
    force: bool = False
