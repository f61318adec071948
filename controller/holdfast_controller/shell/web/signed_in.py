"""Browsers that are signed in: codes for cookies, cookies for callers, and an end to what an ended session reads."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa

from holdfast._base.identity import Credential, Identity, Kind
from holdfast._base.printable import one_line
from holdfast._base.rpc_status import code_name
from holdfast._daemon import log
from holdfast._daemon.tls_door import network_of
from holdfast.errors import HoldfastError, TooMany, Unauthenticated, WrongState
from holdfast_controller.core.access.audit import Entry, Trail
from holdfast_controller.core.access.rules import is_void
from holdfast_controller.core.model.accounts.token_buckets import Buckets
from holdfast_controller.core.model.accounts.web_sessions import Codes, Session, Sessions
from holdfast_controller.shell.base.audit import Audit
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.store.records import as_written, with_checksum
from holdfast_controller.shell.store.schema import web_sessions
from holdfast_controller.shell.store.statements import put

SWEEP_S = 60.0
"""Between two looks at what has ended; last uses are written down then."""
WRONG_BURST, WRONG_PER_S = 10.0, 0.2
"""Wrong codes from one address. They can't be guessed; this bounds what trying costs."""
SIGN_IN = "WebService/SignIn"
"""How the audit log calls it that a browser brings a code."""
AGENT_CHARACTERS = 120

Abort = Callable[[], object]


