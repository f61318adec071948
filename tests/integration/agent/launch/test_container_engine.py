"""How a container engine is called, and what is made of its answers; the engine is a script."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import anyio
import pytest

from holdfast_agent.shell.containers import podman
from holdfast_agent.shell.containers.podman import EngineFailed, EngineSilent, Podman


def engine(tmp_path: Path, script: str) -> Podman:
    program = tmp_path / "engine"
    program.write_text(f"#!/bin/sh\nshift\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return Podman(str(program), "/bin/true")


async def test_engines_last_words_are_the_reason(tmp_path: Path) -> None:
    broken = engine(tmp_path, 'echo Trying >&2; echo "Error: manifest unknown" >&2; exit 125')
    with pytest.raises(EngineFailed, match=r"^manifest unknown$"):
        await broken.pull("x", 60)
    with pytest.raises(EngineFailed, match=r"^manifest unknown$"):
        await broken.find("x")


async def test_a_registry_that_is_away_for_a_while_is_asked_again_and_one_that_refuses_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podman, "PULL_AGAIN_S", (0.0, 0.0))
    asked = tmp_path / "asked"
    count = f"echo >> {asked}; n=$(wc -l < {asked})"
    away = 'echo "Error: initializing source: dial tcp: lookup registry: no such host" >&2; exit 125'
    await engine(tmp_path, f"{count}; [ $n -gt 2 ] || {{ {away}; }}").pull("x", 60)
    assert asked.read_text().count("\n") == 3
    with pytest.raises(EngineFailed, match="no such host"):
        await engine(tmp_path, f"{count}; {away}").pull("x", 60)
    assert asked.read_text().count("\n") == 6
    with pytest.raises(EngineFailed, match="denied"):
        await engine(tmp_path, f'{count}; echo "Error: requested access is denied" >&2; exit 125').pull("x", 60)
    assert asked.read_text().count("\n") == 7


async def test_engine_that_is_gone_or_hangs_is_told(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match="could not be started: no such file"):
        await Podman("/no/podman", "/bin/true").find("x")
    with pytest.raises(EngineFailed, match=r"podman pull did not end within 0\.1 s"):
        await engine(tmp_path, "sleep 600").pull("x", 0.1)


async def test_an_engine_that_does_not_answer_is_no_matter_of_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podman, "CALL_S", 0.1)
    with pytest.raises(EngineSilent, match=r"podman image did not end within 0\.1 s"):
        await engine(tmp_path, "sleep 600").image("x")
    with pytest.raises(EngineSilent, match="could not be started"):
        await Podman("/no/podman", "/bin/true").image("x")
    with pytest.raises(EngineFailed) as slow:
        await engine(tmp_path, "sleep 600").pull("x", 0.1)
    assert not isinstance(slow.value, EngineSilent)


async def test_pull_ends_with_whoever_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "began")
    slow = engine(tmp_path, f"echo $$ > {tmp_path}/began; exec sleep 600")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(slow.pull, "x", 600)
        pid = int(await anyio.to_thread.run_sync((tmp_path / "began").read_text))
        tasks.cancel_scope.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_image_and_container_are_read_as_the_engine_tells_them(tmp_path: Path) -> None:
    config = {"Entrypoint": ["/start"], "Cmd": None, "WorkingDir": "/w"}
    told = engine(tmp_path, f"[ $2 = exists ] || echo '{json.dumps([{'Config': config}])}'")
    image = await told.image("x")
    assert image is not None
    assert (image.entrypoint, image.command, image.working_directory) == (("/start",), (), "/w")
    ended = {"Id": "i", "Name": "n", "State": {"Running": False, "Pid": 5}, "Config": {"Labels": {"a": "b"}}}
    held = await engine(tmp_path, f"[ $2 = exists ] || echo '{json.dumps([ended])}'").find("n")
    assert held is not None
    assert (held.id, held.pid, held.labels) == ("i", 0, {"a": "b"})
    assert await engine(tmp_path, "exit 1").find("n") is None


@pytest.mark.parametrize("said", ["Description: displays …", "{}", "[5]", ""])
async def test_an_answer_that_is_none_is_a_failure_of_the_engine(tmp_path: Path, said: str) -> None:
    odd = engine(tmp_path, f"[ $2 = exists ] || echo '{said}'")
    with pytest.raises(EngineFailed, match="to an inspection"):
        await odd.image("x")
    with pytest.raises(EngineFailed, match="to an inspection"):
        await odd.find("x")


async def test_no_name_of_an_image_is_an_option(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    engine_ = engine(tmp_path, f'echo "$@" >> {asked}; [ $2 = exists ] || echo "[]"')
    await engine_.image("--help")
    await engine_.pull("--help", 60)
    await engine_.hold("n", "--help", {}, (), ())
    lines = asked.read_text().splitlines()
    assert lines[:3] == ["image exists -- --help", "image inspect -- --help", "pull --quiet -- --help"]
    assert lines[3].endswith(" -- --help -P")
