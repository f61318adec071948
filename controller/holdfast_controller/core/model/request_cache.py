"""The stored answer to a call that carried its caller's request id."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """``digest`` is of the call's content; ``subject`` the job's id or the host's name."""

    digest: str
    subject: str
