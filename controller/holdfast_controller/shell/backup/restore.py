"""``holdfast-controller restore FILE``: restores a controller from a backup, where there is none.

Everything is unpacked and checked beside its place first, the log is gone on from beyond every number that the lost
controller can have given out, and only then does anything get its name; the settings last.
"""

from __future__ import annotations

import argparse
import datetime
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

import sqlalchemy as sa

from holdfast._base.plural import count
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.shell.backup import manifest as mf
from holdfast_controller.shell.backup.unpacking import certify, put_in_place, unpacked
from holdfast_controller.shell.base.commands import command
from holdfast_controller.shell.store.schema import web_sessions
from holdfast_controller.shell.store.store import Store


@command
def main(argv: Sequence[str]) -> int:
    """0 when the controller may be started, 1 with a sentence on stderr when not."""
    parser = argparse.ArgumentParser(
        prog="holdfast-controller restore",
        description="Make a controller from a backup, on a machine where there is none. The lost one must be off.",
    )
    parser.add_argument(
        "file", metavar="FILE", help="that holdfast-controller backup has made, or s3://BUCKET/FILE"
    )
    parser.add_argument("--to", type=Path, metavar="DIR", help="for everything [default: where it was]")
    parser.add_argument("--passphrase-file", type=Path, metavar="FILE", help="instead of asking for it")
    parser.add_argument("--ca-key", type=Path, metavar="FILE", help="for a backup without keys: the CA's key")
    parser.add_argument(
        "--advertise", metavar="HOST", help="the name under which others reach this machine, if it is another one"
    )
    options = parser.parse_args(argv)
    done, cluster, targets = restore(
        options.file, options.to, options.passphrase_file, options.ca_key, options.advertise
    )
    taken = datetime.datetime.fromtimestamp(done.taken_at).astimezone()
    settings = tomllib.loads(targets.settings.read_text())
    admins = settings.get("admins") or ["NAME"]
    move = _MOVE.format(settings=targets.settings) if settings.get("database_url") else ""
    people = ", ".join(sorted(cluster.people.roles)) or "none"
    going = sum(not job.terminal for job in cluster.jobs.heads())
    print(  # noqa: T201
        _NEXT.format(
            cluster=done.cluster,
            taken=f"{taken:%Y-%m-%d %H:%M:%S}",
            jobs=count(len(cluster.jobs), "job"),
            going=going,
            hosts=count(len(cluster.hosts), "host"),
            people=people,
            settings=targets.settings,
            move=move,
            admin=admins[0],
        )
    )
    return 0


def restore(
    file: Path | str,
    to: Path | None = None,
    passphrase_file: Path | None = None,
    ca_key: Path | None = None,
    advertise: str | None = None,
) -> tuple[mf.Manifest, Cluster, mf.Layout]:
    """See the module. Returns what was restored, as it stands now, and where. Raises ``HoldfastError``."""
    with unpacked(file, to, passphrase_file, advertise, bundles_may_be_there=False) as parts:
        settings = parts.settings()
        certify(parts, settings, ca_key)
        cluster = _begin_anew(parts.staging / mf.STORE, parts.done)
        put_in_place(parts, settings)
    return parts.done, cluster, parts.targets


def _begin_anew(database: Path, done: mf.Manifest) -> Cluster:
    """Read the log, which proves it whole, and go on beyond what the lost controller can have written."""
    store = Store(database)
    try:
        store.call(store.open).result()
        store.call(_sign_out, store).result()
        return store.call(store.continue_from_backup, Wall(time.time()), Wall(done.taken_at)).result()
    finally:
        store.close()


def _sign_out(store: Store) -> None:
    """Forget browser sessions: one that was ended since the backup must not come back."""
    store.transaction(lambda database: database.execute(sa.delete(web_sessions)))


_MOVE = """Move the log to an empty database, and name it in the settings, as this says:
   holdfast-controller move-store --to URL --config {settings}
   """
_NEXT = """The cluster {cluster} is back as it was at {taken}: {jobs}, {going} going on, {hosts}.

1. Be sure that the lost controller is off and stays so.
2. {move}Start this one:                holdfast-controller --config {settings}
3. See what hosts say they run:   holdfast host list       and what jobs wait for: holdfast ps
4. Check who may do what; rights that were taken away since the backup are back: holdfast user list
   Users now: {people}
5. Without your own files:        holdfast-controller admin {admin} --config {settings}"""
