"""Users and join tokens: grant and remove roles, create and use tokens."""

from __future__ import annotations

from holdfast._base.identity import NAME_RULE, Kind, is_name
from holdfast._base.projects import EVERY_PROJECT, MUST, is_project
from holdfast.errors import Denied, HoldfastError, InvalidInput, NotFound, Violation, WrongState
from holdfast_controller.core.access.accounts import bad_accounts, map_user
from holdfast_controller.core.access.sign_in import by_provider
from holdfast_controller.core.events import access as ev
from holdfast_controller.core.events.schedules import SchedulePaused
from holdfast_controller.core.model.accounts.users import Token
from holdfast_controller.core.step.access_commands import EnrolAsked, RoleAsked, TokenAsked, UserRemovalAsked
from holdfast_controller.core.step.actions import AccessChanged, Refuse, Reply
from holdfast_controller.core.step.step import Step

TOKEN_LONGEST_S = 1800.0
CLOCK_STEP_S = 60.0
"""A wall clock that is set back by more ends the tokens from before: it would make them last longer."""
MAX_TOKENS = 10_000
MAX_USERS = 10_000


def on_role(step: Step, asked: RoleAsked) -> None:
    """Give a user a role in a project. Asking twice changes nothing."""
    problem: HoldfastError | None = _bad_name(asked.user) or _bad_project(asked.project)
    people = step.cluster.people
    if problem is None and asked.user not in people.roles and len(people.roles) >= MAX_USERS:
        problem = InvalidInput([Violation("name", f"there are {MAX_USERS} users already", "remove some")])
    problem = problem or bad_accounts(asked.accounts) or by_provider(people, asked.user)
    if problem is not None:
        step.do(Refuse(asked.token, problem))
        return
    if people.roles.get(asked.user, {}).get(asked.project) is not asked.role:
        step.emit(
            ev.RoleGranted(at=step.now.wall, user=asked.user, project=asked.project, role=asked.role, by=asked.by)
        )
        step.do(AccessChanged(f"user/{asked.user}"))
    if asked.accounts:
        map_user(step, asked.user, asked.accounts, asked.by)
    step.do(Reply(asked.token, asked.user))


def on_user_removal(step: Step, asked: UserRemovalAsked) -> None:
    """Remove one role, or the user: then its certificates are void and its open streams end."""
    people = step.cluster.people
    grants = people.roles.get(asked.user, {} if asked.user in people.signed_in else None)
    if asked.user in step.policies.admins and not asked.project:
        problem = f"{asked.user} is an admin by controller.toml."
        fix = "Take the name out of admins there and restart the controller, then remove the user."
        step.do(Refuse(asked.token, WrongState(problem, fix=fix)))
        return
    if grants is None or (asked.project and asked.project not in grants):
        where = f" with a role in project {asked.project}" if grants is not None else ""
        unknown = NotFound(f"There is no user {asked.user!r}{where}.", fix="See: holdfast user list")
        step.do(Refuse(asked.token, unknown))
        return
    if asked.project and (refused := by_provider(people, asked.user)) is not None:
        step.do(Refuse(asked.token, refused))
        return
    if asked.project:
        step.emit(ev.RoleTaken(at=step.now.wall, user=asked.user, project=asked.project, by=asked.by))
    else:
        step.emit(ev.UserRemoved(at=step.now.wall, user=asked.user, by=asked.by))
        _pause_schedules(step, asked)
    step.do(AccessChanged(f"user/{asked.user}"))
    step.do(Reply(asked.token, asked.user))


def _pause_schedules(step: Step, asked: UserRemovalAsked) -> None:
    """Have none of the user's schedules submit anything, nor for the next user of that name."""
    for each in list(step.cluster.schedules.values()):
        if each.owner == asked.user and not each.paused_by:
            step.emit(SchedulePaused(project=each.project, name=each.name, at=step.now.wall, by=asked.by))


def on_token(step: Step, asked: TokenAsked) -> None:
    """Create a join token for a known user, for a host by name, or for any new host."""
    problem = _token_problem(step, asked)
    if problem is not None:
        step.do(Refuse(asked.token, problem))
        return
    expires_at = step.now.wall_in(asked.ttl_s)
    step.emit(
        ev.TokenMade(
            at=step.now.wall,
            digest=asked.digest,
            kind=asked.kind,
            name=asked.name,
            expires_at=expires_at,
            by=asked.by,
        )
    )
    step.do(Reply(asked.token, asked.name))


