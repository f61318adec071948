"""The agent reads nothing without a bound that a worker or a host's user could make long."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

AGENT = Path(__file__).parents[2] / "agent/holdfast_agent"
WHOLE = {"read_text", "read_bytes", "readlines", "readall"}
SIZED = {"read", "recv", "receive", "readline", "pread", "recvfrom", "recvmsg"}
"""Calls that take the most to read as an argument."""

WITHOUT_BOUND = {
    "the agent's own file, in a directory of the agent's": {
        "gpus/fault_file.py .FaultFile.read",
        "gpus/release.py .GpuFreeing.known",
        "hangs/feature_reporter.py .FeatureReporter._begin",
        "main/upgrade.py .after",
        "output/archive.py .Archive._read",
        "packages/environments.py .Environments._make_room",
        "packages/environments.py .Environments._take",
        "sampling/history.py ._content",
        "shims/shim_files.py .read_journal",
        "shims/shim_files.py .read_shim_id",
        "shims/worker_files.py .EpochFile.read",
        "shims/worker_files.py .WorkerFiles._noted",
        "shims/worker_files.py .WorkerFiles.hook_variables",
        "shims/worker_files.py ._append",
        "shims/worker_files.py ._pairs",
    },
    "the admin's own file": {
        "config.py .read_env_file",
        "containers/containers.py ._read",
        "main/daemon.py .run",
        "doctor/reading.py .text",
    },
    "a file of the kernel's that no process makes longer": {
        "base/inventory.py ._words",
        "base/inventory.py .boot_id",
        "cgroups/cgroups.py .most_pids",
        "cgroups/cgroups.py .top",
        "cgroups/scopes.py ._cgroup",
        "shims/orphans.py ._members",
        "shim/cgroup.py .Cgroup._members",
    },
    "a file of tests": {"gpu/scripted.py .SignalScript._load", "shim/failpoints.py ._passed"},
    "no file: a method of ours with a bound of its own": {
        "base/programs.py ._Kept.last",
        "base/programs.py ._attend",
        "gpus/inventory.py .GpuWatch.__init__",
        "gpus/inventory.py .GpuWatch.run",
        "main/daemon.py ._assemble",
        "main/daemon.py ._live",
        "sampling/gpu_signals.py .GpuSignalWatch.run",
        "gpu/signals.py .read",
        "shim/shim.py .Shim.handle",
        "shim/shim.py .Shim.serve",
    },
    "messages, of which the channel bounds each": {
        "session/link.py .Link._session",
        "session/link.py .Link._talk",
        "session/transfer.py .Transfer._session",
    },
    "a child of ours, whose answers are of ours": {
        "gpu/child.py .HelperProcess._reply",
        "main/renewal.py .Renewal._renew",
    },
}
"""Reads without a bound, each with why it needs none. What a worker can write to is not among them."""


def calls(node: ast.AST, within: str = "") -> Iterator[tuple[ast.Call, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield child, within
        named = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        yield from calls(child, f"{within}.{child.name}" if named else within)  # type: ignore[attr-defined]


def unbounded(text: str) -> Iterator[str]:
    """The functions in a module that read without saying how much at most."""
    for call, within in calls(ast.parse(text)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if name in WHOLE or (name in SIZED and not call.args and not call.keywords):
            yield within


def test_every_read_of_the_agent_has_a_bound_or_a_reason_to_need_none() -> None:
    found = {
        f"{str(path.relative_to(AGENT)).removeprefix('shell/')} {within}"
        for path in AGENT.rglob("*.py")
        for within in unbounded(path.read_text())
    }
    listed = {place for places in WITHOUT_BOUND.values() for place in places}
    assert found - listed == set(), "read so many bytes at most"
    assert listed - found == set()


def test_reads_without_a_bound_are_found() -> None:
    source = "class A:\n  def b(self):\n    open('x').read()\n    open('x').read(7)\ndef c(p): p.read_bytes()\n"
    assert list(unbounded(source)) == [".A.b", ".c"]