class SignedIn:
    """The sessions of one controller, in its store. Call ``load`` before the first request."""

    def __init__(self, driver: Driver, cluster: str, audit: Audit) -> None:
        self._driver = driver
        self._cluster = cluster
        self._audit = audit
        self._codes = Codes()
        self._sessions = Sessions()
        self._wrong = Buckets(WRONG_BURST, WRONG_PER_S)
        self._open: defaultdict[str, set[Abort]] = defaultdict(set)
        """By the cookie's hash: what ends each of its requests."""
        self._unwritten: set[str] = set()

    async def load(self) -> None:
        """Take in the sessions of before the start. Raises ``StoreError``."""
        self._sessions = Sessions(await asyncio.wrap_future(self._driver.store.call(self._read)))

    def code(self, user: str) -> tuple[str, float]:
        """A new one-use code for a user, and when it ends."""
        drawn = secrets.token_urlsafe(32)
        return drawn, self._codes.add(_digest(drawn), user, time.time())

    async def sign_in(self, code: str, cookies: list[str], address: str, agent: str) -> tuple[Session, str]:
        """Begin the session of ``code``'s user, in place of the browser's own. Returns its cookie too.

        Raises ``Unauthenticated``, ``TooMany``, ``StoreError``, or ``WrongState`` in another user's browser.
        """
        try:
            made, cookie = await self._signed_in(code, cookies, address, agent)
        except HoldfastError as error:
            entry = Entry(time.time(), "", address, SIGN_IN, "", code_name(error), error.message)
            self._audit.refused(entry, Trail.UNKNOWN)
            raise
        party = f"user/{made.user}"
        self._audit.write(Entry(time.time(), party, address, SIGN_IN, party), Trail.UNKNOWN)
        return made, cookie

    async def _signed_in(self, code: str, cookies: list[str], address: str, agent: str) -> tuple[Session, str]:
        user = self._codes.redeem(_digest(code), time.time())
        if not user:
            self._wrong_code(address)
        before = self.find(cookies)
        if before is not None and before.user != user:
            fix = f"Sign out first, or open the page in another browser than {before.user}'s."
            raise WrongState(f"This browser is signed in as {before.user}, and the code is {user}'s.", fix=fix)
        drawn, now = secrets.token_urlsafe(32), time.time()
        about = one_line(agent)[:AGENT_CHARACTERS]
        made = Session(secrets.token_hex(4), _digest(drawn), user, now, now, address, about)
        await self._write([made])
        for over in [*self._sessions.add(made), *([before] if before is not None else [])]:
            await self.end(over)
        log.info("web.signed_in", user=user, session=made.id, address=address)
        return made, drawn

    def _wrong_code(self, address: str) -> None:
        now = time.monotonic()
        if not self._wrong.spend(network_of(address), now):
            raise TooMany(f"Too many wrong codes came from {address}.", fix="Wait a minute, then: holdfast web")
        raise Unauthenticated(
            "This code is not known: it was used before, is older than a minute, or was mistyped.",
            fix="Get another one: holdfast web",
        )

    def find(self, cookies: list[str]) -> Session | None:
        """The session of the one cookie that a browser sent; None for none, several, or one that has ended."""
        if len(cookies) != 1:
            return None
        found = self._sessions.find(_digest(cookies[0]), time.time())
        if found is None or is_void(self._driver.cluster.people, self.caller(found)):
            return None
        return found

    def caller(self, session: Session) -> Credential:
        """The caller that a session's requests come from."""
        return Credential(Identity(self._cluster, Kind.USER, session.user), session.began_at, session.ends_at)

    @contextlib.contextmanager
    def request(self, session: Session, abort: Abort) -> Iterator[Session]:
        """One request of a session, which is in use until the block ends; ``abort`` is called if the session ends."""
        self._use(session)
        self._open[session.digest].add(abort)
        try:
            yield session
        finally:
            self._open[session.digest].discard(abort)
            if not self._open[session.digest]:
                del self._open[session.digest]
            self._use(session)

    def _use(self, session: Session) -> None:
        self._sessions.use(session, time.time())
        self._unwritten.add(session.digest)

    def listed(self, user: str | None) -> list[Session]:
        """The sessions of a user, or of all, that have not ended; oldest first."""
        people, now = self._driver.cluster.people, time.time()
        found = [each for each in self._sessions.of(user) if now < each.ends_at]
        return [each for each in found if not is_void(people, self.caller(each))]

    async def end(self, session: Session) -> None:
        """Sign a browser out for good, and cut off what it reads. Raises ``StoreError``."""
        self._sessions.end(session)
        for abort in list(self._open.get(session.digest, ())):
            abort()
        await asyncio.wrap_future(self._driver.store.call(self._delete, [session.digest]))
        log.info("web.signed_out", user=session.user, session=session.id)

    def access_changed(self, party: str) -> None:
        """Forget the codes of a user whose rights have changed; end their requests if the user was removed."""
        kind, _, user = party.partition("/")
        if kind != "user":
            return
        self._codes.forget(user)
        for session in self._sessions.of(user):
            if is_void(self._driver.cluster.people, self.caller(session)):
                for abort in list(self._open.get(session.digest, ())):
                    abort()

    async def run(self) -> None:
        """Forget what has ended, and write down when the others were used, until cancelled. Raises ``StoreError``."""
        while True:
            await asyncio.sleep(SWEEP_S)
            people, now = self._driver.cluster.people, time.time()
            busy = [each for each in self._sessions.of() if self._open.get(each.digest)]
            for session in busy:
                self._use(session)
            over = [each for each in self._sessions.of() if is_void(people, self.caller(each))]
            for session in [*self._sessions.over(now), *over]:
                await self.end(session)
            used, self._unwritten = self._unwritten, set()
            await self._write([each for each in self._sessions.of() if each.digest in used])

    async def _write(self, changed: list[Session]) -> None:
        if changed:
            await asyncio.wrap_future(self._driver.store.call(self._replace, changed))

    def _read(self) -> list[Session]:
        """Sessions in the store. One whose row is damaged is dropped: its browser has to sign in again."""

        def work(database: sa.Connection) -> list[sa.Row[Any]]:
            rows = list(database.execute(sa.select(web_sessions)))
            for row in [row for row in rows if not as_written(web_sessions, row)]:
                log.warning("store.row_damaged", table=web_sessions.name, session=row.id)
                database.execute(sa.delete(web_sessions).where(web_sessions.c.digest == row.digest))
                rows.remove(row)
            return rows

        return [
            Session(row.id, row.digest, row.user, row.began_at, row.used_at, row.address, row.agent)
            for row in self._driver.store.transaction(work)
        ]

    def _replace(self, changed: list[Session]) -> None:
        rows = [
            {
                "digest": each.digest,
                "id": each.id,
                "user": each.user,
                "began_at": each.began_at,
                "used_at": each.used_at,
                "address": each.address,
                "agent": each.agent,
            }
            for each in changed
        ]
        kept = [with_checksum(web_sessions, row) for row in rows]
        self._driver.store.transaction(lambda database: put(database, web_sessions, kept))

    def _delete(self, digests: list[str]) -> None:
        ended = sa.delete(web_sessions).where(web_sessions.c.digest.in_(digests))
        self._driver.store.transaction(lambda database: database.execute(ended))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
