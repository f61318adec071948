"""A bit is flipped in each column of each table of the store: no row is ever read as another one than was written."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.integration.controller.store.test_store import commit, folded, opened, records
from tests.unit.controller.examples import EVENTS

from holdfast._base.identity import Identity, Kind
from holdfast._base.secret import Secret
from holdfast.errors import StoreError
from holdfast.hang.judge.state import begin
from holdfast.hang.records.persistence import resting
from holdfast_controller.core.model.accounts.web_sessions import Session
from holdfast_controller.core.model.cluster import Answer, Cluster
from holdfast_controller.core.model.goodput import Bookings, JobLedger, ProgressWatch, Statement
from holdfast_controller.core.model.hang import KeptWatch
from holdfast_controller.core.outbox import OutboxEntry
from holdfast_controller.core.step import actions as act
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.enrolment.issued import IssuedCertificates
from holdfast_controller.shell.notify.outbox_store import OutboxStore
from holdfast_controller.shell.secrets.vault import Vault
from holdfast_controller.shell.store import codec, kept_rows, ledger_rows, schema
from holdfast_controller.shell.store.snapshots import heads_of
from holdfast_controller.shell.store.store import Store
from holdfast_controller.shell.web.signed_in import SignedIn

JOB, HELD, KEY = "job-1", "user/ann", b"k" * 32
UNCHECKED = {
    "host_days": "sums for reports, by key; no decision goes by them, and a job's own sums are in its statement",
    "owner_days": "likewise",
    "host_facts": "likewise",
    "answers.number": "only the order in which the oldest go; SQLite finds rows out of order at the start",
    "secrets": "sealed: the seal covers holder, name and value",
}


def signed_in(store: Store) -> SignedIn:
    """Over a store alone."""
    return SignedIn(cast("Driver", SimpleNamespace(store=store, cluster=Cluster())), "dev", cast("Any", None))


def fill(path: Path) -> None:
    """A row or more in each table, each by the code that writes it in a controller."""
    made, _ = opened(path)
    commit(made, records()[:-3])
    state = folded(EVENTS[:-3])
    planned = [*state.schedules.values(), *state.templates.values()]
    stored: list[Any] = [*state.jobs.values(), *state.hosts.values(), *planned, state.people]
    entities = [(codec.name_of(each), codec.dump_entity(each)) for each in stored]
    made.call(made.snapshot, len(EVENTS) - 3, entities, heads_of(state.jobs.values())).result()
    kept: list[act.Kept] = [
        act.KeepAnswer(HELD, "request-1", Answer("digest", JOB)),
        act.ForgetJob("gone-1", purged=True),
        act.KeepWatch(JOB, KeptWatch(1, resting(begin(100.0), 500.0))),
        act.KeepProgress(JOB, ProgressWatch(1)),
        act.KeepSecret(HELD, "token", Vault([KEY], {}).seal(HELD, "token", Secret(b"value"))),
        act.KeepEvidence(JOB, 1, "workerpool0-0", b"evidence", b"samples", b"dumps"),
    ]
    settled = Bookings(statements=[Statement("ended-1", ledger=JobLedger(1_000, 5_000), ended=5_000, ranks=False)])
    made.call(made.commit, records()[-3:], kept, [settled]).result()
    outbox = OutboxStore(made)
    made.call(outbox.open).result()
    made.call(outbox.keep, 3, [OutboxEntry(3, "ops", JOB, "JOB_FAILED", '{"text": "x"}')]).result()
    ann = Identity("dev", Kind.USER, "ann")
    asyncio.run(IssuedCertificates(made).note(ann, 1_700_000_000, "a" * 64, ["b" * 64, "a" * 64]))
    now = time.time()
    browser = Session("5f", "c" * 64, "ann", now, now, "10.0.0.1", "Firefox")
    made.call(signed_in(made)._replace, [browser]).result()
    made.close()


def of_vault(store: Store, _: Cluster) -> list[object]:
    sealed = store.transaction(kept_rows.read_secrets)
    vault = Vault([KEY], sealed)
    return [(owned, vault.open(*owned).reveal()) for owned in sealed if vault.opens(*owned)]


def of_sessions(store: Store, _: Cluster) -> list[object]:
    return list(signed_in(store)._read())


def of_statements(store: Store, _: Cluster) -> list[object]:
    return [store.transaction(lambda database: ledger_rows.read_statement(database, "ended-1"))]


def of_progress(store: Store, _: Cluster) -> list[object]:
    return list(store.transaction(ledger_rows.read_progress).items())


def of_certificates(store: Store, _: Cluster) -> list[object]:
    store.transaction(lambda _: None)
    return list(IssuedCertificates(store)._all().items())


def of_state(store: Store, cluster: Cluster) -> list[object]:
    durable = (cluster.jobs, cluster.hosts, cluster.people, cluster.queue, cluster.requests, cluster.sequence)
    return [durable, store.secret_key(), store.read_types(["JobSubmitted"], 0, 100)]


READERS: dict[str, Callable[[Store, Cluster], list[Any]]] = {
    "meta": of_state,
    "events": of_state,
    "snapshots": of_state,
    "heads": of_state,
    "watches": lambda store, _: list(store.kept_watches().items()),
    "answers": lambda _, cluster: list(cluster.answers.items()),
    "evidence": lambda store, _: store.evidence(JOB, 1),
    "samples": lambda store, _: list(store.attachments(JOB, 1)[0].items()),
    "dumps": lambda store, _: list(store.attachments(JOB, 1)[1].items()),
    "deleted_jobs": lambda _, cluster: ["gone-1" in cluster.purged],
    "progress": of_progress,
    "statements": of_statements,
    "secrets": of_vault,
    "letters": lambda store, _: OutboxStore(store).open()[1],
    "certificates": of_certificates,
    "web_sessions": of_sessions,
}
"""What each table says, as its readers in a controller have it."""
CASES = [
    (table.name, column.name)
    for table in schema.metadata.sorted_tables
    for column in table.columns
    if table.name in READERS and f"{table.name}.{column.name}" not in UNCHECKED
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("state") / "holdfast.db"
    fill(path)
    return path


def test_every_table_has_a_checksum_over_all_its_columns_or_a_reason() -> None:
    tables = schema.metadata.tables
    assert tables.keys() == READERS.keys() | {name for name in UNCHECKED if "." not in name}
    lacking = {name for name, table in tables.items() if "checksum" not in table.columns}
    assert lacking == {name for name in UNCHECKED if "." not in name}


def said(path: Path, table: str) -> list[str]:
    """What a controller that starts finds in the table. Raises ``StoreError``."""
    made, cluster = opened(path)
    try:
        return [repr(each) for each in made.call(READERS[table], made, cluster).result()]
    finally:
        made.close()


def flip(path: Path, table: str, column: str) -> int:
    """Change a bit of one byte, or of a number, in every row; how many rows there are."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        keys = ", ".join(each.name for each in schema.metadata.tables[table].primary_key.columns)
        rows = database.execute(f"SELECT {keys}, {column} FROM {table}").fetchall()
        for *key, value in rows:
            which = " AND ".join(f"{name} IS ?" for name in keys.split(", "))
            for bit in (0, 40):
                with contextlib.suppress(sqlite3.IntegrityError):  # its neighbour has that key
                    changed = (flipped(value, bit), *key)
                    database.execute(f"UPDATE {table} SET {column} = ? WHERE {which}", changed)
                    break
        database.commit()
    return len(rows)


