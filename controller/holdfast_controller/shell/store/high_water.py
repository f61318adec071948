"""How far the store had come, in a small file beside it: a store that ends before that has lost its end.

SQLite takes a write-ahead log that was cut, removed or swapped for one that was never written further, and says
nothing. So the position of the newest durable event is written down apart, about a second behind the commits: a
commit costs nothing more, and what was lost of the last second is not noticed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from dataclasses import asdict
from pathlib import Path

from holdfast._base.dataclass import dataclass
from holdfast._daemon import log
from holdfast_controller.shell.store.faults import RESTORE, Damaged


class Behind(Damaged):
    """The store lacks its end."""


CHECKED_BYTES = 1 << 30
"""A larger database is not read through at each start: that takes about two seconds for each GiB."""

LOOKED_UP = ("meta", "snapshots", "answers", "deleted_jobs")
"""Tables whose indexes are compared with them at each start; those of the log would take six times as long."""


@dataclass(frozen=True, slots=True)
class HighWater:
    """``cluster`` is a digest that tells one cluster's store from another's."""

    cluster: str
    epoch: int
    sequence: int


def path_of(store: Path) -> Path:
    """The file beside a store."""
    return store.with_name(f"{store.name}.position")


def moved_name(store: Path) -> Path:
    """The name that a store's file gets once the store was moved to PostgreSQL."""
    return store.with_name(f"{store.name}.moved")


def cluster_of(secret_key: str | None) -> str:
    """A digest of the cluster's secret, which every store of it has."""
    return hashlib.sha256(f"position {secret_key}".encode()).hexdigest()[:16] if secret_key else ""


def read(store: Path) -> HighWater | None:
    """The position that was written down; None if there is none, or none that can be read."""
    try:
        found = json.loads(path_of(store).read_bytes())
        return HighWater(str(found["cluster"]), int(found["epoch"]), int(found["sequence"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("store.position_unreadable", path=str(path_of(store)), error=str(error))
        return None


def write(store: Path, reached: HighWater) -> None:
    """Write it down, durably. Raises ``OSError``."""
    path = path_of(store)
    fresh = path.with_name(f".{path.name}.new")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, json.dumps(asdict(reached)).encode() + b"\n")
        os.fsync(handle)
    finally:
        os.close(handle)
    fresh.replace(path)


def touch(store: Path) -> None:
    """Note that the store is in use now, without making that durable. Raises ``OSError``."""
    os.utime(path_of(store))


def last_used(store: Path) -> float:
    """When a controller last used the store, wall clock, to some seconds; 0 where that is not known."""
    try:
        return path_of(store).stat().st_mtime
    except OSError:
        return 0.0


def check(store: Path, name: str, found: HighWater) -> None:
    """Raises ``Behind`` where the store is behind what was written down, ``Damaged`` where it is another cluster's."""
    reached = read(store)
    if reached is None:
        return
    if reached.cluster and found.cluster and reached.cluster != found.cluster:
        raise Damaged(
            f"The store {name} is another cluster's than the one that was here.",
            fix=f"Put the right file back. If it is to be the store from now on, remove {path_of(store)}.",
        )
    if (found.epoch, found.sequence) >= (reached.epoch, reached.sequence):
        return
    missing = reached.sequence - found.sequence
    lost = (
        f"{missing:,} events that were acknowledged are missing" if missing > 0 else "its newest terms are missing"
    )
    raise Behind(
        f"The store {name} ends at event {found.sequence:,} and had reached {reached.sequence:,}: {lost}. Its"
        " write-ahead log (-wal) was cut or removed, or an older file was put in its place.",
        fix="Put the files back as they were, or restore a newer backup. To go on without those events, and have hosts"
        " report what they run as after a restore: holdfast-controller accept-loss",
    )


def check_presence(store: Path, made_after: Path, url: str = "") -> None:
    """Raises ``Damaged`` for a store that is gone, though a file that is only made once there is one is still there.

    Also for one that is in another place than the settings say: in a file, or (``url``) in PostgreSQL.
    """
    if url and store.exists():
        raise Damaged(
            f"The store is in {store}, and database_url names another place.",
            fix="Move it there: holdfast-controller move-store. To leave it here, take database_url out.",
        )
    if url or store.exists() or not made_after.exists():
        return
    if (moved := moved_name(store)).exists():
        raise Damaged(
            f"The store was moved to a database of PostgreSQL; {moved} is what it was before.",
            fix="Set database_url in controller.toml, as holdfast-controller move-store has said.",
        )
    raise Damaged(
        f"The store {store} is gone, but {made_after} is there: this is not a new cluster's directory.",
        fix=f"{RESTORE} For a new cluster that knows no job and no host of before, move {store.parent} away.",
    )


def quick_check(database: sqlite3.Connection, store: Path) -> None:
    """Raises ``Damaged`` for pages that contradict each other, in a store that isn't too large to look.

    Of what a start looks up by key, also for an index that has lost a row: it would count as never written.
    """
    with contextlib.suppress(FileNotFoundError):
        if store.stat().st_size > CHECKED_BYTES:
            return
    known = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for check in ("quick_check(1)", *(f"integrity_check({name})" for name in LOOKED_UP if name in known)):
        (found,) = database.execute(f"PRAGMA {check}").fetchone()
        if found != "ok":
            raise Damaged(f"The store {store} is damaged: {' '.join(found.split())}.", fix=RESTORE)
