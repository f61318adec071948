"""Users for whom the site's identity provider vouches (ADR 0039).

The shell has verified the provider's word: an account (issuer and subject), the name that it goes by here, and its
groups. Which roles that gives, and whether the name is free for that account, is decided here:

- a name that an admin has added, or that controller.toml names as an admin's, is never the provider's to give:
  a person who may choose names there would otherwise become that user. The same holds for a name that an admin has
  removed, until an admin allows it again;
- a name belongs to the first account that signs in by it, until an admin removes the user;
- roles are those of the account's groups, as each sign-in finds them, and last until it ends.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast._base.identity import NAME_RULE, is_name
from holdfast._base.printable import one_line
from holdfast.errors import Denied, HoldfastError, InvalidInput, TooMany, Violation, WrongState
from holdfast_controller.core.events import access as ev
from holdfast_controller.core.model.accounts.users import GroupGrant, People, Role
from holdfast_controller.core.step.access_commands import SignInAllowanceAsked, SignInAsked
from holdfast_controller.core.step.actions import AccessChanged, Refuse, Reply
from holdfast_controller.core.step.step import Policies, Step
from holdfast_controller.core.step.timers import UserTimer

MAX_USERS = 10_000
"""Users whom a provider has ever signed in, and who were not removed."""
SHOWN = 80
"""Characters of a refused name."""


def on_sign_in(step: Step, asked: SignInAsked) -> None:
    """Make the account's name a user with the roles of its groups, or refuse it. The reply is the name."""
    roles = roles_of(step.policies.sign_in.grants, asked.groups)
    problem = _refusal(step.cluster.people, step.policies, asked) or (None if roles else _no_group(asked.user))
    if problem is not None:
        step.do(Refuse(asked.token, problem))
        return
    lifetime_s = step.policies.sign_in.lifetime_s
    step.emit(
        ev.UserSignedIn(
            at=step.now.wall,
            user=asked.user,
            issuer=asked.issuer,
            subject=asked.subject,
            until=step.now.wall_in(lifetime_s),
            roles=roles,
        )
    )
    step.timers.set((UserTimer.SIGN_IN, asked.user), step.now.mono_in(lifetime_s))
    step.do(AccessChanged(f"user/{asked.user}"))
    step.do(Reply(asked.token, asked.user))


def roles_of(grants: Iterable[GroupGrant], groups: frozenset[str]) -> dict[str, Role]:
    """The highest role that the groups give in each project."""
    found: dict[str, Role] = {}
    for grant in grants:
        if grant.group in groups and not (grant.project in found and found[grant.project].covers(grant.role)):
            found[grant.project] = grant.role
    return found


def _refusal(people: People, policies: Policies, asked: SignInAsked) -> HoldfastError | None:
    """The reason why the name is not the account's; None where it is."""
    user = asked.user
    if not is_name(user):
        shown = one_line(user, SHOWN)
        return Denied(f"The identity provider calls this account {shown!r}, which is no name here.", fix=NAME_RULE)
    if user in policies.admins:
        return Denied(f"{user} is an admin by controller.toml, and signs in by a token alone.", fix=_TOKEN)
    known = people.signed_in.get(user)
    if known is None and user in people.roles:
        return Denied(f"{user} was added by an admin, and signs in by a token alone.", fix=_handed_over(user))
    if known is None and f"user/{user}" in people.void_until and user not in people.sign_in_allowed:
        return Denied(f"{user} was removed by an admin.", fix=f"Ask an admin: holdfast user add {user} --oidc")
    if known is not None and (known.issuer, known.subject) != (asked.issuer, asked.subject):
        problem = f"The name {user} belongs to another account of the identity provider."
        return Denied(problem, fix=_handed_over(user))
    if known is None and len(people.signed_in) >= MAX_USERS:
        return TooMany(f"There are {MAX_USERS} users who sign in already.", fix="Ask an admin to remove some.")
    return None


def on_time(step: Step, user: str) -> None:
    """End a user's roles with the newest sign-in; what the user reads at this moment ends."""
    people = step.cluster.people
    known = people.signed_in.get(user)
    if known is None:
        return
    if step.now.wall < known.until:  # the clock was set back, or a newer sign-in came between
        step.timers.set((UserTimer.SIGN_IN, user), step.now.mono_in(known.until - step.now.wall))
    elif user in people.roles:
        step.emit(ev.SignInEnded(at=step.now.wall, user=user))
        step.do(AccessChanged(f"user/{user}"))


def on_allowance(step: Step, asked: SignInAllowanceAsked) -> None:
    """Let a user who was removed sign in again. Asking twice changes nothing."""
    people, user = step.cluster.people, asked.user
    problem: HoldfastError | None = None
    if not step.policies.sign_in.grants:
        problem = WrongState("This cluster has no identity provider.", fix="Set [oidc] in controller.toml.")
    elif not is_name(user):
        problem = InvalidInput([Violation("name", f"{user!r} is no name", NAME_RULE)])
    elif user in step.policies.admins or (user in people.roles and user not in people.signed_in):
        problem = WrongState(f"{user} is a user by token.", fix=f"First: holdfast user remove {user}")
    if problem is not None:
        step.do(Refuse(asked.token, problem))
        return
    removed = f"user/{user}" in people.void_until
    if removed and user not in people.signed_in and user not in people.sign_in_allowed:
        step.emit(ev.SignInAllowed(at=step.now.wall, user=user, by=asked.by))
    step.do(Reply(asked.token, user))


def by_provider(people: People, user: str) -> WrongState | None:
    """The refusal of what is for users by token alone; None for these."""
    if user not in people.signed_in:
        return None
    problem = f"{user} signs in by the identity provider, whose groups give the roles."
    return WrongState(problem, fix="Change the groups there, or [[oidc.grants]] in controller.toml.")


def _no_group(user: str) -> Denied:
    return Denied(
        f"{user} is in no group that may use this cluster.", fix="Ask an admin, who sets [[oidc.grants]]."
    )


def _handed_over(user: str) -> str:
    return f"To hand the name over, an admin types: holdfast user remove {user} && holdfast user add {user} --oidc"


_TOKEN = "Ask an admin: holdfast user token NAME"
