"""Servers of PostgreSQL that are there and can't be used: full, read-only, another cluster's, newer, not trusted.

Each is reported in a sentence that says what to do, and what was committed is there afterwards.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.controller.store.places import InPostgres
from tests.integration.controller.store.test_postgresql import opened
from tests.integration.controller.store.test_store import commit, folded, record, records, same
from tests.support.postgres import running
from tests.unit.controller.examples import EVENTS

from holdfast.errors import ConfigError, StoreError
from holdfast_controller.shell.store.faults import Away, Damaged
from holdfast_controller.shell.store.store import Store

pytestmark = pytest.mark.require("postgres")


def commit_until_refused(store: Store) -> None:
    """A changed setting arrives when the server's process looks at it."""
    while True:
        commit(store, [])


def commit_more(store: Store) -> None:
    """Each is a page of the server's, and more."""
    while True:
        commit(store, [record(store.sequence + 1, EVENTS[0], "long " * 4000)])


def test_a_server_without_a_free_connection_is_named_with_its_setting(made: InPostgres) -> None:
    made.server.sql("ALTER DATABASE holdfast CONNECTION LIMIT 0")
    made.server.sql("CREATE ROLE plain LOGIN")
    as_plain = made.server.address("holdfast").replace(
        "user=holdfast", "user=plain"
    )  # limits don't hold for admins
    try:
        from holdfast_controller.shell.store.databases.postgresql.database import PostgresDatabase

        store = Store(PostgresDatabase(as_plain, made.path))
        with pytest.raises(StoreError, match=r"too many connections.*Raise the server's max_connections"):
            store.call(store.open).result()
        store.close()
    finally:
        made.server.sql("DROP ROLE plain")
        made.server.sql("ALTER DATABASE holdfast CONNECTION LIMIT -1")


def test_a_controller_whose_server_turns_read_only_ends_and_nothing_is_lost_or_there_twice(
    made: InPostgres,
) -> None:
    store, _ = opened(made)
    commit(store, records()[:5])
    made.server.sql("ALTER SYSTEM SET default_transaction_read_only = on")
    made.server.sql("SELECT pg_reload_conf()")
    try:
        with pytest.raises(StoreError, match=r"read-only transaction.*Name the server that takes writes"):
            commit_until_refused(store)
        store.close()
        with pytest.raises(StoreError, match=r"read-only.*takes writes"):
            opened(made)
    finally:
        settings = made.server.folder / "data/postgresql.auto.conf"
        settings.write_text(settings.read_text().replace("default_transaction_read_only", "#"))
        made.server.sql("SELECT pg_reload_conf()")
        while made.sql("SHOW default_transaction_read_only") != [("off",)]:
            time.sleep(0.01)
    again, cluster = opened(made)
    assert same(cluster, folded(EVENTS[:5]))
    commit(again, records()[5:])
    again.close()


@pytest.mark.require("loop")
def test_a_controller_whose_server_has_no_room_ends_and_goes_on_where_it_was_once_there_is(
    made: InPostgres,
) -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-full-", dir="/tmp") as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", folder], check=True)
        owner = (made.server.folder / "data").stat()
        os.chown(folder, owner.st_uid, owner.st_gid)
        try:
            made.server.sql(f"CREATE TABLESPACE small LOCATION '{folder}'")
            made.server.sql("DROP DATABASE holdfast")
            made.server.sql("CREATE DATABASE holdfast TABLESPACE small")
            store, _ = opened(made)
            commit(store, records())
            filler = Path(folder) / "filler"
            with contextlib.suppress(OSError), filler.open("wb") as file:
                while True:
                    file.write(bytes(4096))
                    file.flush()
            with pytest.raises(StoreError, match=r"No space left on device.*Make room on the server's disk"):
                commit_more(store)
            acknowledged = store.sequence
            store.close()
            filler.unlink()
            again, cluster = opened(made)
            assert cluster.sequence == acknowledged, (
                "nothing that was acknowledged is missing, and nothing else is there"
            )
            again.close()
        finally:
            made.server.sql("DROP DATABASE holdfast WITH (FORCE)")
            made.server.sql("DROP TABLESPACE small")
            subprocess.run(["umount", folder], check=True)
            made.server.sql("CREATE DATABASE holdfast")


