"""What the web page makes of a host's JSON is what the command line prints."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.pages.test_host_measurements import known as measurements
from tests.unit.cli.pages.test_host_reliability import NOW, known

from holdfast._base.proto_values import timestamp
from holdfast._sdk import json_view
from holdfast.cli.hosts.host_tables import failed_checks, remark, repairs
from holdfast.cli.hosts.measurements import measured
from holdfast.cli.kit import reliability
from holdfast.v1 import host_pb2

WEB = Path(__file__).parents[4] / "web"
LEMON_FIX = " holdfast host uncordon gpu-07 --repaired"
"""A command of its own on the page."""


def hosts() -> list[host_pb2.Host]:
    """One that is well, and others with what may be wrong with one."""
    ill = host_pb2.Host(
        name="gpu-07", cordoned=True, cordon_reason="ib.port: the port is down", reliability=known(3, repairs=2)
    )
    classes = (host_pb2.HEALTH_CLASS_CORDON, host_pb2.HEALTH_CLASS_FAIL, host_pb2.HEALTH_CLASS_DEGRADED)
    waivers = (host_pb2.CHECK_WAIVER_UNSPECIFIED, host_pb2.CHECK_WAIVER_ADMIN, host_pb2.CHECK_WAIVER_BRAKE)
    for health, waived, check in zip(classes, waivers, ("ib.port", "pcie.fatal", "gpu.hot/1"), strict=True):
        status = host_pb2.CHECK_STATUS_ERROR
        ill.failed_checks.add(check=check, saw="the port is down", health=health, waived=waived, status=status)
    for index, repair in enumerate((host_pb2.GPU_REPAIR_RESET, host_pb2.GPU_REPAIR_REBOOT)):
        fault = host_pb2.GpuFault(cause="Xid 79 (fallen off the bus)", repair=repair)
        ill.inventory.gpus.add(index=index, problem="Xid 79", faults=[fault])
    lost = host_pb2.Host(name="gpu-07", reliability=known(3, lemon=True), silent_since=timestamp(NOW - 300))
    lost.strange_work.add(job_id="train-x")
    lost.strange_work.add(job_id="train-y")
    down = host_pb2.Host(name="gpu-07", going_down_since=timestamp(NOW - 90_000), state=host_pb2.HOST_STATE_LOST)
    stopped = host_pb2.Host(name="gpu-07", agent_stopped_at=timestamp(NOW - 5), refused="too old", in_doubt=True)
    planned = host_pb2.Host(name="gpu-07", reliability=known(0))
    planned.maintenance.start.CopyFrom(timestamp(NOW + 600))
    planned.maintenance.end.CopyFrom(timestamp(NOW + 7_800))
    planned.maintenance.by, planned.maintenance.reason = "ann", "new disk"
    under_way = host_pb2.Host(name="gpu-07", cordon_reason="new disk", maintenance=planned.maintenance)
    under_way.maintenance.begun = True
    under_way.maintenance.ClearField("end")
    spare = host_pb2.Host(name="gpu-07", spare="h200", reliability=known(3))
    spare.reliability.ratio, spare.reliability.ratio_low = 2.04, 1.31
    slow = host_pb2.Host(name="gpu-07", measurements=measurements())
    slow.measurements.results.add(
        time=timestamp(NOW - 7),
        outcome=host_pb2.MEASUREMENT_OUTCOME_MEASURED,
        partner="gpu-09",
        figures={"net.tcp": 0.0625, "cpu.hash": 99.96, "disk.write": 1_234_567.0, "gpu.memory": 0.0},
    )
    checked = host_pb2.Host(name="gpu-07")
    checked.measurements.running_job_id = "host-check-9"
    return [host_pb2.Host(name="gpu-07"), ill, lost, down, stopped, planned, under_way, spare, slow, checked]


def printed(host: host_pb2.Host) -> dict[str, Any]:
    """The command line's words."""
    return {
        "remark": remark(host, NOW),
        "classes": [line[line.index("(") + 1 : line.index(")")] for line in failed_checks(host)],
        "repairs": repairs(host),
        "measured": list(measured(host.measurements, NOW)),
        "fails": [line.removesuffix(LEMON_FIX) for line in reliability.sentences(host.name, host.reliability, NOW)],
    }


@pytest.mark.require("node")
def test_the_page_says_of_a_host_what_the_command_line_prints() -> None:
    sent = json.dumps({"now": NOW, "hosts": [json_view.host(host) for host in hosts()]})
    done = subprocess.run(
        ["node", "test/printed_hosts.mjs"], cwd=WEB, input=sent, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    told = [printed(host) for host in hosts()]
    assert json.loads(done.stdout) == told
    assert told[0] == {"remark": "", "classes": [], "repairs": [], "measured": [], "fails": []}
    *others, slow, checked = told[1:]
    assert all(each["remark"] for each in others) and len(told[1]["repairs"]) == 2, "or nothing was compared"
    assert len(slow["measured"]) == 3 and len(checked["measured"]) == 1
