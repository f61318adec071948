"""Wrong settings end a daemon for good and name the line; right ones are checked, and read again, while all runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cli_cluster import until
from tests.e2e.site import WITHIN_S, Site, made

LIFE_S = 3600


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with made(tmp_path_factory.mktemp("settings")) as site:
        site.make(LIFE_S, LIFE_S)
        site.join("h1")
        until(lambda: "READY" in site.holdfast("etc/admin", "host", "list").stdout, WITHIN_S)
        yield site


@pytest.fixture
def settings(site: Site) -> Iterator[Path]:
    """Of the controller; as they were, afterwards."""
    file = site.root / "etc/controller.toml"
    before = file.read_text()
    yield file
    file.write_text(before)
    assert reload(site)[0] == 0


def controller(site: Site, *words: str) -> tuple[int, str]:
    """A command on the controller's machine: its exit code and all that it says."""
    done = site.command("holdfast_controller", *words, check=False)
    return done.returncode, done.stdout + done.stderr


def reload(site: Site) -> tuple[int, str]:
    return controller(site, "reload", "--config", str(site.root / "etc/controller.toml"))


def events(site: Site, name: str, event: str) -> list[dict[str, Any]]:
    """Lines of a daemon's log."""
    lines = [json.loads(line) for line in site.log(name).splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


def line_of(file: Path, text: str) -> int:
    return next(number for number, line in enumerate(file.read_text().splitlines(), 1) if text in line)


WRONG = {
    "lisen": ('lisen = "0.0.0.0:1"', "unknown key 'lisen'. Did you mean listen?"),
    "type": ('max_jobs = "many"', "max_jobs must be a whole number, not 'many'."),
    "word": ('hang_action = "RESTRAT"', "hang_action is 'RESTRAT'. Write NOTIFY or RESTART or OFF."),
    "level": ('log_level = "verbos"', "log_level: 'verbos' is unknown."),
    "times": ("lease = 70", "lease is 70 s; with lost_after at 66 s"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_controller_with_a_typo_ends_with_2_and_says_where_it_is(site: Site, tmp_path: Path, case: str) -> None:
    line, problem = WRONG[case]
    file = tmp_path / "controller.toml"
    file.write_text(f"{line}\n" + (site.root / "etc/controller.toml").read_text())
    for words in ([], ["--check"]):
        code, said = controller(site, "--config", str(file), *words)
        assert code == 2, said
        assert f"holdfast-controller: {file}:1: {problem}" in said and said.count("\n") == 1


def test_a_typo_in_a_table_is_found_on_its_line(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "controller.toml"
    text = (site.root / "etc/controller.toml").read_text()
    file.write_text(f"{text}\n[quotas.llm]\ngpus = 4\n\n[quotas.'*']\nrunning_job = 3\n")
    code, said = controller(site, "--config", str(file), "--check")
    expected = (
        f"{file}:{line_of(file, 'running_job')}: unknown key 'quotas.*.running_job'. Did you mean running_jobs?"
    )
    assert code == 2 and expected in said


def test_an_agent_with_a_typo_ends_with_2_and_says_where_it_is(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text((site.root / "h1/agent.toml").read_text() + '[hooks]\nprolog = ["prolog.sh"]\n')
    for words in ([], ["--check"]):
        done = site.command("holdfast_agent", "--config", str(file), *words, check=False)
        where = f"{file}:{line_of(file, 'prolog =')}: [hooks] prolog must begin with a program's absolute path."
        assert (done.returncode, where in done.stderr) == (2, True), done.stderr


def test_a_port_that_is_taken_is_tried_again(site: Site, tmp_path: Path) -> None:
    """With 1, so that a supervisor starts it again: the port may be free then."""
    client = (site.root / "etc/admin/client.toml").read_text()
    taken = client.split('controller = "127.0.0.1:')[1].split('"')[0]
    file = tmp_path / "controller.toml"
    text = (site.root / "etc/controller.toml").read_text().replace("127.0.0.1:0", f"127.0.0.1:{taken}", 1)
    file.write_text(text.replace(str(site.root / "state") + '"', f'{tmp_path / "state"}"', 1))
    code, said = controller(site, "--config", str(file))
    assert (code, "Cannot listen on" in said) == (1, True), said


def test_settings_that_are_right_are_said_to_be_so(site: Site) -> None:
    file = site.root / "etc/controller.toml"
    assert controller(site, "--config", str(file), "--check") == (0, f"{file}: no problem found.\n")
    agent = site.root / "h1/agent.toml"
    done = site.command("holdfast_agent", "--config", str(agent), "--check")
    assert done.stdout == f"{agent}: no problem found.\n"


def test_a_check_reads_what_the_settings_name(site: Site, tmp_path: Path) -> None:
    """All of it, with each problem on a line."""
    file = tmp_path / "controller.toml"
    text = (site.root / "etc/controller.toml").read_text()
    state = site.root / "state"
    (tmp_path / "other.key").write_text("no key")
    text = text.replace(f'key = "{state}/controller.key"', f'key = "{tmp_path}/other.key"')
    text = text.replace(f'ca_directory = "{state}/ca"', f'ca_directory = "{tmp_path}/ca"')
    (tmp_path / "fence").write_text("#!/bin/sh\n")
    text += f'[fence]\ncommand = ["{tmp_path}/fence"]\n'
    file.write_text(f'{text}[[notifications]]\nname = "ops"\nurl = "https://h.example/x"\nevents = ["ENDED"]\n')
    code, said = controller(site, "--config", str(file), "--check")
    lines = said.splitlines()
    assert code == 2 and len(lines) == 4
    assert "no event is called 'ENDED'" in lines[0] and f"{file}:{line_of(file, '[[notif')}: " in lines[0]
    assert f"{tmp_path}/other.key" in lines[1] and f"{tmp_path}/ca/ca.pem" in lines[2]
    assert f"fence.command: {tmp_path}/fence is no program" in lines[3] and "chmod 755" in lines[3]


def test_an_agents_check_reads_certificates_and_hooks(site: Site, tmp_path: Path) -> None:
    file = site.root / "h1/checked.toml"
    text = (site.root / "h1/agent.toml").read_text().replace('name = "h1"', 'name = "h2"')
    file.write_text(f'{text}[hooks]\nepilog = ["{tmp_path}/none.sh"]\n')
    done = site.command("holdfast_agent", "--config", str(file), "--check", check=False)
    assert done.returncode == 2
    assert "is the certificate of host h1, and name is 'h2'" in done.stderr
    assert f"{file}:{line_of(file, 'epilog')}: [hooks] epilog: {tmp_path}/none.sh is no program" in done.stderr


def test_quotas_and_admins_change_without_a_restart(site: Site, settings: Path) -> None:
    text = settings.read_text()
    settings.write_text(f"{text}[quotas.default]\nrunning_jobs = 0\n")
    assert reload(site) == (0, "Changed: quotas.\n")
    run = ("run", "--detach", "--", "true")
    assert "may run no jobs" in site.holdfast("etc/admin", *run, check=False).stderr
    settings.write_text(f"{text}[quotas.default]\ngpus = 0\n")
    os.kill(site.daemons["controller"].pid, signal.SIGHUP)
    until(lambda: "settings.reloaded" in site.log("controller").splitlines()[-1], WITHIN_S, "for the reload")
    job = site.holdfast("etc/admin", *run).stdout.strip()
    until(lambda: "SUCCEEDED" in site.holdfast("etc/admin", "job", "show", job).stdout, WITHIN_S)
    settings.write_text(text.replace('admins = ["ann"]', 'admins = ["ben"]'))
    assert reload(site) == (0, "Changed: quotas, admins.\n")
    assert "There is no user ann" in site.holdfast("etc/admin", "user", "list", check=False).stderr


def test_a_job_that_waits_for_its_quota_starts_once_it_is_raised(site: Site, settings: Path) -> None:
    text = settings.read_text()
    settings.write_text(f"{text}[quotas.default]\nrunning_jobs = 1\n")
    assert reload(site)[0] == 0
    first = site.holdfast("etc/admin", "run", "--detach", "--", "sleep", "300").stdout.strip()
    second = site.holdfast("etc/admin", "run", "--detach", "--", "true").stdout.strip()
    until(lambda: "Over quota" in site.holdfast("etc/admin", "job", "show", second).stdout, WITHIN_S)
    settings.write_text(f"{text}[quotas.default]\nrunning_jobs = 2\n")
    assert reload(site)[0] == 0
    until(lambda: "SUCCEEDED" in site.holdfast("etc/admin", "job", "show", second).stdout, WITHIN_S)
    site.holdfast("etc/admin", "cancel", first)


def test_a_dry_run_says_what_would_come_of_a_job(site: Site, settings: Path, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    pool = "{replicaCount: %d, machineSpec: {acceleratorCount: 1}, processSpec: {command: [sleep, '60']}}"
    file.write_text(f"displayName: tried\njobSpec:\n  workerPoolSpecs: [{pool % 1}]\n")
    dry = ("submit", "--dry-run", str(file))
    said = site.holdfast("etc/admin", *dry).stdout.splitlines()
    assert said[0] == "tried would start now:" and said[2].split() == ["workerpool0-0", "h1", "1"]
    found = json.loads(site.holdfast("etc/admin", *dry, "-o", "json").stdout)
    assert (found["starts"], found["waitReason"], found["workers"][0]["host"]) == (True, "", "h1")
    settings.write_text(settings.read_text() + "[quotas.default]\ngpus = 1\n")
    assert reload(site)[0] == 0
    running = site.holdfast("etc/admin", "submit", str(file)).stdout.strip()
    said = site.holdfast("etc/admin", *dry).stdout.splitlines()
    assert said == ["tried would wait: over quota: project default uses 1 of its 1 GPUs; this job needs 1"]
    file.write_text(f"jobSpec:\n  workerPoolSpecs: [{pool % 2}]\n")
    done = site.holdfast("etc/admin", *dry, check=False)
    assert done.returncode == 125 or done.returncode == 2, done
    assert (
        "more than one" in done.stderr or "may hold no more than 1" in done.stderr or "replicaCount" in done.stderr
    )
    site.holdfast("etc/admin", "cancel", running)
    jobs = json.loads(site.holdfast("etc/admin", "job", "list", "-o", "json").stdout)
    assert sum(job["displayName"] == "tried" for job in jobs) == 1


NO_CLASS = "[machine_types.all]\n"
"""A class of hosts that says nothing of them: an error that has a line of its own."""


def test_a_bad_file_changes_nothing_and_is_said_to(site: Site, settings: Path) -> None:
    text = settings.read_text()
    refused = len(events(site, "controller", "settings.refused"))
    for wrong in (
        "[quotas.llm]\ngpu = 1\n",
        '[[notifications]]\nname = "a b"\nurl = "https://x"\n',
        "[quotas\n",
        NO_CLASS,
    ):
        settings.write_text(f"log_level = 'debug'\n{text}{wrong}")
        code, said = reload(site)
        assert code == 2 and said.endswith(" Nothing was changed.\n")
        os.kill(site.daemons["controller"].pid, signal.SIGHUP)
        refused += 1 if "a b" not in wrong else 2
        until(
            lambda wanted=refused: len(events(site, "controller", "settings.refused")) >= wanted,  # type: ignore[misc]
            WITHIN_S,
            "for the controller to refuse it",
        )
        problem = events(site, "controller", "settings.refused")[-1]["error"]
        assert problem.count(str(settings)) == 1, "the file is named once"
    assert site.daemons["controller"].poll() is None
    assert not [line for line in site.log("controller").splitlines() if '"level": "debug"' in line]


def test_what_needs_a_restart_is_named_and_keeps_its_value(site: Site, settings: Path) -> None:
    text = settings.read_text()
    settings.write_text(f'log_level = "debug"\nmax_jobs = 7\naudit_days = 3\nhttp_port = 0\n{text}')
    code, said = reload(site)
    assert (code, said) == (0, "Changed: max_jobs, log_level.\nNeeds a restart: audit_days, http_port.\n")
    settings.write_text(text)
    assert reload(site) == (0, "Changed: max_jobs, log_level.\n")
    assert reload(site) == (0, "Nothing in it has changed.\n")


def test_an_agent_reads_its_settings_again(site: Site) -> None:
    file = site.root / "h1/agent.toml"
    text = file.read_text()

    def told(event: str, count: int) -> dict[str, Any]:
        os.kill(site.daemons["h1"].pid, signal.SIGHUP)
        until(lambda: len(events(site, "h1", event)) == count, WITHIN_S, f"for {event}")
        return events(site, "h1", event)[-1]

    try:
        file.write_text(f"{text}max_workers = 3\n[checks]\ndisk_free_mb = 999999999\n")
        said = told("settings.reloaded", 1)
        assert (said["changed"], said["needs_restart"]) == (["checks"], ["max_workers"])
        job = site.holdfast("etc/admin", "run", "--detach", "--", "true").stdout.strip()
        until(lambda: "MiB free" in site.holdfast("etc/admin", "host", "show", "h1").stdout, WITHIN_S)
        file.write_text(f"{text}[checks]\ndisc_free_mb = 1\n")
        assert f"{file}:{line_of(file, 'disc_free')}: unknown key" in told("settings.refused", 1)["error"]
        file.write_text(text)
        assert told("settings.reloaded", 2)["changed"] == ["checks"]
        site.holdfast("etc/admin", "host", "uncordon", "h1")
        until(lambda: "SUCCEEDED" in site.holdfast("etc/admin", "job", "show", job).stdout, WITHIN_S)
    finally:
        file.write_text(text)


def test_a_hangup_ends_no_daemon_that_starts(site: Site, tmp_path: Path) -> None:
    """Before it can reload, too: it has read its file just now."""
    for module, file in (("holdfast_controller", "etc/controller.toml"), ("holdfast_agent", "h1/agent.toml")):
        code = (
            f"import os, signal, sys\nfrom {module} import __main__ as daemon\n"
            f"from holdfast._daemon import instance_lock\n"
            f"def lock(*_):\n    os.kill(os.getpid(), signal.SIGHUP)\n    raise SystemExit(42)\n"
            f"import {module}.shell.main.{'server' if 'controller' in module else 'daemon'} as parts\n"
            f"daemon.only_one = parts.only_one = lock\n"
            f"sys.argv = ['x', '--config', {str(site.root / file)!r}]\nsys.exit(daemon.main())"
        )
        done = subprocess.run([sys.executable, "-c", code], timeout=180, capture_output=True, text=True)
        assert done.returncode == 42, done.stderr
