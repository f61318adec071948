"""Each place of the agent that starts a process is known; for a job there is one function that does."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

AGENT = Path(__file__).parents[2] / "agent/holdfast_agent"
STARTS = {
    *("Popen", "check_call", "check_output", "getoutput", "getstatusoutput"),
    *("create_subprocess_exec", "create_subprocess_shell", "open_process", "run_process", "subprocess_exec"),
}
OF_OS = ("fork", "posix_spawn", "system", "popen", "exec", "spawn", "startfile")
"""Prefixes."""
FOR_JOBS = {
    "shell/base/programs.py": "the one function: by a reaper",
    "shim/program_reaper.py": "the reaper's own child",
    "shim/launch.py": "ranks, in the walls of their shim",
    "shim/walls/cgroup.py": "the same ranks, forked into their cgroup",
    "shim/walls/namespaces.py": "a child of the shim that makes namespaces, and ends; it runs nothing of the job's",
    "shim/keepers.py": "keepers of users' shells and injected faults; they run nothing of the job's themselves",
    "shim/shells/shell_keeper.py": "a user's shell, in the walls of its rank",
    "shim/template.py": "forks itself into shims",
    "shim/warm/parked_ranks.py": "the keeper of parked ranks, and their Python, in the walls of a rank",
    "shim/warm/hook/sitecustomize.py": "ranks that are parked, forked in their Python before its program",
    "shell/shims/spawner.py": "the template of shims",
    "shell/evidence/tools.py": "stack dump tools of the host, bounded in time, output and number there",
}
FOR_THE_HOST = {
    "__main__.py": "becomes the command that joins a cluster",
    "gpu/child.py": "the helper that asks the GPU driver",
    "shell/cgroups/scopes.py": "busctl",
    "shell/doctor/host.py": "asks tools for their version",
    "shell/doctor/reading.py": "tools that the doctor reads",
    "shell/main/host_shutdown.py": "systemctl",
}


def starts(source: str) -> list[str]:
    """Calls in a module that start a process, with their line."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            of = called.value.id if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) else ""
            of_os = of == "os" and name.startswith(OF_OS)
            if name in STARTS or of_os or (of == "subprocess" and name in ("run", "call")):
                found.append(f"{node.lineno}: {name}")
        elif isinstance(node, ast.ImportFrom) and node.module in ("subprocess", "multiprocessing", "pty"):
            found += [
                f"{node.lineno}: {alias.name}" for alias in node.names if alias.name in {*STARTS, "run", "call"}
            ]
    return found


def test_nothing_else_of_the_agent_starts_a_process() -> None:
    found = {str(path.relative_to(AGENT)) for path in AGENT.rglob("*.py") if starts(path.read_text())}
    assert found == FOR_JOBS.keys() | FOR_THE_HOST.keys()


@pytest.mark.parametrize(
    "line",
    [
        "subprocess.Popen(['x'])",
        "subprocess.run(['x'])",
        "os.fork()",
        "await asyncio.create_subprocess_exec('x')",
        "await anyio.open_process(['x'])",
        "os.posix_spawn('x', [], {})",
        "from subprocess import run",
    ],
)
def test_each_way_to_start_one_is_seen(line: str) -> None:
    assert starts(f"async def f():\n    {line}")
