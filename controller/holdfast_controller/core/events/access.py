"""Events of users, tokens, certificates and secrets; see ``events``. None holds a secret's value, sealed or not."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast._base.identity import Kind
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.users import Role


@dataclass(frozen=True, kw_only=True)
class RoleGranted:
    """A user has a role in a project, in place of any that it had there."""

    at: Wall
    user: str
    project: str
    role: Role
    by: str


@dataclass(frozen=True, kw_only=True)
class RoleTaken:
    """A user has no role in a project any more."""

    at: Wall
    user: str
    project: str
    by: str


@dataclass(frozen=True, kw_only=True)
class AccountsMapped:
    """As which accounts of the hosts a user's jobs may run from now on; none: as the cluster has it for all."""

    at: Wall
    user: str
    accounts: tuple[str, ...]
    by: str


@dataclass(frozen=True, kw_only=True)
class UserRemoved:
    """A user has no rights any more, and its certificates are void."""

    at: Wall
    user: str
    by: str


@dataclass(frozen=True, kw_only=True)
class TokenMade:
    """Who shows what has this digest gets a certificate, once; ``name`` is empty for any new host."""

    at: Wall
    digest: str
    kind: Kind
    name: str
    expires_at: Wall
    by: str


@dataclass(frozen=True, kw_only=True)
class TokenUsed:
    """A host or user gets its first certificate, for the key with this digest."""

    at: Wall
    digest: str
    kind: Kind
    name: str
    key: str


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


def holder_in_words(holder: str) -> str:
    """``user ann``, ``project vision``."""
    return holder.replace("/", " ", 1)


PeopleEvent = (
    RoleGranted | RoleTaken | AccountsMapped | UserRemoved | TokenMade | TokenUsed | SecretSet | SecretRemoved
)
