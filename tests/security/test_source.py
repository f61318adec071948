"""What the code must not contain: ways to run what somebody sends, and modes without a lock on the door."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click
import pytest

from holdfast.cli.app import root
from holdfast.settings import ClientSettings
from holdfast_agent.shell.config import Config
from holdfast_controller.shell.base.config import ControllerConfig

ROOT = Path(__file__).parents[2]
FOLDERS = ("client", "controller", "agent", "deploy", "build_hooks", "examples")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if "v1" not in path.parts)
IMPORTS = {
    "pickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "xmlrpc",
    "telnetlib",
    "commands",
    "tarfile",
    "zipfile",
}
READS_ARCHIVES = (
    ("client/holdfast/bundles/archive.py", "tarfile"),
    ("controller/holdfast_controller/shell/backup/backup.py", "tarfile"),
    ("controller/holdfast_controller/shell/backup/unpacking.py", "tarfile"),
    ("agent/holdfast_agent/shell/evidence/flight_dump.py", "pickle"),
)
"""Its headers, and its content read by ourselves: none of them lets it unpack anything. The pickle's reader looks no
name up, in a process of its own without rights."""
BY_ANYBODY = {"eval", "exec", "compile", "__import__"}
CALLS = {
    "os.system": "a shell",
    "os.popen": "a shell",
    "subprocess.getoutput": "a shell",
    "subprocess.getstatusoutput": "a shell",
    "asyncio.create_subprocess_shell": "a shell",
    "tempfile.mktemp": "a name that somebody else may take",
    "yaml.load": "any object",
    "yaml.load_all": "any object",
    "yaml.unsafe_load": "any object",
    "yaml.full_load": "any object",
    "grpc.insecure_channel": "no TLS",
    "grpc.aio.insecure_channel": "no TLS",
    "ssl._create_unverified_context": "no check of certificates",
    "shutil.unpack_archive": "whatever an archive names",
}
METHODS = {"extractall": "whatever an archive names", "add_insecure_port": "no TLS"}
ATTRIBUTES = {"CERT_NONE": "no check of certificates", "CERT_OPTIONAL": "no check of certificates"}
LOOKS_ONLY = "client/holdfast/doctor/looks.py"
"""Its client is one end of a handshake in memory, with itself: the server end is the one that judges."""
BY_PATH = {"os.chown", "os.lchown", "shutil.rmtree", "shutil.chown"}
"""Where the agent is root these go by descriptors: ``shell/users/safe_paths.py``."""
IN_OUR_OWN_FOLDERS = {
    (
        "agent/holdfast_agent/shell/packages/environments.py",
        "os.chown",
    ),  # of a name in a folder of the agent's alone
    (
        "agent/holdfast_agent/shell/packages/unpack.py",
        "os.chown",
    ),  # in the staging folder, which nobody else enters
}
DECIDES_ON_ACCESS = (
    "core/access/rules.py",
    "core/access/users.py",
    "shell/calls/authz.py",
    "shell/calls/rpc.py",
    "shell/enrolment/service.py",
)
EXAMPLES = ("examples", "deploy")
OF_THE_JOB = {("agent/holdfast_agent/shim/warm/hook/sitecustomize.py", name) for name in ("__import__", "exec")}
"""Runs as the job's user, in the job's own process: imports what the job's program imported before, and runs what its
Python has run out of .pth files.
"""
OF_OUR_CLASSES = {("client/holdfast/_base/dataclass.py", "exec")}
"""Writes methods of our classes, as the standard library's dataclasses do: with names of fields in them, no values."""
_MESSAGE = re.compile(r"[a-z]+_pb2\.[A-Z]\w+$")
"""A message of ours, which may have a field of any name."""


