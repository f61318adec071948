"""The tables ``[oidc]`` and ``[[oidc.grants]]`` of ``controller.toml``: users of the site's identity provider."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from holdfast._base import projects
from holdfast._base.dataclass import dataclass
from holdfast.errors import ConfigError
from holdfast_controller.core.model.accounts.users import GroupGrant, Role, SignInPolicy


@dataclass(frozen=True)
class OidcGrantConfig:
    """Keys of each ``[[oidc.grants]]``: the role that members of a group have. Users without any don't get in."""

    group: str
    """As the provider names it."""
    role: str = "user"
    """viewer, user or admin."""
    project: str = "*"
    """The project, or "*" for all of them."""

    def __post_init__(self) -> None:
        """Raises ``ConfigError`` for a role or a project that is none."""
        if self.role.upper() not in Role.__members__:
            fix = f"Write {', '.join(role.name.lower() for role in Role)}."
            raise ConfigError(f"oidc.grants: the role {self.role!r} is none.", fix=fix)
        projects.check_setting("oidc.grants", self.project)


@dataclass(frozen=True)
class OidcConfig:
    """Keys of ``[oidc]``: the site's identity provider (OpenID Connect), by which users sign in."""

    issuer: str = ""
    """Its https URL, as in its tokens; empty: none."""
    client_id: str = ""
    """The id of this cluster there: a public client with the device authorization grant."""
    ca: Path | None = None
    """PEM file of the CA of its certificate, where that isn't one of the system's."""
    scopes: tuple[str, ...] = ("openid", "profile")
    """Scopes that are asked for. With "offline_access" most providers let a sign-in renew itself."""
    user_claim: str = "preferred_username"
    """The claim that names the user here."""
    groups_claim: str = "groups"
    """The claim with the user's groups: a list, or one text."""
    lifetime: float = 43_200.0
    """How long a sign-in lasts. A user who was removed there has access until its end."""
    grants: tuple[OidcGrantConfig, ...] = ()
    """The roles of its groups."""

    def __post_init__(self) -> None:
        """Raises ``ConfigError`` for a provider that can't be asked, or lets no user in."""
        if not self.issuer:
            return
        if not self.issuer.startswith("https://") or not urlsplit(self.issuer).hostname:
            raise ConfigError(f"oidc.issuer is {self.issuer!r}.", fix="Write its URL, which begins with https://")
        if not self.client_id:
            raise ConfigError("oidc.client_id is missing.", fix="Register this cluster there, as a public client.")
        if "openid" not in self.scopes:
            raise ConfigError("oidc.scopes lacks openid.", fix='Write scopes = ["openid", "profile"].')
        if not 60 <= self.lifetime <= 30 * 86_400:
            raise ConfigError(f"oidc.lifetime is {self.lifetime:.12g} s.", fix="Write 1m to 30d; 12h is usual.")
        if not self.grants:
            fix = 'Write [[oidc.grants]] with group = "…" and role = "user".'
            raise ConfigError("oidc.grants is empty, so no user could sign in.", fix=fix)

    @property
    def policy(self) -> SignInPolicy:
        """The rules for its users as the core takes them."""
        if not self.issuer:
            return SignInPolicy()
        grants = (GroupGrant(each.group, each.project, Role[each.role.upper()]) for each in self.grants)
        return SignInPolicy(tuple(grants), self.lifetime)
