"""``holdfast-controller accept-loss``: goes on with a store that has lost its newest events."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from holdfast._base import config
from holdfast._daemon.instance_lock import only_one
from holdfast.errors import WrongState
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.shell.backup.alone import store_alone
from holdfast_controller.shell.base.commands import add_settings, command
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.store import high_water
from holdfast_controller.shell.store.store import Store


@command
def main(argv: Sequence[str]) -> int:
    """0 when the controller may be started, 1 with a sentence on stderr when not."""
    parser = argparse.ArgumentParser(
        prog="holdfast-controller accept-loss",
        description="Go on with a store whose newest events are lost: hosts report what they run, as after a restore.",
    )
    add_settings(parser)
    parser.add_argument(
        "--set-back",
        action="store_true",
        help="the store looks whole, but hosts have obeyed a later epoch: an older copy was put in its place",
    )
    options = parser.parse_args(argv)
    settings = config.load(ControllerConfig, options.config)
    with only_one(settings.state_dir, "controller", wait_s=0.0):
        store = store_alone(settings)
        lost = accept(store, set_back=options.set_back)
    without = f"{lost:,} lost events" if lost else "whatever came after it"
    print(f"{store.engine.name} goes on without {without}. Start the controller.")  # noqa: T201
    return 0


def accept(store: Store, *, set_back: bool = False) -> int:
    """Have the store go on beyond all that it may have lost; how many events it lacks, 0 where that is not known.

    Raises ``HoldfastError``, also for a store that looks whole, unless it is known to be ``set_back``.
    """
    reached, name = high_water.read(store.path), store.engine.name
    try:
        cluster = store.call(store.open, accept_loss=True).result()
        found = store.sequence
        if not found:
            fix = f"Restore a backup; or, for a new cluster, remove {high_water.path_of(store.path)}."
            raise WrongState(f"The store {name} is empty: there is nothing to go on with.", fix=fix)
        missing = max(reached.sequence - found, 0) if reached is not None else 0
        if not missing and not set_back:
            raise WrongState(
                f"The store {name} has not lost its end.",
                fix="Start the controller. If it then turns hosts away because they have obeyed a later epoch, an older"
                " copy of the store was put in its place: holdfast-controller accept-loss --set-back",
            )
        newest = max((job.updated_at for job in cluster.jobs.heads()), default=Wall(time.time()))
        store.call(store.continue_from_backup, Wall(time.time()), newest).result()
        return missing
    finally:
        store.close()
