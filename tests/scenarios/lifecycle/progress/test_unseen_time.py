"""A job's ledger while one of its hosts is silent."""

from __future__ import annotations

from tests.scenarios.lifecycle.words import situations

from holdfast_controller.core.goodput.tape import milliseconds
from holdfast_controller.core.goodput.view import as_of_now, totals, unheard
from holdfast_controller.core.model.clock import Wall


def test_the_ledger_calls_unseen_what_a_silent_host_does() -> None:
    heard, silent = situations.relaunched(), situations.host_silent()
    assert unheard(heard.cluster, heard.cluster.jobs["a"]) == {}
    job = silent.cluster.jobs["a"]
    since = unheard(silent.cluster, job)
    assert list(since) == ["host-1"]
    ledger = as_of_now(job, None, milliseconds(Wall(silent.wall)), since)
    assert ledger is not None
    unseen = sum(ms for key, ms in totals(ledger).items() if key.split("|")[1:] == ["unseen", "SILENT_HOST"])
    (seat,) = {seat for tape in ledger.live for seat in tape.members.values() if seat.host == "host-1"}
    assert unseen == seat.weight * (ledger.clock - since["host-1"]) > 0
