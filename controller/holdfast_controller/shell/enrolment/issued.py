"""The newest certificate of each host and user, so that it is known when a CA is no longer needed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import sqlalchemy as sa

from holdfast._base.dataclass import dataclass
from holdfast._base.identity import Identity
from holdfast._daemon import log
from holdfast_controller.shell.store.records import as_written, with_checksum
from holdfast_controller.shell.store.schema import certificates
from holdfast_controller.shell.store.statements import put
from holdfast_controller.shell.store.store import Store


@dataclass(frozen=True)
class Issued:
    """``party`` is kind/NAME; ``issuer`` the hash of a CA, ``trusts`` those of all that its holder was given."""

    party: str
    issued_at: float
    issuer: str
    trusts: frozenset[str]


class IssuedCertificates:
    """Kept in the store, beside the log."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def note(self, who: Identity, issued_at: float, issuer: str, trusts: Collection[str]) -> None:
        """Remember a certificate before it is handed out. Raises ``StoreError``."""
        party = f"{who.kind.value}/{who.name}"
        row = {"party": party, "issued_at": issued_at, "issuer": issuer, "trusts": " ".join(sorted(trusts))}
        await asyncio.wrap_future(self._store.call(self._note, row))

    def _note(self, row: dict[str, object]) -> None:
        self._store.transaction(lambda database: put(database, certificates, [with_checksum(certificates, row)]))

    async def all(self) -> dict[str, Issued]:
        """Newest certificates, keyed by party. A damaged entry is left out: its party counts as not renewed."""
        found: dict[str, Issued] = await asyncio.wrap_future(self._store.call(self._all))
        return found

    def _all(self) -> dict[str, Issued]:
        rows = self._store.transaction(lambda database: database.execute(sa.select(certificates)).all())
        found = {}
        for row in rows:
            if as_written(certificates, row):
                found[row.party] = Issued(row.party, row.issued_at, row.issuer, frozenset(row.trusts.split()))
            else:
                log.warning("store.row_damaged", table=certificates.name, party=row.party)
        return found
