"""Commands about users, tokens, certificates and secrets; see ``commands``."""

from __future__ import annotations

from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast._base.identity import Kind
from holdfast_controller.core.model.accounts.users import Role


@dataclass(frozen=True)
class RoleAsked:
    """An admin gives a user a role in a project."""

    token: int
    by: str
    user: str
    project: str
    role: Role
    accounts: tuple[str, ...] = ()
    """Unix accounts as in ``AccountsAsked``; empty leaves them unchanged."""


@dataclass(frozen=True)
class AccountsAsked:
    """An admin sets the Unix accounts that a user's jobs may run as, in place of earlier ones."""

    token: int
    by: str
    user: str
    accounts: tuple[str, ...]


@dataclass(frozen=True)
class UserRemovalAsked:
    """An admin removes a user's role in one project, or, without a project, the user."""

    token: int
    by: str
    user: str
    project: str = ""


@dataclass(frozen=True)
class TokenAsked:
    """An admin wants a join token; the shell has generated it and passes only its digest."""

    token: int
    by: str
    digest: str
    kind: Kind
    name: str
    ttl_s: float


@dataclass(frozen=True)
class EnrolAsked:
    """A holder of a join token wants its key certified. ``name`` is empty where the token names it."""

    token: int
    digest: str
    kind: Kind
    name: str
    key: str


@dataclass(frozen=True)
class HostRemovalAsked:
    """An admin wants a host removed; ``force`` vouches that nothing runs there any more."""

    token: int
    by: str
    host: str
    force: bool = False


@dataclass(frozen=True)
class SecretGiven:
    """A user sets a secret; the shell has encrypted its value."""

    token: int
    by: str
    holder: str
    name: str
    sealed: bytes = field(repr=False)


@dataclass(frozen=True)
class SecretRemovalAsked:
    """A user wants a secret deleted; ``force``: even if jobs still use it."""

    token: int
    by: str
    holder: str
    name: str
    force: bool = False


@dataclass(frozen=True)
class SignInAsked:
    """An identity provider vouches for an account, the name it goes by, and its groups; the shell has verified that."""

    token: int
    issuer: str
    subject: str
    user: str
    groups: frozenset[str]


@dataclass(frozen=True)
class SignInAllowanceAsked:
    """An admin lets a user who was removed sign in by the identity provider."""

    token: int
    by: str
    user: str


@dataclass(frozen=True)
class MotdAsked:
    """An admin sets the message of the day; an empty text clears it."""

    token: int
    by: str
    text: str


AccessCommand = (
    RoleAsked
    | AccountsAsked
    | UserRemovalAsked
    | TokenAsked
    | EnrolAsked
    | HostRemovalAsked
    | SecretGiven
    | SecretRemovalAsked
    | MotdAsked
    | SignInAsked
    | SignInAllowanceAsked
)
