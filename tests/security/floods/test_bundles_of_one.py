"""One user's packaged code leaves room for that of others, whatever that user does to have it kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.controller.calls.test_bundles import MIB, Clock, put, there

from holdfast.errors import StorageFull
from holdfast_controller.shell.bundles.bundle_store import BundleConfig, BundleStore

MINUTE_S = 60.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


def fill(store: BundleStore, clock: Clock, size: int) -> list[str]:
    """What mallory gets in, who asks for all of it again and again, so that none counts as unused."""
    mine: list[str] = []
    for number in range(6):
        mine.append(put(store, number.to_bytes(4) * (size // 4), owner="mallory"))
        clock.now += MINUTE_S
        for digest in mine:
            store.use(digest, "mallory")
    with pytest.raises(StorageFull, match=r"mallory has 6 bundles .* 75% of the room"):
        put(store, b"more" * (size // 4), owner="mallory")
    return mine


@pytest.mark.parametrize(
    ("config", "size"), [(BundleConfig(store_mb=8), MIB), (BundleConfig(store_count=8), 4)], ids=["size", "number"]
)
def test_who_fills_the_store_and_keeps_it_in_use_leaves_a_quarter_to_others(
    tmp_path: Path, clock: Clock, config: BundleConfig, size: int
) -> None:
    store = BundleStore(tmp_path / "b", config, clock)
    mine = fill(store, clock, size)
    theirs = [put(store, name.encode() * (size // 4), owner=name) for name in ("anna", "emil")]
    assert all(there(store, digest) for digest in mine + theirs)


def test_what_was_begun_and_what_jobs_need_count_too(tmp_path: Path, clock: Clock) -> None:
    store = BundleStore(tmp_path / "b", BundleConfig(store_mb=8), clock)
    needed = {put(store, bytes([number]) * MIB, owner="mallory") for number in range(3)}
    for number in range(3):
        upload = store.begin(f"{number:064x}", MIB, 0, "mallory", needed)
        upload.write(b"x" * MIB)
        upload.end()
    clock.now += 60 * MINUTE_S
    with pytest.raises(StorageFull, match="mallory has 3 bundles"):
        store.begin("ab" * 32, MIB, 0, "mallory", needed)
    store.begin("ab" * 32, 2 * MIB, 0, "anna", needed).end()


def test_a_users_own_longest_unused_bundle_gives_way_and_stays_for_others_who_have_it(
    tmp_path: Path, clock: Clock
) -> None:
    store = BundleStore(tmp_path / "b", BundleConfig(store_count=4), clock)
    shared, own = (put(store, data, owner="mallory") for data in (b"1", b"2"))
    put(store, b"1", owner="anna")
    clock.now += 60 * MINUTE_S
    store.use(own, "mallory")
    put(store, b"3", owner="mallory")
    newest = put(store, b"4", owner="mallory")
    assert there(store, newest) and there(store, own)
    store.use(shared, "anna")
    with pytest.raises(Exception, match="There is no bundle"):
        store.use(shared, "mallory")
