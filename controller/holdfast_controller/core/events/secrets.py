"""Events of secrets; see ``events``. None holds a value, sealed or not: those are in a table of their own."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_controller.core.model.clock import Wall


@dataclass(frozen=True, kw_only=True)
class SecretSet:
    """A holder (``user/NAME``, ``project/NAME``) has a secret of this name, with a new value."""

    at: Wall
    holder: str
    name: str
    by: str


@dataclass(frozen=True, kw_only=True)
class SecretRemoved:
    """It has it no more."""

    at: Wall
    holder: str
    name: str
    by: str


def in_words(holder: str) -> str:
    """``user ann``, ``project vision``."""
    return holder.replace("/", " ", 1)