def _token_problem(step: Step, asked: TokenAsked) -> HoldfastError | None:
    people = step.cluster.people
    if not 0 < asked.ttl_s <= TOKEN_LONGEST_S:
        violation = Violation("ttl", f"{asked.ttl_s:.12g} s is out of range", "use more than 0, and at most 30m")
        return InvalidInput([violation])
    if sum(token.expires_at > step.now.wall for token in people.tokens.values()) >= MAX_TOKENS:
        return InvalidInput([Violation("", f"{MAX_TOKENS} tokens wait already", "try again in half an hour")])
    if asked.kind is Kind.USER and asked.name not in people.roles and asked.name not in step.policies.admins:
        return NotFound(f"There is no user {asked.name!r}.", fix=f"First: holdfast user add {asked.name}")
    if asked.kind is Kind.USER and asked.name in people.signed_in:
        return WrongState(f"{asked.name} signs in by the identity provider.", fix="holdfast login --oidc")
    return _bad_name(asked.name) if asked.name else None


def on_enrol(step: Step, asked: EnrolAsked) -> None:
    """Use a token up for a name and a key. The reply is the identity, as KIND/NAME.

    The same key may ask again until the token ends: the answer may have been lost on its way.
    """
    token = step.cluster.people.tokens.get(asked.digest)
    if token is None:
        fix = _ANOTHER
        step.do(Refuse(asked.token, Denied("The controller knows no such token, or has withdrawn it.", fix=fix)))
        return
    name = token.name or asked.name
    problem = _bad_enrolment(step, token, name, asked)
    if token.used_by and token.key != asked.key:
        problem = Denied(f"The token was used already, by {token.kind.value} {token.used_by}.", fix=_ANOTHER)
    if problem is not None:
        step.do(Refuse(asked.token, problem))
        return
    if not token.used_by:
        step.emit(ev.TokenUsed(at=step.now.wall, digest=asked.digest, kind=token.kind, name=name, key=asked.key))
    step.do(Reply(asked.token, f"{token.kind.value}/{name}"))


def _bad_enrolment(step: Step, token: Token, name: str, asked: EnrolAsked) -> HoldfastError | None:
    if step.now.wall >= token.expires_at:
        ago = step.now.wall - token.expires_at
        return Denied(f"The token has ended {ago:.0f} s ago.", fix=_ANOTHER)
    if token.expires_at > step.now.wall_in(TOKEN_LONGEST_S + CLOCK_STEP_S):
        return Denied("The controller's clock was set back since the token was made.", fix=_ANOTHER)
    if token.kind is not asked.kind:
        how = "holdfast-agent join" if token.kind is Kind.HOST else "holdfast login"
        return Denied(f"The token is for a {token.kind.value}, not for a {asked.kind.value}.", fix=f"Use: {how}")
    if asked.name and asked.name != name:
        fix = f"Join as {name}, or: holdfast host token create {asked.name}"
        return Denied(f"The token is for {token.kind.value} {name}, not for {asked.name}.", fix=fix)
    if not name:
        return InvalidInput([Violation("host", "is missing", "write --name NAME")])
    cluster = step.cluster
    if not token.name and not token.used_by and (name in cluster.hosts or name in cluster.people.joined):
        problem = f"There is a host {name} in this cluster, and this token is for a new one."
        return Denied(problem, fix=f"Choose another --name, or: holdfast host token create {name}")
    return _bad_name(name)


def _bad_name(name: str) -> InvalidInput | None:
    return None if is_name(name) else InvalidInput([Violation("name", f"{name!r} is no name", NAME_RULE)])


def _bad_project(project: str) -> InvalidInput | None:
    if project == EVERY_PROJECT or is_project(project):
        return None
    fix = f"or {EVERY_PROJECT} for all"
    return InvalidInput([Violation("project", f"{project!r} is no project: it must {MUST}", fix)])


_ANOTHER = "Have another one made: holdfast host token create, or holdfast user token NAME"
