"""The Ansible role by its text: it can be run again without harm, and shows no token."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ANSIBLE = Path(__file__).parents[3] / "deploy/ansible"
ROLE = ANSIBLE / "roles/holdfast"
FILES = sorted((ROLE / "tasks").glob("*.yml"))
BESIDE = Path(sys.executable).with_name("ansible-playbook")
PLAYBOOK = str(BESIDE) if BESIDE.exists() else shutil.which("ansible-playbook")
KEYWORDS = frozenset(
    {"name", "when", "loop", "loop_control", "vars", "register", "changed_when", "no_log"}
    | {"delegate_to", "environment", "block", "failed_when", "notify", "become"}
)


def tasks(path: Path) -> Iterator[dict[str, Any]]:
    """Those of blocks too."""
    found = list(yaml.safe_load(path.read_text()))
    for task in found:
        yield task
        found += task.get("block", [])


def module(task: dict[str, Any]) -> str:
    (name,) = task.keys() - KEYWORDS or {"block"}
    return name


every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


@every_file
def test_every_task_has_a_name_and_one_module_by_its_full_name(path: Path) -> None:
    for task in tasks(path):
        assert task["name"]
        assert module(task) == "block" or module(task).startswith("ansible.builtin.")


@every_file
def test_commands_are_run_once(path: Path) -> None:
    for task in tasks(path):
        if module(task) == "ansible.builtin.command":
            assert "creates" in task[module(task)] or task.get("register"), task["name"]


@every_file
def test_what_handles_tokens_is_not_logged(path: Path) -> None:
    for task in tasks(path):
        if module(task) != "block" and "token" in str(task[module(task)]):
            assert task.get("no_log") is True, task["name"]


@every_file
def test_files_that_tasks_include_exist(path: Path) -> None:
    for task in tasks(path):
        if module(task) == "ansible.builtin.include_tasks":
            assert (ROLE / "tasks" / task["ansible.builtin.include_tasks"]).is_file()


def test_every_variable_has_a_default_or_is_made_by_a_task() -> None:
    text = "".join(path.read_text() for path in FILES)
    known = set(yaml.safe_load((ROLE / "defaults/main.yml").read_text()))
    known |= set(re.findall(r"(?:register|loop_var): (holdfast_\w+)", text))
    known |= set(re.findall(r"^ +(holdfast_\w+):", text, re.MULTILINE))
    assert set(re.findall(r"holdfast_\w+", text)) <= known | {"holdfast_controller"}, "a group, or known"


def test_a_passphrase_is_not_logged_and_nothing_of_the_backup_stays() -> None:
    found = list(tasks(ROLE / "tasks/further_controller.yml"))
    for task in found:
        if module(task) != "block" and "holdfast_passphrase" in str(task[module(task)]):
            assert task.get("no_log") is True, task["name"]
    left = " ".join(str(task) for task in found if task.get("ansible.builtin.file", {}).get("state") == "absent")
    assert all(name in left for name in ("holdfast_backup_file", "holdfast-join.pass", "holdfast_on_the_way"))


def test_the_playbook_uses_the_role_for_both_parts() -> None:
    plays = yaml.safe_load((ANSIBLE / "site.yml").read_text())
    used = [(play["hosts"], play["roles"][0]["holdfast_part"]) for play in plays]
    assert used == [("holdfast_controller", "controller"), ("holdfast_hosts", "agent")]


@pytest.mark.skipif(PLAYBOOK is None, reason="there is no ansible-playbook here")
def test_ansible_understands_every_line(tmp_path: Path) -> None:
    command = [
        str(PLAYBOOK),
        "--syntax-check",
        "-i",
        str(ANSIBLE / "inventory.example.ini"),
        str(ANSIBLE / "site.yml"),
    ]
    (tmp_path / "ansible.cfg").touch()
    env = os.environ | {"ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"), "ANSIBLE_HOME": str(tmp_path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
