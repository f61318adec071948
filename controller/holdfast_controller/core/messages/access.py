"""Events of users in words; see ``message_of``."""

from __future__ import annotations

from typing import assert_never

from holdfast._base.projects import EVERY_PROJECT
from holdfast_controller.core.events import access as ev
from holdfast_controller.core.events.access import holder_in_words


def access_message(event: ev.PeopleEvent) -> str:
    """The sentence for an event of users, tokens or secrets."""
    match event:
        case ev.RoleGranted():
            return f"{event.user} made {event.role.name.lower()} {_where(event.project)} by {event.by}"
        case ev.RoleTaken():
            return f"role of {event.user} {_where(event.project)} removed by {event.by}"
        case ev.AccountsMapped() if event.accounts:
            return f"accounts of {event.user} set to {', '.join(event.accounts)} by {event.by}"
        case ev.AccountsMapped():
            return f"accounts of {event.user} reset to the cluster's default by {event.by}"
        case ev.UserRemoved():
            return f"user {event.user} removed by {event.by}; its certificates are void"
        case ev.TokenMade():
            whom = f"{event.kind.value} {event.name}" if event.name else "a new host"
            return f"token for {whom} created by {event.by}"
        case ev.TokenUsed():
            return f"first certificate issued to {event.kind.value} {event.name}"
        case ev.SecretSet():
            return f"secret {event.name} of {holder_in_words(event.holder)} set by {event.by}"
        case ev.SecretRemoved():
            return f"secret {event.name} of {holder_in_words(event.holder)} removed by {event.by}"
        case ev.UserSignedIn():
            roles = ", ".join(
                f"{role.name.lower()} {_where(project)}" for project, role in sorted(event.roles.items())
            )
            return f"{event.user} signed in by {event.issuer}, as {roles}"
        case ev.SignInEnded():
            return f"sign-in of {event.user} ended"
        case ev.SignInAllowed():
            return f"{event.user} allowed to sign in again by {event.by}"
        case ev.MotdSet():
            return f"message of the day {'set' if event.text else 'cleared'} by {event.by}"
        case _:
            assert_never(event)


def _where(project: str) -> str:
    return "everywhere" if project == EVERY_PROJECT else f"in project {project}"
