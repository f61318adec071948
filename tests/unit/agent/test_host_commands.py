"""What an admin types on a host, where there is no agent: every refusal is a sentence."""

from __future__ import annotations

import binascii
import json
import os
from pathlib import Path

import pytest

from holdfast_agent.shell.main import cli
from holdfast_agent.shell.main.upgrade import take
from holdfast_agent.shell.shims import shim_files

SETTINGS = """controller = "127.0.0.1:1"
name = "h7"
state_dir = "state"
log_dir = "logs"
ca = "ca.pem"
cert = "host.pem"
key = "host.key"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "state/workers/j-1/workerpool0-0").mkdir(parents=True)
    path = tmp_path / "agent.toml"
    path.write_text(SETTINGS)
    return path


def journal(folder: Path, generation: int, *records: dict[str, object]) -> None:
    """As a shim writes it."""
    texts = [json.dumps({"generation": generation, **record}) for record in records]
    lines = [f"{binascii.crc32(text.encode()):08x} {text}\n" for text in texts]
    (folder / f"g{generation}.journal").write_text("".join(lines))


@pytest.mark.parametrize(
    "words",
    [["upgrade"], ["upgrade", "sideways"], ["upgrade", "before", "--max-wait", "soon"], ["status", "-o", "yaml"]],
)
def test_a_wrong_command_line_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2
    assert "usage: holdfast-agent" in capsys.readouterr().err


def test_settings_that_are_not_there_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status", "--config", str(tmp_path / "none.toml")]) == 2
    assert "none.toml: No such file or directory." in capsys.readouterr().err


def test_without_an_agent_nobody_is_waited_for(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["upgrade", "before", "--config", str(config)]) == 0
    assert "Not waiting" in capsys.readouterr().out
    assert cli.main(["upgrade", "after", "--max-wait", "0", "--config", str(config)]) == 1
    assert "No agent of" in capsys.readouterr().out
    assert cli.main(["status", "--config", str(config)]) == 1


def test_what_was_written_down_and_is_damaged_is_named(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (config.parent / "state/upgrade.json").write_text("{")
    assert cli.main(["upgrade", "after", "--max-wait", "0", "--config", str(config)]) == 1
    assert "upgrade.json is damaged" in capsys.readouterr().err


def test_a_state_that_cannot_be_written_is_named(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (config.parent / "state/upgrade.json").mkdir()
    assert cli.main(["upgrade", "before", "--config", str(config)]) == 1
    assert "upgrade.json can't be written" in capsys.readouterr().err


def test_workers_are_read_from_their_journals_and_from_proc(config: Path) -> None:
    folder = config.parent / "state/workers/j-1/workerpool0-0"
    boot, own = shim_files.boot_id(), os.getpid()
    ticks = shim_files.start_ticks(own)
    intent: dict[str, object] = {"ev": "intent", "ranks": [0, 1, 2], "boot_id": boot}
    ended: dict[str, object] = {"ev": "exited", "end_time": 1.0, "message": "", "stderr_tail": []}
    journal(folder, 1, intent, {**ended, "rank": 0, "status": 9, "reason": "STOPPED"})
    journal(
        folder,
        2,
        intent,
        {"ev": "started", "rank": 0, "pid": own, "start_ticks": ticks},
        {"ev": "started", "rank": 1, "pid": own, "start_ticks": 1},
        {**ended, "rank": 1, "status": 256, "reason": "NONZERO_EXIT"},
        {**ended, "rank": 2, "status": None, "reason": "LOST_SHIM_DIED"},
    )
    (folder / "shim.json").write_text(json.dumps({"pid": own, "start_ticks": ticks, "boot_id": "another"}))
    (worker,) = take(config.parent / "state").workers
    assert (worker.name, worker.generation, worker.shim) == ("j-1/workerpool0-0", 2, None)
    assert {rank: found.pid for rank, found in worker.ranks.items()} == {0: own}, "rank 1's pid is another's now"
    assert worker.ends == {
        (1, 0): "STOPPED, signal 9",
        (2, 1): "NONZERO_EXIT, code 1",
        (2, 2): "LOST (LOST_SHIM_DIED)",
    }
