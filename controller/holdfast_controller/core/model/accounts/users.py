"""Users, join tokens, certificates, secrets and the message of the day: the fold of access events.

A certificate proves a name and when it was issued, and nothing else: what the name may do is looked up here at
each call. So a right that is taken away is gone at once, and no list of serial numbers has to be kept: of a name
that was removed, whatever was issued until then is void, and a name that is admitted again gets a newer one.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast._base.identity import Kind
from holdfast._base.projects import EVERY_PROJECT
from holdfast_controller.core.model.clock import Wall


class Role(enum.Enum):
    """A user's role in a project; each includes the rights of the one before."""

    VIEWER = 1
    USER = 2
    ADMIN = 3

    def covers(self, needed: Role) -> bool:
        """Whether this role includes the rights of ``needed``."""
        return self.value >= needed.value


class RunAs(enum.Enum):
    """The account of jobs whose owner is mapped to none."""

    SERVICE = "service"
    """Each host's ``worker_user``."""
    SAME_NAME = "same-name"
    """The account that has the owner's name."""


@dataclass(frozen=True)
class Token:
    """Leave to get one certificate. ``name`` is empty for any host that is not known yet; wall-clock seconds."""

    kind: Kind
    name: str
    expires_at: Wall
    used_by: str = ""
    """The host or user that used it; empty before."""
    key: str = ""
    """Digest of the key that was certified."""


@dataclass(frozen=True)
class SecretNote:
    """When a secret was set, in wall-clock seconds, and by whom."""

    at: Wall
    by: str


@dataclass(frozen=True)
class SignIn:
    """The account of an identity provider that a user's name belongs to, and the end of its newest sign-in."""

    issuer: str
    subject: str
    until: Wall


@dataclass(frozen=True)
class GroupGrant:
    """The role that members of an identity provider's group have in a project."""

    group: str
    project: str
    role: Role


@dataclass(frozen=True)
class SignInPolicy:
    """Rules for an identity provider: members of groups with a grant are signed in, for so many seconds each time."""

    grants: tuple[GroupGrant, ...] = ()
    lifetime_s: float = 0.0


@dataclass(frozen=True)
class Motd:
    """The message of the day: lines that are safe to show, when it was set in wall-clock seconds, and by whom."""

    text: str
    at: Wall
    by: str


@dataclass
class People:
    """Users, their roles and accounts, names whose certificates are void, hosts that joined, and tokens."""

    roles: dict[str, dict[str, Role]] = field(default_factory=dict)
    """By user and project."""
    accounts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By user: accounts of the hosts that their jobs may run as, the first unless a job names another."""
    void_until: dict[str, float] = field(default_factory=dict)
    """By ``user/NAME`` or ``host/NAME``: certificates issued until then (wall clock) are void."""
    joined: set[str] = field(default_factory=set)
    """Hosts that got a certificate for a token."""
    tokens: dict[str, Token] = field(default_factory=dict)
    """By digest; those that ended more than a day ago are forgotten."""
    secrets: dict[str, dict[str, SecretNote]] = field(default_factory=dict)
    """By holder (``user/NAME``, ``project/NAME``) and name; the values are in a table of their own."""
    motd: Motd | None = None
    """What every user is shown."""
    signed_in: dict[str, SignIn] = field(default_factory=dict)
    """By user: those whom an identity provider has signed in, also when that has ended."""
    sign_in_allowed: set[str] = field(default_factory=set)
    """Users who were removed and may sign in again."""


def role_in(grants: Mapping[str, Role], project: str) -> Role | None:
    """The highest role that ``grants`` give in a project; None for none."""
    found = [grants[name] for name in (project, EVERY_PROJECT) if name in grants]
    return max(found, key=lambda role: role.value, default=None)
