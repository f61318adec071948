"""Has the store drop what it no longer needs, bit by bit, beside its commits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from holdfast._daemon import log
from holdfast_controller.shell.driver import Driver, now
from holdfast_controller.shell.store import high_water, sweep
from holdfast_controller.shell.store.stored_bytes import ROW_BYTES

EVERY_S = 3_600.0
SOON_S = 2.0
"""After a job's deletion: others are often deleted along with it."""
POSITION_EVERY_S, TOUCH_EVERY_S = 1.0, 5.0
PAUSE_S = 0.05
"""Between two portions, each of which keeps commits waiting for some milliseconds."""


async def upkeep(driver: Driver, history_s: Callable[[], float]) -> None:
    """Look every hour, and soon after a job was deleted, until cancelled.

    ``history_s`` gives the age up to which events of hosts, users and the cluster are kept; 0 for ever.
    """
    store = driver.store
    while True:
        if await asyncio.wrap_future(store.call(store.sweep, _before(driver, history_s()))):
            await asyncio.sleep(PAUSE_S)
            continue
        if await asyncio.wrap_future(store.call(store.waits_for_snapshot)):
            driver.snapshot_soon()
            await asyncio.sleep(SOON_S)
            continue
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EVERY_S):
                await driver.to_sweep.wait()
                driver.to_sweep.clear()
                await asyncio.sleep(SOON_S)


async def count_stored(driver: Driver) -> None:
    """Add up what jobs take of the disk as of now, and correct that every hour, until cancelled."""
    store, stored = driver.store, driver.stored
    upto, after = stored.counted_from, 0

    def events_after(sequence: int) -> tuple[int, list[tuple[str, int, int]]]:
        return store.transaction(lambda database: sweep.event_sizes(database, sequence, upto))

    def evidence() -> dict[str, int]:
        return store.transaction(sweep.evidence_sizes)

    while True:
        after, found = await asyncio.wrap_future(store.call(events_after, after))
        for entity, events, characters in found:
            if entity.startswith("job/"):
                stored.add(entity.removeprefix("job/"), events=characters + events * ROW_BYTES)
        if not found:
            break
        await asyncio.sleep(PAUSE_S)
    while True:
        stored.set_evidence(await asyncio.wrap_future(store.call(evidence)))
        await asyncio.sleep(EVERY_S)


async def keep_leading(driver: Driver) -> None:
    """Write to the store twice in a second, until cancelled: another controller takes over from one that doesn't."""
    while True:
        await driver.confirmed()


async def note_position(driver: Driver) -> None:
    """Write down beside the store how far it has come, about a second behind the commits, until cancelled."""
    store, written, failed = driver.store, None, False
    touched_at = 0.0
    while True:
        reached, time = store.reached, now()
        if reached != written or time.mono - touched_at >= TOUCH_EVERY_S:
            try:
                if reached != written:
                    await asyncio.to_thread(high_water.write, store.path, reached)
                else:
                    await asyncio.to_thread(high_water.touch, store.path)
                written, failed, touched_at = reached, False, time.mono
            except OSError as error:
                if not failed:
                    log.warning("store.position_unwritten", path=str(store.path), error=error.strerror)
                failed = True
        await asyncio.sleep(POSITION_EVERY_S)


def _before(driver: Driver, history_s: float) -> float:
    """Events before this moment are dropped; none while the clock is not known to be right."""
    trust, time = driver.cluster.clock_trust, now()
    trusted = trust.ahead_s is not None and time.mono >= trust.again_at
    return time.wall - history_s if history_s and trusted else 0.0
