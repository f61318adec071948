"""``holdfast usage``: who takes how much of the controller's disk, and how much of it they may."""

from __future__ import annotations

import pytest

from holdfast._sdk import json_view
from holdfast.cli.cluster.usage import write_usage
from holdfast.v1 import cluster_pb2

MIB = 1 << 20
USED = [
    cluster_pb2.StoredBytes(subject="user/ann", jobs=3, bytes=1500 * MIB, limit_bytes=20480 * MIB),
    cluster_pb2.StoredBytes(subject="project/vision", jobs=2, bytes=MIB // 2),
    cluster_pb2.StoredBytes(subject="job/train-bcdfgh", jobs=1, bytes=96 * MIB),
]


def test_sums_are_shown_beside_their_limits(capsys: pytest.CaptureFixture[str]) -> None:
    write_usage(USED)
    assert capsys.readouterr().out.splitlines() == [
        "OF       NAME          JOBS      MIB  MAY TAKE",
        "user     ann              3  1,500.0    20,480",
        "project  vision           2      0.5         -",
        "job      train-bcdfgh     1     96.0         -",
    ]


def test_json_has_bytes() -> None:
    assert json_view.plain(USED[0]) == {
        "subject": "user/ann",
        "jobs": 3,
        "bytes": 1500 * MIB,
        "limitBytes": 20480 * MIB,
    }
