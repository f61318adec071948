"""``dev start`` and ``dev stop`` on real processes and a real TLS link; only the daemons are stand-ins."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import dev
from holdfast._security import pki
from holdfast.dev import daemons, processes, readiness, starting, stopping
from holdfast.dev.processes import Process
from holdfast.errors import ConfigError, Unavailable, WrongState

STAND_INS = Path(__file__).parents[2] / "support/stand_ins"

SHIM = """
import ctypes, json, os, signal, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
folder, stubborn = sys.argv[1:]
rank = subprocess.Popen([sys.executable, '-c', stubborn], start_new_session=True)
ticks = int(open('/proc/self/stat').read().rpartition(') ')[2].split()[19])
boot = open('/proc/sys/kernel/random/boot_id').read().strip()
os.makedirs(folder)
open(folder + '/shim.json.new', 'w').write(json.dumps({'pid': os.getpid(), 'start_ticks': ticks, 'boot_id': boot}))
os.rename(folder + '/shim.json.new', folder + '/shim.json')
while True:
    try:
        os.wait()
    except ChildProcessError:
        time.sleep(0.05)
"""
RANK = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(2):
    if not os.fork():
        os.setsid()
        os.fork()
time.sleep(600)
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PYTHONPATH", str(STAND_INS))
    directory = tmp_path / "dev"
    yield directory
    monkeypatch.undo()
    if (directory / "dev.toml").exists():
        dev.stop(directory)
    assert not left(directory)


def left(directory: Path) -> list[tuple[str, ...]]:
    """Command lines of live processes that mention the directory."""
    lines = (processes.arguments(pid) for pid in processes.snapshot() if pid != os.getpid())
    return [line for line in lines if any(str(directory) in word for word in line)]


def pid(directory: Path, name: str) -> int:
    where = "controller.pid" if name == "controller" else f"hosts/{name}/agent.pid"
    return int((directory / where).read_text())


def kill(directory: Path, name: str) -> None:
    victim = processes.stat(pid(directory, name))
    assert victim is not None
    os.kill(victim.process.pid, signal.SIGKILL)
    assert not processes.wait_all({victim.process}, 20)
    processes.exit_status(victim.process)


def start_worker(directory: Path, host: str, job: str) -> Process:
    """A stand-in for a shim and its ranks, which refuse TERM and fork grandchildren into other sessions."""
    folder = directory / "hosts" / host / "state/workers" / job / "workerpool0-0"
    env = {**os.environ, "HOLDFAST_JOB": job, "HOLDFAST_HOST": host}
    shim = processes.spawn((sys.executable, "-c", SHIM, str(folder), RANK), directory / "shim.log", env)
    until(lambda: (folder / "shim.json").exists())
    return shim


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def ranks(job: str) -> list[int]:
    return [p for p in processes.snapshot() if processes.environment(p).get("HOLDFAST_JOB") == job]


def test_start_returns_when_all_is_ready(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dev.start(cluster, hosts=2, gpus=4)
    for name in ("controller", "host-0", "host-1"):
        running = processes.stat(pid(cluster, name))
        assert running is not None and running.session == running.process.pid
    assert (cluster / "hosts/host-1/hello").read_text() == (cluster / "hosts/host-1/agent.pid").read_text().strip()
    said = capsys.readouterr()
    assert said.out == ""
    assert f"export HOLDFAST_CONFIG={cluster}/client.toml" in said.err
    assert "host-1      4 simulated GPUs" in said.err


def test_files_are_private(cluster: Path) -> None:
    dev.start(cluster)
    assert stat.S_IMODE(cluster.stat().st_mode) == 0o700
    keys = [path.relative_to(cluster).as_posix() for path in cluster.rglob("*.key")]
    assert sorted(keys) == ["hosts/host-0/agent.key", "pki/ca.key", "pki/controller.key", "pki/user.key"]
    assert {stat.S_IMODE((cluster / key).stat().st_mode) for key in keys} == {0o600}


def test_start_again_starts_only_what_is_dead(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dev.start(cluster, hosts=2)
    before = {name: pid(cluster, name) for name in ("controller", "host-0", "host-1")}
    kept = {p: p.read_bytes() for p in cluster.rglob("*") if p.suffix in (".pem", ".key", ".toml")}
    kill(cluster, "host-1")
    dev.start(cluster)
    after = {name: pid(cluster, name) for name in before}
    assert {name for name in before if before[name] != after[name]} == {"host-1"}
    assert (cluster / "hosts/host-1/hello").read_text() == str(after["host-1"])
    assert {p: p.read_bytes() for p in kept} == kept
    assert "was running" in capsys.readouterr().err
    kill(cluster, "controller")
    dev.start(cluster)
    assert pid(cluster, "host-0") == after["host-0"]
    assert pid(cluster, "controller") != after["controller"]


def test_start_of_a_running_cluster_changes_nothing(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dev.start(cluster)
    before = pid(cluster, "host-0")
    dev.start(cluster)
    assert pid(cluster, "host-0") == before
    assert "Everything was running already." in capsys.readouterr().err


def test_lost_pid_file_does_not_start_a_daemon_twice(cluster: Path) -> None:
    dev.start(cluster)
    for path in ("controller.pid", "hosts/host-0/agent.pid"):
        (cluster / path).unlink()
    dev.start(cluster)
    assert not (cluster / "controller.pid").exists()
    assert len(left(cluster)) == 2


def test_hosts_may_grow(cluster: Path) -> None:
    dev.start(cluster, gpus=2)
    before = pid(cluster, "host-0")
    dev.start(cluster, hosts=2)
    assert pid(cluster, "host-0") == before
    settings = [(cluster / f"hosts/host-{i}/agent.toml").read_text() for i in range(2)]
    assert all("simulated_gpus = 2\n" in text for text in settings)
    ranges = [next(line for line in text.splitlines() if "port_range" in line) for text in settings]
    assert len(set(ranges)) == 2


def test_edited_settings_are_kept(cluster: Path) -> None:
    dev.start(cluster)
    settings = cluster / "controller.toml"
    settings.write_text(settings.read_text() + "# mine\n")
    kill(cluster, "controller")
    dev.start(cluster)
    assert settings.read_text().endswith("# mine\n")


def test_start_that_was_cut_short_is_completed(cluster: Path) -> None:
    dev.start(cluster)
    dev.stop(cluster)
    (cluster / "pki/ca.pem").unlink()
    (cluster / "hosts/host-0/agent.toml").unlink()
    dev.start(cluster)
    assert pki.remaining(cluster / "hosts/host-0/agent.pem").days > 300


def test_daemon_that_fails_is_shown_and_nothing_is_left(cluster: Path) -> None:
    dev.start(cluster)
    dev.stop(cluster)
    (cluster / "hosts/host-0/mood").write_text("fail")
    with pytest.raises(Unavailable) as failure:
        dev.start(cluster)
    said = str(failure.value)
    assert said.startswith("The agent of host-0 exited with 3 before all was ready.")
    assert said.endswith("\n    first line\n    this agent is told to fail")
    assert not left(cluster)
    assert not list(cluster.rglob("*.pid"))


def test_failure_leaves_alone_what_was_running(cluster: Path) -> None:
    dev.start(cluster)
    before = [pid(cluster, name) for name in ("controller", "host-0")]
    (cluster / "hosts/host-1").mkdir()
    (cluster / "hosts/host-1/mood").write_text("fail")
    with pytest.raises(Unavailable, match="host-1 exited with 3"):
        dev.start(cluster, hosts=2)
    assert [pid(cluster, name) for name in ("controller", "host-0")] == before
    assert len(left(cluster)) == 2


def test_controller_that_fails_is_shown(cluster: Path) -> None:
    dev.start(cluster)
    dev.stop(cluster)
    with (cluster / "controller.toml").open("a") as settings:
        settings.write('fail = "disk on fire"\n')
    with pytest.raises(Unavailable, match=r"The controller exited with 1 .*\n.*disk on fire"):
        dev.start(cluster)


def test_agent_that_never_gets_ready_runs_out_of_time(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dev.start(cluster)
    kill(cluster, "host-0")  # and the controller answers at once
    (cluster / "hosts/host-0/mood").write_text("mute")
    monkeypatch.setattr(readiness, "READY_S", 2.0)
    with pytest.raises(Unavailable, match=r"host-0 is not ready after 2 s: .* since it was started"):
        dev.start(cluster)
    dev.stop(cluster)
    assert not left(cluster)


def test_interrupted_start_leaves_nothing(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> dict[str, str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"{starting.__name__}.readiness.hosts", interrupt)
    with pytest.raises(KeyboardInterrupt):
        dev.start(cluster)
    assert not left(cluster)


def test_contradicting_port_is_refused(cluster: Path) -> None:
    dev.start(cluster)
    with pytest.raises(ConfigError, match="--port 1234: this cluster has listened on"):
        dev.start(cluster, port=1234)


def test_only_one_start_or_stop_at_a_time(cluster: Path) -> None:
    dev.start(cluster)
    with (cluster / "dev.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(WrongState, match="is at work"):
            dev.start(cluster)
        with pytest.raises(WrongState, match="is at work"):
            dev.stop(cluster)


def test_folder_with_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(ConfigError, match="is not empty and holds no dev cluster"):
        dev.start(tmp_path)
    with pytest.raises(ConfigError, match="There is no dev cluster in"):
        dev.stop(tmp_path)
    with pytest.raises(ConfigError, match=r"Cannot use .*precious: "):
        dev.start(tmp_path / "precious")
    assert [p.name for p in tmp_path.iterdir()] == ["precious"]


def test_broken_record_is_named(cluster: Path) -> None:
    cluster.mkdir()
    for broken in ("port = 1\nport_ranges = []\ngpus = []", 'port = 1\nport_ranges = ["x"]\ngpus = [0]', "port ="):
        (cluster / "dev.toml").write_text(broken)
        with pytest.raises(ConfigError, match=r"dev\.toml"):
            dev.start(cluster)
    (cluster / "dev.toml").unlink()


def test_stop_leaves_no_process(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dev.start(cluster, hosts=2)
    shim = start_worker(cluster, "host-0", "job-a")
    until(lambda: len(ranks("job-a")) == 10)
    capsys.readouterr()
    dev.stop(cluster)
    assert not ranks("job-a") and not left(cluster)
    assert not list(cluster.rglob("*.pid"))
    assert "3 daemons and 10 processes of workers. Nothing is left." in capsys.readouterr().err
    processes.exit_status(shim)


def test_stop_finds_ranks_whose_shim_is_dead(cluster: Path) -> None:
    dev.start(cluster)
    shim = start_worker(cluster, "host-0", "job-b")
    until(lambda: len(ranks("job-b")) == 10)
    processes.send(shim, signal.SIGKILL)
    assert not processes.wait_all({shim}, 20)
    processes.exit_status(shim)
    assert len(ranks("job-b")) == 9
    dev.stop(cluster)
    assert not ranks("job-b")


def test_stop_ends_workers_though_the_daemons_are_dead(cluster: Path) -> None:
    dev.start(cluster)
    shim = start_worker(cluster, "host-0", "job-c")
    kill(cluster, "controller")
    kill(cluster, "host-0")
    dev.stop(cluster)
    assert not ranks("job-c")
    processes.exit_status(shim)


def test_stop_spares_jobs_of_other_clusters(cluster: Path) -> None:
    dev.start(cluster)
    strangers = [{"HOLDFAST_JOB": "job-d", "HOLDFAST_HOST": "host-0"}, {"HOLDFAST_JOB": "mine"}]
    (cluster / "hosts/host-0/logs/mine").mkdir(parents=True)
    others = [subprocess.Popen(["sleep", "60"], env=env) for env in strangers]
    ours = subprocess.Popen(["sleep", "60"], env={"HOLDFAST_JOB": "mine", "HOLDFAST_HOST": "host-0"})
    try:
        dev.stop(cluster)
        assert [other.poll() for other in others] == [None, None]
        assert ours.wait(10) == -signal.SIGKILL
    finally:
        for each in (*others, ours):
            each.kill()
            each.wait()


def test_stop_ends_what_an_agent_leaves_behind(cluster: Path) -> None:
    dev.start(cluster)
    dev.stop(cluster)
    (cluster / "hosts/host-0/mood").write_text("helper")
    dev.start(cluster)
    agent = pid(cluster, "host-0")
    until(lambda: any(s.parent == agent for s in processes.snapshot().values()))
    helper = next(s.process for s in processes.snapshot().values() if s.parent == agent)
    dev.stop(cluster)
    assert not processes.lives(helper)


def test_stop_ignores_shims_of_an_earlier_boot_and_torn_files(cluster: Path) -> None:
    dev.start(cluster)
    mine = processes.stat(os.getpid())
    assert mine is not None
    old = {"pid": mine.process.pid, "start_ticks": mine.process.start_ticks, "boot_id": "another"}
    for job, text in (("old", json.dumps(old)), ("torn", '{"pid": 1'), ("odd", "[]")):
        folder = cluster / "hosts/host-0/state/workers" / job / "workerpool0-0"
        folder.mkdir(parents=True)
        (folder / "shim.json").write_text(text)
    dev.stop(cluster)


def test_daemon_that_ignores_term_is_killed(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dev.start(cluster)
    dev.stop(cluster)
    (cluster / "hosts/host-0/mood").write_text("stubborn")
    dev.start(cluster)
    monkeypatch.setattr(daemons, "GRACE_S", 0.5)
    dev.stop(cluster)
    assert not left(cluster)


def test_what_can_not_be_killed_is_named(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dev.start(cluster)
    shim = start_worker(cluster, "host-0", "job-e")
    with monkeypatch.context() as patch:
        patch.setattr(stopping, "WORKERS_S", 0.2)
        patch.setattr(f"{stopping.__name__}.processes.send", lambda *_: None)
        patch.setattr(daemons, "GRACE_S", 0.1)
        patch.setattr(daemons, "KILL_S", 0.1)
        with pytest.raises(Unavailable, match=rf"Processes are left: .*{shim.pid} \(python\S*, outlives SIGKILL"):
            dev.stop(cluster)
    dev.stop(cluster)
    processes.exit_status(shim)


def test_stop_of_a_stopped_cluster_says_so(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dev.start(cluster)
    dev.stop(cluster)
    capsys.readouterr()
    dev.stop(cluster)
    assert capsys.readouterr().err == f"The dev cluster in {cluster} is not running.\n"


def test_stopped_cluster_starts_again_with_the_same_port(cluster: Path) -> None:
    dev.start(cluster)
    before = (cluster / "client.toml").read_text()
    dev.stop(cluster)
    dev.start(cluster)
    assert (cluster / "client.toml").read_text() == before


def test_daemons_do_not_inherit_the_marks_of_a_rank(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOLDFAST_JOB", "HOLDFAST_HOST", "HOLDFAST_CONFIG"):
        monkeypatch.setenv(name, "elsewhere")
    dev.start(cluster)
    env = processes.environment(pid(cluster, "controller"))
    # These are the test run's own.
    assert {name for name in env if name.startswith("HOLDFAST_")} <= {"HOLDFAST_REQUIRE", "HOLDFAST_STALLS"}
