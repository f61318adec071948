"""The agent reads nothing without a bound that a worker or a host's user could make long."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

AGENT = Path(__file__).parents[2] / "agent/holdfast_agent"
WHOLE = {"read_text", "read_bytes", "readlines", "readall"}
SIZED = {"read", "recv", "receive", "readline", "pread", "recvfrom", "recvmsg"}
"""Calls that take the most to read as an argument."""
OPENS = {"open", "fdopen", "makefile"}
TAKE_FILES = {"load", "list", "tuple", "sorted", "copyfileobj"}
OF_PROGRAMS = {"communicate", "check_output", "getoutput", "copyfile"}
"""Calls that take all that a program prints, or all of a file."""

WITHOUT_BOUND = {
    "the agent's own file, in a directory of the agent's": {
        "base/boot_file.py .BootFile.load",
        "hangs/feature_reporter.py .FeatureReporter._begin",
        "main/upgrade.py .after",
        "output/archive.py .Archive._read",
        "packages/environments.py ._copy",
        "packages/environments.py ._told",
        "sampling/history.py ._content",
        "shims/shim_files.py .read_journal",
        "shims/shim_files.py .read_shim_id",
        "shims/worker_files.py .EpochFile.read",
        "shims/worker_files.py .WorkerFiles._noted",
        "shims/worker_files.py .WorkerFiles.hook_variables",
        "shims/worker_files.py ._append",
        "shims/worker_files.py ._lines",
    },
    "the admin's own file": {
        "config.py .read_env_file",
        "containers/containers.py ._read",
        "main/daemon.py .run",
        "doctor/reading.py .text",
    },
    "a file of the kernel's that no process makes longer": {
        "base/inventory.py ._words",
        "cgroups/cgroups.py .most_pids",
        "cgroups/cgroups.py .top",
        "cgroups/scopes.py ._cgroup",
        "shims/orphans.py ._members",
        "shim/build_locks.py ._is_local",
        "shim/walls/cgroup.py .Cgroup._members",
        "shim/walls/container_namespace.py ._capabilities",
    },
    "a program of the system's, which answers to root": {
        "cgroups/scopes.py ._busctl",
        "doctor/host.py ._starts",
        "doctor/reading.py .said",
        "main/host_shutdown.py .is_under_way",
    },
    "a rank's own process, which reads of itself": {
        "shim/warm/hook/sitecustomize.py ._Preloader.run_site",
        "shim/warm/hook/sitecustomize.py ._cuda_is_initialised",
        "shim/warm/hook/sitecustomize.py ._site_lines",
    },
    "a file of tests": {"gpu/scripted.py .SignalScript._load", "shim/failpoints.py ._passed"},
    "no file: a method of ours with a bound of its own": {
        "base/programs.py ._Kept.last",
        "base/programs.py ._attend",
        "gpus/gpu_watch.py .GpuWatch.__init__",
        "gpus/gpu_watch.py .GpuWatch.run",
        "main/daemon.py ._assemble",
        "main/daemon.py ._live",
        "sampling/gpu_signals.py .GpuSignalWatch.run",
        "gpu/nvml/readings.py .read",
        "shim/shim.py .Shim.serve",
        "shim/worker.py .Worker.hear",
    },
    "messages, of which the channel bounds each": {
        "session/link.py .Link._session",
        "session/link.py .Link._talk",
        "session/transfer.py .Transfer._session",
    },
    "a child of ours, whose answers are of ours": {
        "gpu/child.py .HelperProcess._reply",
    },
}
"""Reads without a bound, each with why it needs none. What a worker can write to is not among them."""


def nodes(node: ast.AST, within: str = "") -> Iterator[tuple[ast.AST, str]]:
    """Every node of a module, with the class and function that it is in."""
    for child in ast.iter_child_nodes(node):
        yield child, within
        named = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        yield from nodes(child, f"{within}.{child.name}" if named else within)  # type: ignore[attr-defined]


def name_of(call: ast.AST) -> str:
    """The last part of what is called; empty for anything else."""
    if not isinstance(call, ast.Call):
        return ""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def opened(tree: ast.AST) -> set[str]:
    """Names that open files are given somewhere in a module."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and name_of(node.value) in OPENS:
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.withitem) and name_of(node.context_expr) in OPENS:
            found |= {node.optional_vars.id} if isinstance(node.optional_vars, ast.Name) else set()
    return found


def unbounded(text: str) -> Iterator[str]:
    """The functions in a module that read without saying how much at most."""
    tree = ast.parse(text)
    files = opened(tree)

    def is_file(node: ast.AST) -> bool:
        return name_of(node) in OPENS or (isinstance(node, ast.Name) and node.id in files)

    for node, within in nodes(tree):
        if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)) and is_file(node.iter):
            yield within  # by lines, of any length
        if not isinstance(node, ast.Call):
            continue
        name, given = name_of(node), [*node.args, *(each.value for each in node.keywords)]
        whole = isinstance(node.func, ast.Attribute) and name in WHOLE
        sized = isinstance(node.func, ast.Attribute) and name in SIZED and not any(map(is_size, given))
        handed_over = name in TAKE_FILES and any(map(is_file, node.args))
        kept = any(each.arg == "capture_output" for each in node.keywords)
        if whole or sized or handed_over or name in OF_PROGRAMS or kept:
            yield within


def is_size(argument: ast.AST) -> bool:
    """Whether it can be a most: not -1, and not None."""
    return not isinstance(argument, ast.UnaryOp) and not (
        isinstance(argument, ast.Constant) and argument.value is None
    )


def test_every_read_of_the_agent_has_a_bound_or_a_reason_to_need_none() -> None:
    found = {
        f"{str(path.relative_to(AGENT)).removeprefix('shell/')} {within}"
        for path in AGENT.rglob("*.py")
        for within in unbounded(path.read_text())
    }
    listed = {place for places in WITHOUT_BOUND.values() for place in places}
    assert found - listed == set(), "read so many bytes at most"
    assert listed - found == set()


@pytest.mark.parametrize(
    "line",
    [
        "open('x').read()",
        "open('x').read(-1)",
        "open('x').read(None)",
        "p.read_bytes()",
        "[line for line in open('x')]",
        "with open('x') as f: json.load(f)",
        "with p.open() as f: list(f)",
        "f = os.fdopen(3); any(line for line in f)",
        "subprocess.run(['x'], capture_output=True)",
        "process.communicate()",
        "shutil.copyfile(a, b)",
        "stream.readline()",
    ],
)
def test_reads_without_a_bound_are_found(line: str) -> None:
    assert list(unbounded(f"class A:\n  def b(self):\n    {line}\n")) == [".A.b"]


@pytest.mark.parametrize("line", ["open('x').read(7)", "os.read(fd, 7)", "stream.recv(most)", "list(names)"])
def test_reads_with_a_bound_are_not(line: str) -> None:
    assert list(unbounded(f"def b():\n    {line}\n")) == []
