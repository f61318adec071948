"""The list of failpoints is complete, the shim's twin of the module is a twin, and being off costs nothing."""

from __future__ import annotations

import ast
import inspect
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.points import BY_NAME, POINTS

from holdfast._base import failpoints
from holdfast_agent.shim import failpoints as twin

ROOT = Path(__file__).parents[3]
SOURCES = sorted(path for part in ("agent", "client", "controller") for path in (ROOT / part).rglob("*.py"))


def hits(source: str) -> list[str]:
    """The names of the points in a module; fails on a name that is not written out."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called == "hit":
            assert isinstance(node.args[0], ast.Constant), ast.unparse(node)
            name = node.args[0].value
            assert isinstance(name, str), ast.unparse(node)
            found.append(name)
    return found


def test_every_point_in_the_code_is_listed_once_and_the_other_way_round() -> None:
    found = [name for path in SOURCES if "_pb2" not in path.name for name in hits(path.read_text())]
    assert sorted(found) == sorted(point.name for point in POINTS)
    assert len(BY_NAME) == len(POINTS)


def test_points_lie_with_the_actor_that_they_name() -> None:
    homes = {"controller": "holdfast_controller/", "agent": "holdfast_agent/shell/", "shim": "holdfast_agent/shim"}
    for path in SOURCES:
        if "_pb2" not in path.name:
            assert all(homes[BY_NAME[name].actor] in str(path) for name in hits(path.read_text()))


def test_points_that_need_another_first_name_one_that_the_story_reaches() -> None:
    assert {BY_NAME[point.after].after for point in POINTS if point.after} == {""}


def test_every_point_is_on_the_page() -> None:
    page = (ROOT / "docs/internals/failpoints.md").read_text()
    assert [point.name for point in POINTS if f"`{point.name}`" not in page] == []


def test_the_shim_s_twin_is_the_same_code() -> None:
    def code(module: object) -> str:
        tree = ast.parse(inspect.getsource(module))  # type: ignore[arg-type]
        return ast.dump(ast.Module(tree.body[1:], []))

    assert code(failpoints) == code(twin)


def test_a_point_that_is_off_looks_at_a_variable_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    assert failpoints._DIRECTORY == ""
    monkeypatch.delattr(failpoints, "_passed")
    failpoints.hit("agent.exit.before")
    assert len(failpoints.hit.__code__.co_names) == 2, "that variable, and what is called where it is set"


PROGRAM = """
import sys
from holdfast._base.failpoints import hit
for number in range(1, 4):
    try:
        hit("agent.exit.before")
    except OSError as error:
        print(error.strerror)
    print(number, flush=True)
"""


@pytest.mark.parametrize(
    ("action", "status", "said"),
    [
        ("exit", -signal.SIGKILL, []),
        ("exit@1", -signal.SIGKILL, []),
        ("exit@3", -signal.SIGKILL, ["1", "2"]),
        ("exit@4", 0, ["1", "2", "3"]),
        ("error@2", 0, ["1", "failpoint agent.exit.before", "2", "3"]),
    ],
)
def test_an_armed_point_fires_at_its_pass_and_once(
    tmp_path: Path, action: str, status: int, said: list[str]
) -> None:
    (tmp_path / "agent.exit.before").write_text(action)
    command = [sys.executable, "-c", PROGRAM]
    env = {failpoints.VARIABLE: str(tmp_path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=180)
    assert (done.returncode, done.stdout.split("\n")[:-1]) == (status, said), done.stderr
    fired = tmp_path / "agent.exit.before.fired"
    assert fired.exists() == (action != "exit@4")
    if fired.exists():
        assert fired.read_text().startswith(f"{action} ")
        again = subprocess.run(command, env=env, capture_output=True, text=True, timeout=180)
        assert (again.returncode, again.stdout) == (0, "1\n2\n3\n")


def test_a_stopped_process_goes_on_when_it_is_told_to(tmp_path: Path) -> None:
    (tmp_path / "agent.exit.before").write_text("stop")
    env = {failpoints.VARIABLE: str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], env=env, stdout=subprocess.PIPE, text=True) as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        os.kill(process.pid, signal.SIGCONT)
        assert process.communicate(timeout=180)[0] == "1\n2\n3\n"
