"""Labels that a dev cluster's new hosts are given, and those that are refused. No daemon is started."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from holdfast.dev import layout
from holdfast.dev.layout import Layout
from holdfast.dev.plan import Cluster, Host
from holdfast.errors import ConfigError

CLUSTER = Cluster(7001, tuple(Host(f"host-{i}", range(20000 + 200 * i, 20200 + 200 * i), 0) for i in (0, 1)))


def test_labels_are_written_for_new_hosts_only(tmp_path: Path) -> None:
    here, labels = Layout(tmp_path), {"host-1": {"rack": "b", "example.org/disk": "ssd"}}
    layout.check_labels(here, CLUSTER, labels)
    layout.complete(here, CLUSTER, as_root=False, labels=labels)
    assert tomllib.loads((tmp_path / "hosts/host-1/agent.toml").read_text())["labels"] == labels["host-1"]
    assert "labels" not in tomllib.loads((tmp_path / "hosts/host-0/agent.toml").read_text())
    with pytest.raises(ConfigError, match="host-0: labels count for hosts that are new"):
        layout.check_labels(here, CLUSTER, {"host-0": {"rack": "a"}})


@pytest.mark.parametrize("name", ["host-7", "controller"])
def test_labels_of_no_host_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: there is no such host"):
        layout.check_labels(Layout(tmp_path), CLUSTER, {name: {"rack": "a"}})
