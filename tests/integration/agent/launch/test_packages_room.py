"""Room for environments: what goes is in nobody's way, whoever else builds, and whatever an admin has removed."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.integration.agent.launch.test_packages_environments import ask, of_all, until
from tests.support import wheels

from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.shell.packages import environments as module
from holdfast_agent.shell.packages.environments import Wanted

USER = WorkerUser("root", "/", "/bin/sh")


@pytest.fixture
def links(tmp_path: Path) -> Path:
    made = tmp_path / "links"
    for name in ("tiny", "other"):
        wheels.wheel(made, name)
    return made


async def test_an_environment_that_an_admin_has_removed_is_built_again(tmp_path: Path, links: Path) -> None:
    made, wanted = of_all(tmp_path).of(USER), Wanted(("tiny",))
    path = await made.get(wanted, "a", lambda: None)
    shutil.rmtree(path)
    again = await made.get(wanted, "b", lambda: None)
    assert ask(again, "tiny.VERSION", "tiny") == "1.0"


async def test_one_that_was_removed_is_no_hindrance_when_room_is_made(tmp_path: Path, links: Path) -> None:
    both = of_all(tmp_path, environments_mb=0)
    gone = await both.of(USER).get(Wanted(("tiny",)), "a", lambda: None)
    shutil.rmtree(gone)
    both.release("a")
    await both.of(USER).get(Wanted(("other",)), "b", lambda: None)
    assert not gone.with_suffix(".ready").exists()


async def test_two_builds_that_make_room_at_once_remove_the_same_one_once(
    tmp_path: Path, links: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = of_all(tmp_path, environments_mb=0)
    made = both.of(USER)
    old = await made.get(Wanted(("tiny",)), "old", lambda: None)
    both.release("old")
    barrier = threading.Barrier(2)
    real = module.Environments._drop

    def together(self: Any, ready: Path) -> bool:
        barrier.wait(20)
        return real(self, ready)

    monkeypatch.setattr(module.Environments, "_drop", together)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.get, Wanted(("other",)), "a", lambda: None)
        tasks.start_soon(made.get, Wanted(("other", "tiny")), "b", lambda: None)
    assert not old.exists()


async def test_downloads_that_another_build_uses_stay(tmp_path: Path, links: Path) -> None:
    began, go = tmp_path / "began", tmp_path / "go"
    body = f"import time\nopen({str(began)!r}, 'w')\nwhile not os.path.exists({str(go)!r}): time.sleep(0.05)"
    slow = wheels.source(tmp_path / "sent", "slow", body)
    made = of_all(tmp_path, downloads_mb=0).of(USER)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.get, Wanted((), files=((slow, "d"),)), "a", lambda: None)
        await until(began.exists)
        await made.get(Wanted(("tiny",)), "b", lambda: None)
        go.touch()


@pytest.mark.require("mount")
async def test_a_disk_that_fills_while_modules_are_compiled_leaves_none_that_cannot_be_imported(
    tmp_path: Path, links: Path
) -> None:
    body = "\n".join(f"def f{number}(a): return a + {number}" for number in range(400))
    modules = [f"m{number}" for number in range(60)]
    wheels.wheel(links, "many", **dict.fromkeys(modules, body))
    cache = tmp_path / "cache"
    cache.mkdir()
    await anyio.run_process(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(cache)])
    try:
        path = await of_all(tmp_path).of(USER).get(Wanted(("many",)), "job", lambda: None)
        assert 0 < len(list(path.rglob("m*.pyc"))) < 60, "the disk was full in the midst of it"
        assert ask(path, "m0.f1(1)", *modules) == 2
    finally:
        await anyio.run_process(["umount", str(cache)])
