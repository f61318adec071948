"""``holdfast-controller move-store``: moves the store of a stopped controller to PostgreSQL, or back to a file.

All rows are copied in one transaction and compared; the old place then says that it is one, and no controller starts
from it any more.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

import sqlalchemy as sa

from holdfast._base import config, extras
from holdfast._daemon.instance_lock import only_one
from holdfast.errors import WrongState
from holdfast_controller.shell.backup.alone import store_alone
from holdfast_controller.shell.base.commands import add_settings, command
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.store import copying, high_water, meta_rows
from holdfast_controller.shell.store.faults import failing
from holdfast_controller.shell.store.schema import meta, metadata
from holdfast_controller.shell.store.store import Store, store_at


@command
def main(argv: Sequence[str]) -> int:
    """0 when the store is moved, 1 with a sentence on stderr when it is where it was."""
    parser = argparse.ArgumentParser(
        prog="holdfast-controller move-store",
        description="Move the event log and all beside it to a database of PostgreSQL, or back. The controller is off.",
    )
    add_settings(parser)
    to = parser.add_mutually_exclusive_group(required=True)
    to.add_argument("--to", metavar="URL", help="an empty database of PostgreSQL, as libpq takes it")
    to.add_argument("--to-file", action="store_true", help="from database_url to the file in state_dir")
    options = parser.parse_args(argv)
    settings = config.load(ControllerConfig, options.config)
    with only_one(settings.state_dir, "controller", wait_s=0.0):
        if options.to_file:
            rows, place = to_file(settings), str(settings.database)
            then = f"Now take database_url out of {options.config}, and start the controller."
        else:
            extras.require("move-store", "postgresql")
            rows, place = to_postgres(settings, options.to)
            then = f"Now set database_url in {options.config} to that address, and start the controller."
    print(f"The store is in {place}: {rows:,} rows, each compared. {then}")  # noqa: T201
    return 0


def to_postgres(settings: ControllerConfig, url: str) -> tuple[int, str]:
    """Move the file's store to an empty database; the number of rows, and what the database is called."""
    file = settings.database
    if not file.exists():
        raise WrongState(f"There is no store {file}.", fix="Name the right --config.")
    source, target = Store(file), store_at(file, url)
    place = target.engine.name
    try:
        source.call(source.open).result()
        with failing(place, "cannot be used"):
            target.engine.connect()
            database = target.engine.connection
            with database.begin():
                if database.execute(sa.select(meta)).first() is not None:
                    raise WrongState(f"The {place} holds a store already.", fix="Make an empty one: createdb.")
                counts = source.transaction(lambda rows: copying.copy_rows(rows, database))
                for of_another_place in ("leader", meta_rows.SERVER, meta_rows.SETTINGS):
                    meta_rows.write(database, of_another_place, "")
        high_water.write(target.path, source.reached)
    finally:
        target.engine.close(0)
        source.close()
    file.rename(high_water.moved_name(file))
    high_water.path_of(file).unlink(missing_ok=True)
    return sum(counts.values()), place


def to_file(settings: ControllerConfig) -> int:
    """Move the store from ``database_url`` to the file; the number of rows."""
    file = settings.database
    if not settings.database_url:
        raise WrongState("The store is in a file already: no database_url is set.", fix="Write --to URL.")
    if file.exists():
        raise WrongState(f"There is a store {file} already.", fix="Move it away.")
    source = store_alone(settings)
    fresh = file.with_name(f".{file.name}.moving")
    try:
        fresh.unlink(missing_ok=True)
        source.call(source.open).result()
        source.call(source.copy_to, fresh).result()

        def marked(database: sa.Connection) -> int:
            meta_rows.write(database, "moved_to", f"{os.uname().nodename}:{file}")
            tables = metadata.sorted_tables
            count = sum(database.execute(sa.select(sa.func.count()).select_from(t)).scalar_one() for t in tables)
            if fresh.exists():  # it is in place when this is done again
                # Within the transaction: while a copy is made, another controller may have taken the store over.
                high_water.write(file, source.reached)
                fresh.rename(file)
            return count

        found = int(source.call(source.transaction, marked).result()) - 1
        high_water.moved_name(file).unlink(missing_ok=True)
        return found
    finally:
        fresh.unlink(missing_ok=True)
        source.close()