def dotted(node: ast.expr) -> str:
    """``os.path.join`` of such an expression; empty for any other."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""


def findings(source: str, file: str = "x.py") -> list[str]:
    """What of a module must not be there."""
    return [f"{file}:{getattr(node, 'lineno', 0)}: {found}" for node, found in _found(ast.parse(source), file)]


def _found(tree: ast.Module, file: str) -> Iterator[tuple[ast.AST, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Import() | ast.ImportFrom():
                named = (
                    [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                )
                for name in named:
                    if name.split(".")[0] in IMPORTS and (file, name) not in READS_ARCHIVES:
                        yield node, f"imports {name}"
            case ast.Attribute(attr=attr) if attr in ATTRIBUTES and file != LOOKS_ONLY:
                yield node, f"{attr}: {ATTRIBUTES[attr]}"
            case ast.Call():
                yield from ((node, found) for found in _of_call(node, file))
            case ast.Assign(targets=[ast.Attribute(attr="check_hostname")], value=ast.Constant(value=False)):
                yield node, "check_hostname = False: anybody's certificate"


def _of_call(node: ast.Call, file: str) -> Iterator[str]:
    name = dotted(node.func)
    if name in BY_ANYBODY and (file, name) not in OF_THE_JOB | OF_OUR_CLASSES:
        yield f"{name}(): runs text"
    if name in CALLS:
        yield f"{name}(): {CALLS[name]}"
    if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
        yield f".{node.func.attr}(): {METHODS[node.func.attr]}"
    by_descriptor = any(keyword.arg == "dir_fd" for keyword in node.keywords)
    if (
        name in BY_PATH
        and not by_descriptor
        and file.startswith("agent/")
        and (file, name) not in IN_OUR_OWN_FOLDERS
    ):
        yield f"{name}(): by path"
    for keyword in node.keywords:
        is_false = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
        if keyword.arg == "shell" and not is_false and not _MESSAGE.match(name):
            yield "shell=: a shell"
        if keyword.arg == "verify" and is_false:
            yield "verify=False: no check of certificates"


def test_there_is_code_to_look_at() -> None:
    assert len(SOURCES) > 250


@pytest.mark.parametrize("folder", FOLDERS)
def test_nothing_runs_what_somebody_sends_and_nothing_goes_without_tls(folder: str) -> None:
    found = []
    for path in SOURCES:
        file = str(path.relative_to(ROOT))
        if file.startswith(folder):
            found += findings(path.read_text(), file)
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from multiprocessing import x\nimport xmlrpc.client",
        "eval('1')",
        "import os\nos.system('x')",
        "subprocess.run('x', shell=True)",
        "subprocess.run('x', shell=maybe)",
        "archive.extractall()",
        "tempfile.mktemp()",
        "yaml.load(text)",
        "grpc.aio.insecure_channel('x')",
        "server.add_insecure_port('x')",
        "context.verify_mode = ssl.CERT_NONE",
        "context.check_hostname = False",
        "httpx.get('x', verify=False)",
    ],
)
def test_the_check_finds_what_it_looks_for(source: str) -> None:
    assert findings(source)


def test_work_by_path_is_found_in_the_agent() -> None:
    assert findings("shutil.rmtree(x)", "agent/holdfast_agent/shell/x.py")


@pytest.mark.parametrize("name", DECIDES_ON_ACCESS)
def test_no_decision_on_access_is_an_assertion(name: str) -> None:
    """Python leaves those out when it is told to optimise. ``raise AssertionError`` stays."""
    tree = ast.parse((ROOT / "controller/holdfast_controller" / name).read_text())
    assert [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assert)] == []


def test_no_setting_and_no_option_turns_tls_or_rights_off() -> None:
    keys = [field.name for cls in (ControllerConfig, Config, ClientSettings) for field in fields(cls)]
    options = [word for command in commands(root) for param in command.params for word in param.opts]
    assert {"listen", "worker_user", "enrolment"} <= set(keys) and "--token" in options
    words = ("insecure", "plaintext", "plain_text", "no_tls", "no-tls", "skip", "unsafe", "no_auth", "no-auth")
    assert [name for name in (*keys, *options) if any(word in name for word in words)] == []


def commands(command: click.Command) -> Iterator[click.Command]:
    """A command and all below it."""
    yield command
    for below in getattr(command, "commands", {}).values():
        yield from commands(below)