def flipped(value: Any, bit: int = 0) -> Any:
    match value:
        case int():
            return value ^ (1 << bit)
        case float():
            return value + 1.0
        case bytes():
            return bytes([value[0] ^ 1]) + value[1:]
        case _:
            # Where it does least harm to the form: the last digit or letter.
            value = value or "0"
            at = max(index for index, character in enumerate(value) if character.isalnum())
            return value[:at] + chr(ord(value[at]) ^ 1) + value[at + 1 :]


@pytest.mark.parametrize(("table", "column"), CASES)
def test_a_flipped_bit_is_refused_or_costs_its_row_and_never_says_something_else(
    filled: Path, tmp_path: Path, table: str, column: str
) -> None:
    path = tmp_path / "holdfast.db"
    for each in filled.parent.glob("holdfast.db*"):
        shutil.copy(each, tmp_path)
    sound = said(path, table)
    assert sound and "None" not in sound
    assert flip(path, table, column)
    found, refused = [], None
    try:
        found = said(path, table)
    except StoreError as error:
        refused = error
    assert refused is None or refused.fix, "what to do is said"
    assert set(found) - {"None"} < set(sound), "a damaged row was taken for the truth"


def test_a_row_that_is_damaged_is_gone_after_the_next_start_and_the_others_are_kept(
    filled: Path, tmp_path: Path
) -> None:
    path = tmp_path / "holdfast.db"
    for each in filled.parent.glob("holdfast.db*"):
        shutil.copy(each, tmp_path)
    made, _ = opened(path)
    now = time.time()
    other = Session("77", "d" * 64, "bob", now, now, "10.0.0.2", "Chrome")
    made.call(signed_in(made)._replace, [other]).result()
    made.call(OutboxStore(made).keep, 4, [OutboxEntry(4, "ops", "job-2", "JOB_FAILED", "{}")]).result()
    made.close()
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE web_sessions SET user = 'bob' WHERE id = '5f'")
        database.execute("UPDATE letters SET sink = 'opt' WHERE sequence = 3")
        database.commit()
    assert said(path, "web_sessions") == [repr(other)]
    assert len(said(path, "letters")) == 1
    with contextlib.closing(sqlite3.connect(path)) as database:
        left = [
            database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("web_sessions", "letters")
        ]
    assert left == [1, 1]


def test_rows_of_a_store_from_before_are_taken_as_they_are(filled: Path, tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    for each in filled.parent.glob("holdfast.db*"):
        shutil.copy(each, tmp_path)
    new = ("evidence", "samples", "dumps", "letters", "certificates", "web_sessions")
    sound = {table: said(path, table) for table in (*new, "deleted_jobs")}
    with contextlib.closing(sqlite3.connect(path)) as database:
        for table in new:
            database.execute(f"ALTER TABLE {table} DROP COLUMN checksum")
        database.execute("UPDATE deleted_jobs SET checksum = 0")
        database.execute("DROP TABLE heads")
        database.execute("UPDATE alembic_version SET version_num = '0018'")
        database.commit()
    assert {table: said(path, table) for table in sound} == sound
