"""``goodput --verify`` on a real log: the ledger is computed again from the job's events and from every restore."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.controller.ledger.goodput_story import Story

from holdfast_controller.core import events as ev
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.services import goodput
from holdfast_controller.shell.store import codec
from holdfast_controller.shell.store.records import Record
from holdfast_controller.shell.store.store import Store

PAGE = 3


class Written(Story):
    """A story whose events are kept, to be written to a log."""

    def __init__(self) -> None:
        self.events: list[ev.Event] = []
        super().__init__()

    def take(self, at_s: float, kind: Any, **fields: Any) -> None:
        super().take(at_s, kind, **fields)
        self.events.append(kind(at=self.wall(at_s), **fields))


class Log:
    """The part of a driver that reads the log."""

    def __init__(self, path: Path, events: list[ev.Event]) -> None:
        self.store = Store(path)
        self.store.call(self.store.open).result()
        records = [
            Record(
                number,
                codec.entity_of(event),
                codec.stored_name(type(event)),
                codec.VERSIONS[codec.stored_name(type(event))],
                event.at,
                "",
                "x",
                codec.dump_event(event),
            )
            for number, event in enumerate(events, self.store.sequence + 1)
        ]
        self.store.call(self.store.commit, records).result()

        self.cluster = Cluster()

    async def settled(self) -> None:
        """All is in the log from the beginning."""

    history = Driver.history


@pytest.mark.parametrize("others", [0, 2 * PAGE])
async def test_a_restore_beyond_the_first_page_of_the_cluster_s_history_is_taken_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    monkeypatch.setattr(goodput, "EVENTS_AT_ONCE", PAGE)
    story = Written()
    story.run()
    for number in range(others):
        story.take(20 + number, ev.ControllerCheckPassed, check=f"disk.{number}")
    story.take(300, ev.ClusterRestored, sequence=10_000, taken_at=story.wall(100))
    story.of_job(310, ev.JobCleared, reason="")
    story.end(410)
    kept = story.oracle.statements["a"].ledger.sums
    assert any("CONTROLLER_RESTORED" in key for key in kept), "the restore is in the ledger"
    log = Log(tmp_path / "holdfast.db", story.events)
    job = story.oracle.cluster.jobs["a"]
    driver = cast(Driver, log)
    try:
        verify = goodput._verify
        assert await verify(driver, job, log.store.sequence, kept) == ""
        wrong = {key: ms + 1 for key, ms in kept.items()}
        assert "sums differ" in await verify(driver, job, log.store.sequence, wrong)
    finally:
        log.store.close()


async def test_a_job_whose_statement_is_gone_does_not_agree_with_the_log(tmp_path: Path) -> None:
    story = Written()
    story.run()
    story.end(410)
    log = Log(tmp_path / "holdfast.db", story.events)
    job, driver = story.oracle.cluster.jobs["a"], cast(Driver, log)
    try:
        assert "sums differ" in (await goodput.job_goodput(driver, job, verify=True)).verified
        assert (await goodput.job_goodput(driver, job, verify=False)).verified == ""
        never = Written()
        never.of_job(20, ev.JobEnding, outcome=JobState.CANCELLED)
        never.of_job(20, ev.JobEnded, state=JobState.CANCELLED)
        other = Log(tmp_path / "other.db", never.events)
        driver = cast(Driver, other)
        assert (await goodput.job_goodput(driver, never.oracle.cluster.jobs["a"], verify=True)).verified == ""
        other.store.close()
    finally:
        log.store.close()
