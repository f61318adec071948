"""Failures of hosts as people read them."""

from __future__ import annotations

import csv
import io

from holdfast._base.proto_values import duration, timestamp
from holdfast._sdk import json_view
from holdfast.cli.hosts.host_tables import page
from holdfast.cli.jobs.goodput import _host_csv
from holdfast.cli.kit.reliability import rows
from holdfast.v1 import cluster_pb2, host_pb2

DAY = 86_400.0
NOW = 1_795_233_600.0


def known(failures: int, *, lemon: bool = False, repairs: int = 0) -> host_pb2.Reliability:
    found = host_pb2.Reliability(
        since=timestamp(NOW - 40 * DAY), in_service=duration(36 * DAY), failures=failures, lemon=lemon
    )
    found.mtbf_low.CopyFrom(duration(5 * DAY))
    if failures:
        found.kinds["lost"] = failures
        found.mtbf.CopyFrom(duration(12 * DAY))
        found.mtbf_high.CopyFrom(duration(40 * DAY))
    if repairs:
        found.repairs = repairs
        found.mttr.CopyFrom(duration(2_460))
        found.mttr_low.CopyFrom(duration(1_020))
        found.mttr_high.CopyFrom(duration(7_800))
    if lemon:
        found.ratio, found.ratio_low, found.surprise = 6.04, 2.31, 17.6
    return found


def lines(found: host_pb2.Reliability) -> list[str]:
    host = host_pb2.Host(name="gpu-07", reliability=found)
    return [
        line.removeprefix("  fails     ")
        for line in page(host, NOW, wide=False, width=200, colour=False)
        if "fails  " in line
    ]


def test_a_page_says_how_often_a_host_fails_with_intervals() -> None:
    counted, times = lines(known(3, repairs=2))
    assert counted.startswith("3 failures in 36d of service since ") and counted.endswith(": 3 lost")
    assert times == "MTBF 12d (5d-40d), MTTR 41m (17m-2h)"


def test_without_a_failure_the_page_has_the_lower_bound() -> None:
    counted, times = lines(known(0))
    assert counted.startswith("no failures in 36d of service since ")
    assert times == "MTBF > 5d"


def test_a_lemon_is_told_with_the_bound_and_the_command_that_ends_it() -> None:
    assert lines(known(3, lemon=True))[-1] == (
        "a lemon: it fails 6.0 times as often as the others, at least 2.3 times (surprise 18 bits);"
        " after a repair: holdfast host uncordon gpu-07 --repaired"
    )


def test_a_host_that_surely_fails_more_often_is_told_to_come_after_its_equals() -> None:
    found = known(3)
    found.ratio, found.ratio_low = 2.04, 1.31
    assert lines(found)[-1] == (
        "fails 2.0 times as often as the others, at least 1.3 times: of equal hosts the others get new work first"
    )
    found.ratio_low = 0.9
    assert lines(found)[-1].startswith("MTBF"), "which may well be chance"


def test_an_older_controller_tells_nothing_of_it() -> None:
    assert lines(host_pb2.Reliability()) == []


def sums() -> cluster_pb2.SumGoodputResponse:
    found = cluster_pb2.SumGoodputResponse()
    found.rows.add(name="gpu-07", model="H100", category="train", payer="job", ms=3_600_000)
    for name, reliability in (("gpu-07", known(3, lemon=True, repairs=2)), ("gpu-08", known(0))):
        found.hosts.add(name=name, reliability=reliability)
    return found


def test_the_table_has_lemons_first() -> None:
    table = rows(reversed(sums().hosts))
    assert [row[0] for row in table] == ["gpu-07", "gpu-08"]
    assert table[0][1:5] == ["3", "12d (5d-40d)", "41m (17m-2h)", "36d"]
    assert table[1][1:] == ["0", "> 5d", "-", "36d", ""]


def test_csv_has_the_hosts_figures_in_each_row_and_a_row_for_idle_hosts() -> None:
    first, idle = csv.DictReader(io.StringIO(_host_csv(sums())))
    assert (first["host"], first["hours"], first["failures"], first["lemon"]) == ("gpu-07", "1.0", "3", "yes")
    assert (first["mtbf_hours"], first["mttr_hours"]) == ("288.0", str(2460 / 3600))
    assert (idle["host"], idle["category"], idle["mtbf_hours"], idle["mtbf_low_hours"]) == (
        "gpu-08",
        "",
        "",
        "120.0",
    )


def test_json_has_them_in_seconds() -> None:
    shown = json_view.goodput_sums("host", sums())["hosts"]
    assert [each["host"] for each in shown] == ["gpu-07", "gpu-08"]
    assert (shown[0]["mtbf"], shown[0]["lemon"], shown[1]["mtbf"]) == (12 * DAY, True, None)
    assert "reliability" not in json_view.host(host_pb2.Host(name="h"))
    assert json_view.host(host_pb2.Host(name="h", reliability=known(3)))["reliability"]["mtbf"] == 12 * DAY
    assert "hosts" not in json_view.goodput_sums("project", sums())


def test_a_hosts_mig_instances_are_counted_by_profile() -> None:
    host = host_pb2.Host(name="gpu-07", state=host_pb2.HOST_STATE_READY)
    for profile, job in (("1g.10gb", ""), ("1g.10gb", "train-x"), ("3g.40gb", "")):
        host.inventory.gpus.add(model=f"NVIDIA H100 80GB HBM3 MIG {profile}", job_id=job)
    host.inventory.gpus.add(model="NVIDIA H100 80GB HBM3")
    shown = list(page(host, NOW, wide=False, width=None, colour=False))
    assert "  MIG       1/2 1g.10gb free, 1/1 3g.40gb free" in shown
    del host.inventory.gpus[:3]
    assert not any("MIG" in line for line in page(host, NOW, wide=False, width=None, colour=False))


def test_a_hosts_machine_types_are_named() -> None:
    host = host_pb2.Host(name="gpu-07", machine_types=["a3-high", "any-h100"])
    assert "  type      a3-high, any-h100" in page(host, NOW, wide=False, width=None, colour=False)
    assert json_view.host(host)["machineTypes"] == ["a3-high", "any-h100"]
