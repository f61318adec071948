"""Events of users, tokens, certificates and secrets; see ``events``. None holds a secret's value, sealed or not."""

from __future__ import annotations

from holdfast._base.dataclass import dataclass
from holdfast._base.identity import Kind
from holdfast_controller.core.model.accounts.users import Role
from holdfast_controller.core.model.clock import Wall


@dataclass(frozen=True, kw_only=True)
class RoleGranted:
    """A user got a role in a project, in place of an earlier one there."""

    at: Wall
    user: str
    project: str
    role: Role
    by: str


@dataclass(frozen=True, kw_only=True)
class RoleTaken:
    """A user's role in a project was removed."""

    at: Wall
    user: str
    project: str
    by: str


@dataclass(frozen=True, kw_only=True)
class AccountsMapped:
    """The Unix accounts that a user's jobs may run as were set; empty: the cluster's default."""

    at: Wall
    user: str
    accounts: tuple[str, ...]
    by: str


@dataclass(frozen=True, kw_only=True)
class UserRemoved:
    """A user was removed: it has no role, and its certificates are void."""

    at: Wall
    user: str
    by: str


@dataclass(frozen=True, kw_only=True)
class TokenMade:
    """A join token with this digest was created, for one certificate; ``name`` is empty for any new host."""

    at: Wall
    digest: str
    kind: Kind
    name: str
    expires_at: Wall
    by: str


@dataclass(frozen=True, kw_only=True)
class TokenUsed:
    """A host or user used a join token: it gets its first certificate, for the key with this digest."""

    at: Wall
    digest: str
    kind: Kind
    name: str
    key: str


@dataclass(frozen=True, kw_only=True)
class SecretSet:
    """A secret of a holder (``user/NAME``, ``project/NAME``) was set."""

    at: Wall
    holder: str
    name: str
    by: str


@dataclass(frozen=True, kw_only=True)
class SecretRemoved:
    """A holder's secret was deleted."""

    at: Wall
    holder: str
    name: str
    by: str


@dataclass(frozen=True, kw_only=True)
class UserSignedIn:
    """An identity provider has vouched for a user, who has these roles (by project) until then, and no others."""

    at: Wall
    user: str
    issuer: str
    subject: str
    until: Wall
    roles: dict[str, Role]


@dataclass(frozen=True, kw_only=True)
class SignInEnded:
    """A user's newest sign-in has ended, and with it all roles."""

    at: Wall
    user: str


@dataclass(frozen=True, kw_only=True)
class SignInAllowed:
    """A user who was removed may sign in by the identity provider again."""

    at: Wall
    user: str
    by: str


@dataclass(frozen=True, kw_only=True)
class MotdSet:
    """The message of the day was set; an empty text cleared it."""

    at: Wall
    text: str
    by: str


def holder_in_words(holder: str) -> str:
    """A holder in words, such as ``user ann`` or ``project vision``."""
    return holder.replace("/", " ", 1)


PeopleEvent = (
    RoleGranted
    | RoleTaken
    | AccountsMapped
    | UserRemoved
    | TokenMade
    | TokenUsed
    | SecretSet
    | SecretRemoved
    | MotdSet
    | UserSignedIn
    | SignInEnded
    | SignInAllowed
)
