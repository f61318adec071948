"""What systemd is asked for when a worker gets a scope."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.unit.agent.desired import KEY, desired

from holdfast._session.assignment import Phase
from holdfast._session.reports import WorkerId
from holdfast_agent.core.launch.scopes import INFINITY, Bounds, properties, scope_name, unit_of, why_none
from holdfast_agent.shell.cgroups import scopes
from holdfast_agent.shell.cgroups.cgroups import Cgroups
from holdfast_agent.shell.cgroups.scopes import Scopes
from holdfast_agent.shell.prepare.launch_order import Means

pytestmark = pytest.mark.anyio
SCOPE = "holdfast.slice/holdfast-job-1-workerpool0-0.scope"


NONE = Bounds()


def asked(bounds: Bounds = NONE, grace_s: float = 10.0) -> dict[str, list[str]]:
    found = properties(KEY, 42, grace_s, bounds, "holdfast-agent.service")
    return {name: list(words) for name, *words in found}


def test_a_scope_is_named_after_job_and_worker() -> None:
    assert scope_name(KEY) == "holdfast-job-1-workerpool0-0.scope"


def test_what_no_unit_name_takes_is_escaped() -> None:
    assert scope_name(WorkerId("a/b ü", "w@0")) == r"holdfast-a\x2fb\x20\xc3\xbc-w\x400.scope"


def test_no_name_is_too_long() -> None:
    assert len(scope_name(WorkerId("j" * 300, "w"))) == 255


def test_the_shim_is_taken_in_and_the_scope_is_delegated_to_it() -> None:
    found = asked()
    assert found["PIDs"] == ["au", "1", "42"]
    assert found["Delegate"] == ["b", "true"]
    assert found["Slice"] == ["s", "holdfast.slice"]


def test_every_bound_is_said_so_that_no_default_of_the_host_holds() -> None:
    found = asked()
    unbounded = ["t", str(INFINITY)]
    assert found["TasksMax"] == found["MemoryMax"] == found["CPUQuotaPerSecUSec"] == unbounded


def test_bounds_leave_room_for_the_shim() -> None:
    found = asked(Bounds(memory_mb=1024, cpus=4, pids=1000))
    assert found["MemoryMax"] == ["t", str((1024 + 64) << 20)]
    assert found["CPUQuotaPerSecUSec"] == ["t", "4000000"]
    assert found["TasksMax"] == ["t", "1064"]


def test_systemd_waits_longer_than_the_jobs_grace() -> None:
    assert asked(grace_s=600.0)["TimeoutStopUSec"] == ["t", "660000000"]


def test_at_shutdown_the_agent_is_stopped_before_its_workers_scopes() -> None:
    assert asked()["Before"] == ["as", "1", "holdfast-agent.service"]


@pytest.mark.parametrize(
    ("lacks", "why"),
    [
        ({"wanted": False}, "scopes = false"),
        ({"booted": False}, "systemd does not run this host"),
        ({"supervised": False}, "the agent was not started by systemd"),
        ({"root": False}, "the agent is not root"),
        ({}, ""),
    ],
)
def test_why_a_host_has_no_scopes_is_said(lacks: dict[str, bool], why: str) -> None:
    assert why_none(**{"wanted": True, "supervised": True, "root": True, "booted": True, **lacks}) == why


def test_a_cgroup_tells_its_unit() -> None:
    assert unit_of("/system.slice/holdfast-agent.service") == "holdfast-agent.service"
    assert unit_of("/user.slice/user-0.slice/session-1.scope") == "session-1.scope"
    assert unit_of("/") == ""


def busctl(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A bus that behaves as the script says."""
    tool = folder / "bin/busctl"
    tool.parent.mkdir()
    tool.write_text(f"#!{sys.executable}\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent))


def moved_to(monkeypatch: pytest.MonkeyPatch, *paths: str) -> None:
    """Where the kernel says that the shim is, at each look; the last for ever."""
    left = list(paths)
    monkeypatch.setattr(scopes, "_cgroup", lambda _: left.pop(0) if len(left) > 1 else left[0])


async def test_the_shim_gets_its_place_in_the_scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busctl(
        tmp_path, monkeypatch, f"import sys; open({str(tmp_path / 'asked')!r}, 'w').write(' '.join(sys.argv[1:]))"
    )
    scope = tmp_path / SCOPE
    scope.mkdir(parents=True)
    moved_to(monkeypatch, "/system.slice/holdfast-agent.service", f"/{SCOPE}", f"/{SCOPE}/shim")
    found = Scopes(str(tmp_path), agent_unit="holdfast-agent.service")
    await found.take_in(desired(Phase.PREPARE), 42)
    said = (tmp_path / "asked").read_text()
    assert " StartTransientUnit ssa(sv)a(sa(sv)) holdfast-job-1-workerpool0-0.scope fail 10 PIDs au 1 42 " in said
    assert said.endswith(" Before as 1 holdfast-agent.service 0")
    assert (scope / "shim/cgroup.procs").read_text() == "42"
    assert Means(cgroups=Cgroups("/fallback"), scopes=found).cgroup(KEY, 42) == str(scope)


async def test_a_shim_that_is_in_its_scope_already_is_left_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busctl(tmp_path, monkeypatch, f"open({str(tmp_path / 'asked')!r}, 'w')")
    moved_to(monkeypatch, f"/{SCOPE}/shim")
    await Scopes(str(tmp_path)).take_in(desired(Phase.PREPARE), 42)
    assert not (tmp_path / "asked").exists()


async def test_a_bus_that_refuses_costs_the_scope_and_not_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    busctl(tmp_path, monkeypatch, "import sys; sys.exit('Call failed: Access denied')")
    moved_to(monkeypatch, "/system.slice/holdfast-agent.service")
    noted: list[str] = []
    monkeypatch.setattr(
        f"{scopes.__name__}.log.warning",
        lambda event, **fields: noted.append(f"{event} {fields['error']}"),
    )
    found = Scopes(str(tmp_path))
    await found.take_in(desired(Phase.PREPARE), 42)
    assert noted == ["scope.unavailable Call failed: Access denied"]
    assert Means(cgroups=Cgroups("/fallback"), scopes=found).cgroup(KEY, 42) == "/fallback/job-1/workerpool0-0"


async def test_a_bus_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busctl(tmp_path, monkeypatch, "import time; time.sleep(600)")
    monkeypatch.setattr(scopes, "PATIENCE_S", 0.05)
    moved_to(monkeypatch, "/")
    noted: list[str] = []
    monkeypatch.setattr(f"{scopes.__name__}.log.warning", lambda event, **fields: noted.append(fields["error"]))
    await Scopes(str(tmp_path)).take_in(desired(Phase.PREPARE), 42)
    assert noted == ["systemd did not answer"]


async def test_the_scope_of_an_earlier_shim_is_waited_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = str(tmp_path / "asked")
    busctl(
        tmp_path,
        monkeypatch,
        f"import os, sys\nif not os.path.exists({marker!r}):\n    open({marker!r}, 'w')\n"
        "    sys.exit('Call failed: Unit holdfast-job-1-workerpool0-0.scope was already loaded')",
    )
    monkeypatch.setattr(scopes, "PATIENCE_S", 60.0)
    (tmp_path / SCOPE).mkdir(parents=True)
    moved_to(monkeypatch, "/", f"/{SCOPE}")
    await Scopes(str(tmp_path)).take_in(desired(Phase.PREPARE), 42)
    assert (tmp_path / SCOPE / "shim/cgroup.procs").exists()


def test_what_a_dead_shim_left_is_looked_for_where_it_was(tmp_path: Path) -> None:
    means = Means(cgroups=Cgroups("/fallback"), scopes=Scopes(str(tmp_path)))
    assert means.left(KEY, 3) == "/fallback/job-1/workerpool0-0/g3"
    (tmp_path / SCOPE).mkdir(parents=True)
    assert means.left(KEY, 3) == f"{tmp_path}/{SCOPE}/g3"


def test_without_cgroups_a_scope_is_only_for_show(tmp_path: Path) -> None:
    means = Means(cgroups=Cgroups("", "cgroups = false"), scopes=Scopes(str(tmp_path)))
    assert means.cgroup(KEY, os.getpid()) == ""
