"""Commands about users, tokens, certificates and secrets; see ``commands``."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast._base.identity import Kind
from holdfast_controller.core.model.users import Role


@dataclass(frozen=True)
class RoleAsked:
    """An admin gives a user a role in a project."""

    token: int
    by: str
    user: str
    project: str
    role: Role
    accounts: tuple[str, ...] = ()
    """As in ``AccountsAsked``; none leaves them as they are."""


@dataclass(frozen=True)
class AccountsAsked:
    """An admin says as which accounts of the hosts a user's jobs may run, in place of what was said before."""

    token: int
    by: str
    user: str
    accounts: tuple[str, ...]


@dataclass(frozen=True)
class UserRemovalAsked:
    """An admin takes a role in one project away, or, without a project, everything."""

    token: int
    by: str
    user: str
    project: str = ""


@dataclass(frozen=True)
class TokenAsked:
    """An admin wants a token, which the shell has drawn and of which only the digest comes here."""

    token: int
    by: str
    digest: str
    kind: Kind
    name: str
    ttl_s: float


@dataclass(frozen=True)
class EnrolAsked:
    """Somebody shows a token, and a key to certify. ``name`` is empty where the token says it."""

    token: int
    digest: str
    kind: Kind
    name: str
    key: str


@dataclass(frozen=True)
class HostRemovalAsked:
    """An admin wants a host forgotten; ``force`` vouches that nothing runs there any more."""

    token: int
    by: str
    host: str
    force: bool = False


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


PeopleStimulus = (
    RoleAsked
    | AccountsAsked
    | UserRemovalAsked
    | TokenAsked
    | EnrolAsked
    | HostRemovalAsked
    | SecretGiven
    | SecretRemovalAsked
)
