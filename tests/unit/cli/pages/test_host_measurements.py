"""Results of active checks on a host's page."""

from __future__ import annotations

from tests.unit.cli.pages.test_host_reliability import NOW

from holdfast._base.proto_values import timestamp
from holdfast._sdk import json_view
from holdfast.cli.hosts.measurements import measured
from holdfast.v1 import host_pb2


def known() -> host_pb2.Measurements:
    found = host_pb2.Measurements(due=host_pb2.MEASUREMENT_REASON_REPEAT, usual={"cpu.hash": 41_000.0})
    found.results.add(
        time=timestamp(NOW - 60),
        outcome=host_pb2.MEASUREMENT_OUTCOME_MEASURED,
        figures={"memory.copy": 1.234, "cpu.hash": 38_123.4, "new.figure": 5.0},
        problem="GPUs: ModuleNotFoundError: No module named 'torch'",
    )
    found.results.add(
        time=timestamp(NOW - 30), outcome=host_pb2.MEASUREMENT_OUTCOME_ERROR, partner="gpu-08", problem="timed out"
    )
    return found


def test_the_newest_result_of_each_kind_is_shown_beside_what_others_have() -> None:
    alone, pair, due = measured(known(), NOW)
    assert alone.partition(": ")[2] == (
        "cpu.hash 38,123 MB/s (others 41,000), memory.copy 1.23 GB/s, new.figure 5;"
        " not measured: GPUs: ModuleNotFoundError: No module named 'torch'"
    )
    assert pair.partition(": ")[2] == "with gpu-08: could not be measured: timed out"
    assert due == "a check is due: it was slower than others"


def test_a_check_that_runs_is_named_and_one_that_gave_way_says_to_whom() -> None:
    found = host_pb2.Measurements(running_job_id="host-check-9", due=host_pb2.MEASUREMENT_REASON_ASKED)
    found.results.add(
        time=timestamp(NOW), outcome=host_pb2.MEASUREMENT_OUTCOME_STOPPED, problem="It gave way to train-1."
    )
    stopped, running = measured(found, NOW)
    assert stopped.endswith("stopped: It gave way to train-1.")
    assert running == "it is being checked by the job host-check-9"
    assert not list(measured(host_pb2.Measurements(), NOW))


def test_scripts_read_what_was_measured_where_one_host_is_asked_for() -> None:
    assert "measurements" not in json_view.host(host_pb2.Host(name="h"))
    view = json_view.host(host_pb2.Host(name="h", measurements=known()))["measurements"]
    assert view["results"][1]["outcome"] == "ERROR" and view["due"] == "REPEAT"
