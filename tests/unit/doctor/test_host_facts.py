"""shell.inventory: what the agent says about its host."""

from __future__ import annotations

import os
import socket
from collections import namedtuple
from pathlib import Path

import psutil
import pytest

from holdfast.errors import ConfigError
from holdfast_agent.shell.base import inventory

Address = namedtuple("Address", "family address")


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))


def test_this_host_has_sensible_facts() -> None:
    assert 1 <= inventory.cpu_count() <= (os.cpu_count() or 1)
    assert 0 < inventory.memory_bytes() <= psutil.virtual_memory().total


def test_cores_are_those_the_agent_may_run_on(tmp_path: Path, eight_cores: None) -> None:
    assert inventory.cpu_count(tmp_path) == 8


@pytest.mark.parametrize(
    ("cpu_max", "cores"),
    [("max 100000", 8), ("400000 100000", 4), ("250000 100000", 2), ("50000 100000", 1), ("3200000 100000", 8)],
)
def test_container_quota_bounds_the_cores(tmp_path: Path, eight_cores: None, cpu_max: str, cores: int) -> None:
    (tmp_path / "cpu.max").write_text(f"{cpu_max}\n")
    assert inventory.cpu_count(tmp_path) == cores


@pytest.mark.parametrize(("quota", "cores"), [("-1", 8), ("300000", 3)])
def test_older_cgroups_bound_the_cores_too(tmp_path: Path, eight_cores: None, quota: int, cores: int) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text(f"{quota}\n")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000\n")
    assert inventory.cpu_count(tmp_path) == cores


@pytest.mark.parametrize(
    ("name", "none"), [("memory.max", "max"), ("memory/memory.limit_in_bytes", str(2**63 - 4096))]
)
def test_container_limit_bounds_the_memory(tmp_path: Path, name: str, none: int) -> None:
    total = psutil.virtual_memory().total
    assert inventory.memory_bytes(tmp_path) == total
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(f"{none}\n")
    assert inventory.memory_bytes(tmp_path) == total
    (tmp_path / name).write_text("1048576\n")
    assert inventory.memory_bytes(tmp_path) == 1048576


def test_address_of_an_interface_is_its_ipv4_before_its_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        "eth0": [
            Address(socket.AF_INET6, "fe80::1%eth0"),
            Address(socket.AF_INET6, "fd00::7"),
            Address(socket.AF_INET, "10.0.0.7"),
        ],
        "ib0": [Address(socket.AF_INET6, "FE80::2%ib0"), Address(socket.AF_INET6, "fd00::8")],
        "eth1": [Address(socket.AF_INET6, "fe80::3%eth1")],
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: found)
    assert inventory.host_address("eth0") == "10.0.0.7"
    assert inventory.host_address("ib0") == "fd00::8"
    with pytest.raises(ConfigError, match="'eth1' has no usable address"):
        inventory.host_address("eth1")
    with pytest.raises(ConfigError, match=r"no network interface 'eth9'.*Known: eth0, eth1, ib0"):
        inventory.host_address("eth9")


def test_host_without_a_route_is_reached_by_loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "_source_address", lambda family, target: "")
    assert inventory.host_address() == "127.0.0.1"


def test_route_that_does_not_exist_gives_no_address() -> None:
    assert inventory._source_address(socket.AF_INET, "256.0.0.1") == ""


def test_loopback_interface_can_be_named() -> None:
    assert inventory.host_address("lo") in ("127.0.0.1", "::1")
