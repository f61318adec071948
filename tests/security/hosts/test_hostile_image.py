"""Images that ask the engine for more than a file system: nothing of theirs runs as root, and nothing of them stays."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.podman_view import IMAGE, PodmanView, podman_view

from holdfast_agent.shell.containers.podman import Podman
from holdfast_agent.shim.processes import Process

pytestmark = [pytest.mark.anyio, pytest.mark.require("podman")]
HOSTILE = f"""
FROM {IMAGE}
HEALTHCHECK --interval=1s CMD touch /tmp/was-root
VOLUME /data
ENV LD_PRELOAD=/data/x.so
USER 0
STOPSIGNAL SIGSTOP
LABEL holdfast.job=another
"""


@pytest.fixture
def view(tmp_path: Path) -> Iterator[PodmanView]:
    with podman_view(tmp_path) as made:
        yield made


async def test_an_image_runs_nothing_of_its_own_and_leaves_no_volume(view: PodmanView, tmp_path: Path) -> None:
    recipe = tmp_path / "context/Containerfile"
    recipe.parent.mkdir()
    recipe.write_text(HOSTILE)
    view.call("build", "--format=docker", "--tag=localhost/hostile:1", f"--file={recipe}", str(recipe.parent))
    asked = json.loads(view.call("image", "inspect", "localhost/hostile:1"))[0]
    assert asked["Healthcheck"]["Test"] == ["CMD-SHELL", "touch /tmp/was-root"]
    assert asked["Config"]["Volumes"] == {"/data": {}}

    engine = Podman(str(view.bin / "podman"), str(shutil.which("catatonit")))
    await engine.hold("held", "localhost/hostile:1", {"holdfast.job": "job-1"}, [], [])
    try:
        held = await engine.find("held")
        assert held is not None
        assert held.pid
        assert held.labels["holdfast.job"] == "job-1"
        made = json.loads(view.call("container", "inspect", "held"))[0]
        check = made["Config"].get("Healthcheck") or {"Test": ["NONE"]}
        assert check["Test"] == ["NONE"], "the engine would run it as root"
        assert Process(held.pid).state in "SR", "what holds it is no program of the image's"
    finally:
        await engine.remove("held")
    assert view.call("volume", "ls", "--quiet") == ""
    assert view.containers() == {}