def test_the_database_of_another_cluster_is_refused_and_left_as_it_was(made: InPostgres) -> None:
    store, _ = opened(made)
    commit(store, records())
    store.close()
    made.server.sql("CREATE DATABASE another")
    try:
        other = replace(made, database="another", path=made.path.with_name("elsewhere") / "postgresql")
        theirs, _ = opened(other)
        commit(theirs, records()[:3])
        theirs.close()
        wrong = replace(made, database="another")
        with pytest.raises(Damaged, match=r"is another cluster's than the one that was here\. Put the right"):
            opened(wrong)
        assert other.sql("SELECT count(*), max(sequence) FROM events") == [(3, 3)]
        again, cluster = opened(other)
        assert same(cluster, folded(EVENTS[:3]))
        again.close()
    finally:
        made.server.sql("DROP DATABASE another WITH (FORCE)")


def test_a_database_of_a_newer_version_is_refused_and_left_as_it_was(made: InPostgres) -> None:
    store, _ = opened(made)
    commit(store, records())
    store.close()
    made.sql("UPDATE alembic_version SET version_num = '9999'")
    before = made.sql("SELECT key, value FROM meta ORDER BY key")
    with pytest.raises(
        StoreError, match=r"written by a newer version \(schema 9999\)\. Start the newer controller"
    ):
        opened(made)
    assert made.sql("SELECT key, value FROM meta ORDER BY key") == before


def test_a_user_whose_password_is_wrong_is_named_with_what_to_correct(made: InPostgres) -> None:
    made.server.sql("CREATE ROLE stranger LOGIN")
    hba = made.server.folder / "data/pg_hba.conf"
    trusting = hba.read_text()
    hba.write_text(f"local all stranger scram-sha-256\n{trusting}")
    made.server.sql("SELECT pg_reload_conf()")
    from holdfast_controller.shell.store.databases.postgresql.address import dial

    try:
        address = made.server.address("holdfast").replace("user=holdfast", "user=stranger") + " password=guess"
        with pytest.raises(ConfigError, match=r"can't be reached: .*authentication failed") as refused:
            dial(address)
        assert "guess" not in str(refused.value)
    finally:
        hba.write_text(trusting)
        made.server.sql("SELECT pg_reload_conf()")
        made.server.sql("DROP ROLE stranger")


def test_a_server_whose_certificate_another_ca_has_signed_is_not_believed(tmp_path: Path) -> None:
    from holdfast_controller.shell.store.databases.postgresql.address import dial
    from holdfast_controller.shell.store.databases.postgresql.database import PostgresDatabase

    with running() as tls:
        for name in ("server", "other"):
            files = ("-keyout", str(tls.folder / f"{name}.key"), "-out", str(tls.folder / f"{name}.pem"))
            make = [
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-subj",
                "/CN=localhost",
                "-days",
                "2",
            ]
            subprocess.run(
                [*make, "-addext", "subjectAltName=DNS:localhost", *files], check=True, capture_output=True
            )
        owner = (tls.folder / "data").stat()
        os.chown(tls.folder / "server.key", owner.st_uid, owner.st_gid)
        os.chmod(tls.folder / "server.key", 0o600)
        for name, value in (("ssl", "on"), ("ssl_cert_file", "server.pem"), ("ssl_key_file", "server.key")):
            where = value if name == "ssl" else f"{tls.folder}/{value}"
            tls.sql(f"ALTER SYSTEM SET {name} = '{where}'")
        tls.sql("ALTER SYSTEM SET listen_addresses = 'localhost'")
        tls.stop()
        tls.start()
        verified = "host=localhost user=holdfast dbname=postgres sslmode=verify-full sslrootcert="
        dial(f"{verified}{tls.folder}/server.pem")
        with pytest.raises(ConfigError, match=r"can't be reached: .*certificate verify failed"):
            dial(f"{verified}{tls.folder}/other.pem")
        store = Store(PostgresDatabase(f"{verified}{tls.folder}/other.pem", tmp_path / "postgresql"))
        with pytest.raises(Away, match="certificate verify failed"):
            store.call(store.open).result()
        store.close()
