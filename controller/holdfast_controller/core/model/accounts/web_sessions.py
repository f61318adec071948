"""Browsers that are signed in, and the one-use codes by which they do. Times are wall-clock seconds.

Codes and cookies are known by their hashes alone. Whether the user may do anything is not decided here: a session is
one more way to be a caller, and its rights are looked up at each call.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast._base.dataclass import dataclass, replace

CODE_S = 60.0
IDLE_S = 12 * 3_600.0
"""A browser that asks for nothing for so long is signed out."""
LONGEST_S = 7 * 86_400.0
CODES_OF_ONE = 16
"""Codes of one user that are open at once; beyond that the oldest no longer counts."""
SESSIONS_OF_ONE = 32
"""Browsers in which one user is signed in; beyond that the one that was used least recently is signed out."""


@dataclass(frozen=True)
class Session:
    """One signed-in browser; ``digest`` is its cookie's, ``id`` opens nothing."""

    id: str
    digest: str
    user: str
    began_at: float
    used_at: float
    address: str
    agent: str

    @property
    def ends_at(self) -> float:
        """When it ends unless it is used before."""
        return min(self.began_at + LONGEST_S, self.used_at + IDLE_S)


class Codes:
    """Codes that were not used yet; none outlives the process."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[str, float]] = {}

    def add(self, digest: str, user: str, now: float) -> float:
        """Take a new code in; returns when it ends."""
        self._forget(now)
        own = [each for each, (of, _) in self._open.items() if of == user]
        for oldest in own[: max(len(own) - CODES_OF_ONE + 1, 0)]:
            del self._open[oldest]
        self._open[digest] = user, now + CODE_S
        return now + CODE_S

    def redeem(self, digest: str, now: float) -> str:
        """The user whose code this is, once; empty for a code that is unknown, used or too old."""
        self._forget(now)
        return self._open.pop(digest, ("", 0.0))[0]

    def forget(self, user: str) -> None:
        """Drop the codes of a user."""
        self._open = {digest: (of, end) for digest, (of, end) in self._open.items() if of != user}

    def _forget(self, now: float) -> None:
        # A clock that was set back must not make a code last longer.
        over = [each for each, (_, end) in self._open.items() if not now < end <= now + CODE_S]
        for digest in over:
            del self._open[digest]


class Sessions:
    """All sessions, by the hash of their cookie."""

    def __init__(self, kept: Iterable[Session] = ()) -> None:
        self._by_digest = {each.digest: each for each in kept}

    def add(self, session: Session) -> list[Session]:
        """Take a new session in; returns those that its user had too many of, which are over."""
        own = sorted(self.of(session.user), key=lambda each: each.used_at)
        over = own[: max(len(own) - SESSIONS_OF_ONE + 1, 0)]
        for each in over:
            del self._by_digest[each.digest]
        self._by_digest[session.digest] = session
        return over

    def find(self, digest: str, now: float) -> Session | None:
        """The session of this cookie, if it has not ended."""
        found = self._by_digest.get(digest)
        return found if found is not None and now < found.ends_at else None

    def use(self, session: Session, now: float) -> Session:
        """Note that it is in use; returns it as it is from now on."""
        used = replace(session, used_at=max(now, session.used_at))
        if session.digest in self._by_digest:
            self._by_digest[session.digest] = used
        return used

    def of(self, user: str | None = None) -> list[Session]:
        """The sessions of a user, or of all, oldest first."""
        found = (each for each in self._by_digest.values() if user is None or each.user == user)
        return sorted(found, key=lambda each: (each.began_at, each.id))

    def end(self, session: Session) -> None:
        """Forget a session."""
        self._by_digest.pop(session.digest, None)

    def over(self, now: float) -> list[Session]:
        """List the sessions that have ended by themselves."""
        return [each for each in self._by_digest.values() if now >= each.ends_at]
