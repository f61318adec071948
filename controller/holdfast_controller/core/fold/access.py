"""Fold of access events: applies them to ``People``."""

from __future__ import annotations

from typing import assert_never

from holdfast._base.dataclass import replace
from holdfast._base.identity import Kind
from holdfast_controller.core.events import access as ev
from holdfast_controller.core.model.accounts.users import Motd, People, SecretNote, SignIn, Token
from holdfast_controller.core.model.clock import Wall

TOKEN_KEPT_S = 86_400.0
"""Seconds after its end in which a token is still known, so that its use is refused as late, not as unknown."""


def fold_people(people: People, event: ev.PeopleEvent) -> None:
    """Apply ``event`` to the cluster's ``people``."""
    match event:
        case ev.RoleGranted():
            people.roles.setdefault(event.user, {})[event.project] = event.role
        case ev.RoleTaken():
            people.roles[event.user].pop(event.project, None)
        case ev.AccountsMapped():
            people.accounts[event.user] = event.accounts
            if not event.accounts:
                del people.accounts[event.user]
        case ev.UserRemoved():
            people.roles.pop(event.user, None)
            people.accounts.pop(event.user, None)
            people.signed_in.pop(event.user, None)
            people.sign_in_allowed.discard(event.user)
            make_void(people, Kind.USER, event.user, event.at)
        case ev.TokenMade():
            kept = {d: t for d, t in people.tokens.items() if t.expires_at + TOKEN_KEPT_S > event.at}
            people.tokens = kept | {event.digest: Token(event.kind, event.name, event.expires_at)}
        case ev.TokenUsed():
            token = people.tokens[event.digest]
            people.tokens[event.digest] = replace(token, used_by=event.name, key=event.key)
            if event.kind is Kind.HOST:
                people.joined.add(event.name)
        case ev.SecretSet():
            people.secrets.setdefault(event.holder, {})[event.name] = SecretNote(event.at, event.by)
        case ev.SecretRemoved():
            people.secrets[event.holder].pop(event.name, None)
            if not people.secrets[event.holder]:
                del people.secrets[event.holder]
        case ev.UserSignedIn():
            people.roles[event.user] = dict(event.roles)
            people.signed_in[event.user] = SignIn(event.issuer, event.subject, event.until)
        case ev.SignInEnded():
            people.roles.pop(event.user, None)
        case ev.SignInAllowed():
            people.sign_in_allowed.add(event.user)
        case ev.MotdSet():
            people.motd = Motd(event.text, event.at, event.by) if event.text else None
        case _:
            assert_never(event)


def make_void(people: People, kind: Kind, name: str, at: Wall) -> None:
    """Whatever was certified for the name until ``at`` counts no more, nor does a token that waits for it or was used.

    With a token that was used, who has its key could ask for a certificate again. What was void once stays so, though
    the clock was set back.
    """
    party = f"{kind.value}/{name}"
    people.void_until[party] = max(at, people.void_until.get(party, at))
    people.joined -= {name} if kind is Kind.HOST else set()
    people.tokens = {d: t for d, t in people.tokens.items() if (t.kind, t.used_by or t.name) != (kind, name)}
