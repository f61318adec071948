"""As whom a worker runs on a host: the host's own rules, the look-up, and how it gets to the ranks."""

from __future__ import annotations

import os
import pwd
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.agent.desired import FACTS, KEY, LAUNCH, RENDEZVOUS, desired
from tests.unit.agent.test_agent_config import load

from holdfast._session.assignment import Phase
from holdfast.errors import ConfigError
from holdfast_agent.core.launch.accounts import AccountRules, why_not
from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.core.worker import actions as act
from holdfast_agent.core.worker import events as ev
from holdfast_agent.core.worker.reactor import Reactor
from holdfast_agent.shell import config
from holdfast_agent.shell.users.accounts import Accounts, NoAccount

ROOTS = AccountRules(agent_uid=0, worker_user="trainer", allowed=frozenset({"www-data"}))
ANN = WorkerUser("ann", "/home/ann", "/bin/zsh", 1001, 1001, (1001, 44))


@pytest.mark.parametrize(
    ("name", "uid", "rules", "problem"),
    [
        ("ann", 1000, ROOTS, ""),
        ("trainer", 990, ROOTS, ""),
        ("www-data", 33, ROOTS, ""),
        ("www-data", 33, replace(ROOTS, allowed=frozenset()), "www-data has uid 33 here, and those below 1000 are"),
        ("backup", 34, ROOTS, "backup has uid 34 here, and those below 1000 are"),
        ("ann", 1001, replace(ROOTS, lowest_uid=5000), "ann has uid 1001 here, and those below 5000 are"),
        ("root", 0, ROOTS, "root has uid 0 here"),
        ("toor", 0, replace(ROOTS, allowed=frozenset({"toor"})), "toor has uid 0 here"),
        ("trainer", 0, ROOTS, "trainer has uid 0 here"),
        ("root", 0, replace(ROOTS, root_allowed=True), ""),
        ("ann", 1001, replace(ROOTS, agent_uid=1002), "only an agent that runs as root starts workers as ann"),
        ("root", 0, replace(ROOTS, agent_uid=1002, root_allowed=True), "only an agent that runs as root"),
        ("me", 1002, replace(ROOTS, agent_uid=1002), ""),
    ],
)
def test_the_host_says_whom_work_may_run_as(name: str, uid: int, rules: AccountRules, problem: str) -> None:
    found = why_not(name, uid, rules)
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


def entry(name: str, uid: int) -> pwd.struct_passwd:
    return pwd.struct_passwd((name, "x", uid, uid, "", f"/home/{name}", "/bin/sh"))


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch) -> dict[str, pwd.struct_passwd]:
    """The accounts of the host, as far as it is asked."""
    known: dict[str, pwd.struct_passwd] = {}
    monkeypatch.setattr(pwd, "getpwnam", lambda name: known[name])
    monkeypatch.setattr(os, "getgrouplist", lambda name, gid: [gid, 44])
    return known


def test_an_account_is_looked_up_each_time_and_remembered_for_restarts(
    directory: dict[str, pwd.struct_passwd],
) -> None:
    accounts = Accounts(FACTS.user, ROOTS)
    assert accounts.look_up("") is accounts.at_hand("") is FACTS.user
    assert accounts.at_hand("ann") is None
    directory["ann"] = entry("ann", 1001)
    assert accounts.look_up("ann") == WorkerUser("ann", "/home/ann", "/bin/sh", 1001, 1001, (1001, 44))
    directory["ann"] = entry("ann", 1002)
    assert accounts.at_hand("ann") is not None and accounts.at_hand("ann").uid == 1001  # type: ignore[union-attr]
    assert accounts.look_up("ann").uid == 1002
    del directory["ann"]
    for _ in range(2):
        with pytest.raises(NoAccount, match="the account ann was there before and isn't found any more") as gone:
            accounts.look_up("ann")
        assert gone.value.host_fault, "its directory service may be away"
    assert accounts.at_hand("ann") is not None, "a restart in place needs no look-up"


def test_what_is_refused_is_not_remembered(directory: dict[str, pwd.struct_passwd]) -> None:
    accounts = Accounts(FACTS.user, ROOTS)
    directory["bin"] = entry("bin", 2)
    with pytest.raises(NoAccount, match="bin has uid 2 here"):
        accounts.look_up("bin")
    assert accounts.at_hand("bin") is None


@pytest.mark.parametrize("name", ["\0", "no\nsuch", "1000"])
def test_what_is_no_name_is_nobodys(name: str) -> None:
    with pytest.raises(NoAccount, match="there is no account") as found:
        Accounts(FACTS.user, ROOTS).look_up(name)
    assert not found.value.host_fault


def test_the_account_gets_to_the_ranks_and_their_environment() -> None:
    made = Reactor(FACTS)
    made.step(ev.Dialled(), 0)
    made.step(ev.Welcomed(1), 0)
    launch = replace(LAUNCH, task=replace(LAUNCH.task, account="ann"))
    made.step(ev.Assigned(desired(Phase.PREPARE, launch=launch)), 1)
    made.step(ev.WorkerPrepared(KEY, 1, 20000, 20001, 7, user=ANN), 2)
    run = desired(Phase.RUN, launch=replace(launch, rendezvous=RENDEZVOUS))
    [order] = [a for a in made.step(ev.Assigned(run), 3) if isinstance(a, act.LaunchRanks)]
    assert order.user == ANN
    env = order.ranks[0].env
    assert (env["HOME"], env["USER"], env["LOGNAME"], env["SHELL"]) == ("/home/ann", "ann", "ann", "/bin/zsh")
    assert order.ranks[0].cwd == "/scratch/job-1"


def test_settings_of_accounts_are_read_and_checked(tmp_path: Path) -> None:
    loaded = load(tmp_path, 'lowest_uid = 2000\nallowed_accounts = ["www-data"]\numask = "027"\n')
    assert (loaded.lowest_uid, loaded.allowed_accounts, loaded.umask) == (2000, ("www-data",), "027")
    assert config.accounts(loaded, ANN).rules.allowed == {"www-data"}
    for line, words in {
        'umask = "9"': r"umask '9' is no mask",
        'umask = "0o22"': r"umask '0o22' is no mask",
        "lowest_uid = 0": "lowest_uid must be at least 1.*allow_root_workers",
        'allowed_accounts = ["33"]': "allowed_accounts: '33' is no account's name",
    }.items():
        with pytest.raises(ConfigError, match=words):
            load(tmp_path, line)
