"""Installations use what pip is configured with on the host: the real uv beside the real pip, TLS, a proxy."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import trustme
from tests.support import package_index, wheels
from tests.support.package_index import PASSWORD, USER, Index, Proxy

from holdfast_agent.core.launch import pip_config
from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.shell.packages.as_user import EnvironmentsByUser
from holdfast_agent.shell.packages.environments import Environments, Wanted
from holdfast_agent.shell.packages.settings import CodeProblem, Packages

PYTHON = os.path.realpath(sys.executable)
LOGIN = f"{USER}:{quote(PASSWORD, safe='')}@"
TINY = Wanted(("tiny",))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheels in ``old`` (1.0), ``new`` (2.0) and ``links`` (0.5); the authority's certificate in ``ca.pem``."""
    made = tmp_path_factory.mktemp("indexes")
    for folder, version in (("old", "1.0"), ("new", "2.0"), ("links", "0.5")):
        wheels.wheel(made / folder, "tiny", version)
    wheels.wheel(made / "new", "tiny", "3.0rc1")
    (made / "constraints.txt").write_text("tiny<2\n")
    return made


@pytest.fixture(scope="module")
def ca(folders: Path) -> trustme.CA:
    made = trustme.CA()
    made.cert_pem.write_to_path(str(folders / "ca.pem"))
    return made


@pytest.fixture(scope="module")
def old(folders: Path, ca: trustme.CA) -> Iterator[Index]:
    with package_index.index(folders / "old", ca) as made:
        yield made


@pytest.fixture(scope="module")
def new(folders: Path, ca: trustme.CA) -> Iterator[Index]:
    """An index that wants a password."""
    with package_index.index(folders / "new", ca, authenticated=True) as made:
        yield made


@pytest.fixture(scope="module")
def foreign(folders: Path) -> Iterator[Index]:
    """An index whose certificate is of another authority, ``foreign.pem``."""
    other = trustme.CA()
    other.cert_pem.write_to_path(str(folders / "foreign.pem"))
    with package_index.index(folders / "old", other) as made:
        yield made


@pytest.fixture(scope="module")
def proxy(old: Index) -> Iterator[Proxy]:
    with package_index.proxy(old.port, authenticated=True) as made:
        yield made


class Host:
    """A host with an account, whose home is ``home``, and with variables for installations."""

    def __init__(self, tmp_path: Path, variables: dict[str, str], **settings: Any) -> None:
        self.home = tmp_path / "home"
        self.variables = {"XDG_CONFIG_DIRS": str(tmp_path / "xdg"), **variables}
        self._settings = Packages(**{"python": PYTHON, **settings})
        self._cache = tmp_path / "cache"

    def environments(self, user: WorkerUser | None = None) -> Environments:
        """New ones, as after a restart of the agent."""
        user = user or WorkerUser("tester", str(self.home), "/bin/sh")
        variables = pip_config.settings_of(self.variables)
        return EnvironmentsByUser(self._cache, self._settings, variables, "/usr/bin").of(user)

    def configure(self, text: str, where: str = ".config/pip/pip.conf") -> None:
        """Write the account's configuration of pip."""
        path = self.home / where
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    async def version(self, wanted: Wanted = TINY) -> str:
        """Version of tiny in the environment that is built."""
        path = await self.environments().get(wanted, "job", lambda: None)
        return _version(path)

    def pips(self, target: Path) -> str | None:
        """The version that pip itself installs here; None where it can't."""
        command = [sys.executable, "-m", "pip", "install", "--target", str(target), "--no-cache-dir", "tiny"]
        command += ["--no-warn-conflicts"]  # or it reads of every package here what that needs
        told = {"PIP_RETRIES": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PATH": os.environ["PATH"]}
        env = told | {"HOME": str(self.home)} | self.variables
        if subprocess.run(command, env=env, capture_output=True, timeout=120).returncode:
            return None
        return (target / "tiny.py").read_text().partition("'")[2].partition("'")[0]

    async def refusal(self, wanted: Wanted = TINY) -> CodeProblem:
        with pytest.raises(CodeProblem) as caught:
            await self.environments().get(wanted, "job", lambda: None)
        return caught.value


def _version(environment: Path) -> str:
    code = "import tiny; print(tiny.VERSION)"
    return subprocess.check_output([environment / "bin/python", "-I", "-c", code], text=True).strip()


def variables_of(text: str, words: dict[str, str]) -> dict[str, str]:
    """``NAME=VALUE; …`` with words filled in."""
    pairs = (pair.partition("=") for pair in text.format(**words).split("; ") if pair)
    return {name: value for name, _, value in pairs} | {"PIP_RETRIES": "0"}


@pytest.fixture
def places(folders: Path, old: Index, new: Index, foreign: Index, proxy: Proxy) -> dict[str, str]:
    """Words that the configurations below are written with."""
    return {
        "ca": str(folders / "ca.pem"),
        "foreign": f"https://localhost:{foreign.port}/simple",
        "links": str(folders / "links"),
        "folders": str(folders),
        "old": f"https://localhost:{old.port}/simple",
        "new": f"https://{LOGIN}localhost:{new.port}/simple",
        "newhost": f"localhost:{new.port}",
        "wrong": f"https://{USER}:nonsense@localhost:{new.port}/simple",
        "proxy": f"http://{LOGIN}127.0.0.1:{proxy.port}",
    }


PIP = tuple(int(part) for part in importlib.metadata.version("pip").split(".")[:2])
OF_NEWER_PIP = ("a bundle of OpenSSL's",)
"""Pip reads it since 24.2, with which it uses the system's store."""
VARIABLES: dict[str, tuple[str, str | None]] = {
    "index and CA": ("PIP_INDEX_URL={old}; PIP_CERT={ca}", "1.0"),
    "an untrusted CA": ("PIP_INDEX_URL={old}; PIP_CERT=/etc/ssl/certs/ca-certificates.crt", None),
    "a bundle of requests'": ("PIP_INDEX_URL={old}; REQUESTS_CA_BUNDLE={ca}", "1.0"),
    "a bundle of curl's": ("PIP_INDEX_URL={old}; CURL_CA_BUNDLE={ca}", "1.0"),
    "a bundle of OpenSSL's": ("PIP_INDEX_URL={old}; SSL_CERT_FILE={ca}", "1.0"),
    "two authorities": (
        "PIP_INDEX_URL={foreign}; PIP_EXTRA_INDEX_URL={new}; PIP_CERT={ca}; SSL_CERT_FILE={folders}/foreign.pem",
        "2.0",
    ),
    "a trusted host": ("PIP_INDEX_URL={old}; PIP_TRUSTED_HOST=localhost", "1.0"),
    "a password": ("PIP_INDEX_URL={new}; PIP_CERT={ca}", "2.0"),
    "a wrong password": ("PIP_INDEX_URL={wrong}; PIP_CERT={ca}", None),
    "the best of two": ("PIP_INDEX_URL={old}; PIP_EXTRA_INDEX_URL={new}; PIP_CERT={ca}", "2.0"),
    "the best, the other way": ("PIP_INDEX_URL={new}; PIP_EXTRA_INDEX_URL={old}; PIP_CERT={ca}", "2.0"),
    "one that refuses": ("PIP_INDEX_URL={wrong}; PIP_EXTRA_INDEX_URL={old}; PIP_CERT={ca}", "1.0"),
    "releases to come": ("PIP_INDEX_URL={new}; PIP_CERT={ca}; PIP_PRE=yes", "3.0rc1"),
    "constraints": (
        "PIP_INDEX_URL={old}; PIP_EXTRA_INDEX_URL={new}; PIP_CERT={ca}; PIP_CONSTRAINT={folders}/constraints.txt",
        "1.0",
    ),
    "links alone": ("PIP_NO_INDEX=1; PIP_FIND_LINKS={links}", "0.5"),
    "links that are missing": ("PIP_NO_INDEX=1; PIP_FIND_LINKS=/no/where {links}", "0.5"),
    "links and an index": ("PIP_INDEX_URL={old}; PIP_FIND_LINKS={links}; PIP_CERT={ca}", "1.0"),
    "no wheels": ("PIP_NO_INDEX=1; PIP_FIND_LINKS={links}; PIP_NO_BINARY=:all:", None),
    "a file that is no index": ("PIP_INDEX_URL=file:///no/where; PIP_FIND_LINKS={links}", "0.5"),
    "a proxy": ("PIP_INDEX_URL=https://index.example/simple; HTTPS_PROXY={proxy}; PIP_CERT={ca}", "1.0"),
    "a proxy in small letters": (
        "PIP_INDEX_URL=https://index.example/simple; https_proxy={proxy}; PIP_CERT={ca}",
        "1.0",
    ),
    "a proxy of pip's": (
        "PIP_INDEX_URL=https://index.example/simple; PIP_PROXY={proxy}; HTTPS_PROXY=http://127.0.0.1:9; PIP_CERT={ca}",
        "1.0",
    ),
    "a dead proxy": (
        "PIP_INDEX_URL=https://index.example/simple; HTTPS_PROXY=http://127.0.0.1:9; PIP_CERT={ca}",
        None,
    ),
    "a host past the proxy": (
        "PIP_INDEX_URL={old}; HTTPS_PROXY=http://127.0.0.1:9; NO_PROXY=localhost; PIP_CERT={ca}",
        "1.0",
    ),
}
"""Variables, and the version of tiny that pip then installs; None where it fails."""


@pytest.mark.parametrize("case", VARIABLES)
async def test_variables_mean_what_they_mean_to_pip(tmp_path: Path, places: dict[str, str], case: str) -> None:
    variables, wanted = VARIABLES[case]
    host = Host(tmp_path, variables_of(variables, places))
    if case not in OF_NEWER_PIP or PIP >= (24, 2):
        assert host.pips(tmp_path / "pip") == wanted, "pip itself"
    if wanted is not None:
        assert await host.version() == wanted
        return
    problem = await host.refusal()
    for text in (problem.message, problem.log.decode()):
        assert PASSWORD not in text and quote(PASSWORD, safe="") not in text and "nonsense" not in text


FILES: dict[str, tuple[dict[str, str], str, str | None]] = {
    "the account's": ({".config/pip/pip.conf": "[global]\nindex-url = {old}\ncert = {ca}\n"}, "", "1.0"),
    "the account's old one": ({".pip/pip.conf": "[global]\nindex_url = {old}\ncert = {ca}\n"}, "", "1.0"),
    "install before global": (
        {
            ".pip/pip.conf": "[install]\nindex-url = {old}\n",
            ".config/pip/pip.conf": "[global]\ncert = {ca}\nindex-url = {wrong}\n",
        },
        "",
        "1.0",
    ),
    "many lines": (
        {".config/pip/pip.conf": "[global]\nextra-index-url =\n    {old}\n    {new}\ncert = {ca}\nno-index = no\n"},
        "PIP_INDEX_URL={old}",
        "2.0",
    ),
    "a file that is named": (
        {"x.conf": "[global]\nfind-links = {links}\n", ".config/pip/pip.conf": "[global]\nindex-url = {new}\n"},
        "PIP_CONFIG_FILE={home}/x.conf; PIP_NO_INDEX=1",
        "0.5",
    ),
    "no file at all": (
        {".config/pip/pip.conf": "[global]\nno-index = yes\n"},
        "PIP_CONFIG_FILE=/dev/null; PIP_INDEX_URL={old}; PIP_CERT={ca}",
        "1.0",
    ),
    "a variable above the file": (
        {".config/pip/pip.conf": "[install]\nindex-url = {wrong}\ncert = {ca}\n"},
        "PIP_INDEX_URL={old}",
        "1.0",
    ),
    "the login elsewhere": (
        {
            ".netrc": "machine localhost login build password p@ss/w0rd:1\n",
            ".config/pip/pip.conf": "[global]\nindex-url = https://{newhost}/simple\ncert = {ca}\n",
        },
        "",
        "2.0",
    ),
    "a folder in the home": (
        {".config/pip/pip.conf": "[global]\nno-index = 1\nfind-links = ~/wheels\n", "wheels/.keep": ""},
        "",
        "0.5",
    ),
    "what is no file of pip's": ({".config/pip/pip.conf": "no section\n"}, "", None),
    "neither yes nor no": ({".config/pip/pip.conf": "[global]\nno-index = perhaps\n"}, "", None),
    "a certificate that is missing": (
        {".config/pip/pip.conf": "[global]\nindex-url = {old}\ncert = /no/where\n"},
        "",
        None,
    ),
}
"""Files in the home, variables, and the version that pip then installs."""


@pytest.mark.parametrize("case", FILES)
async def test_files_mean_what_they_mean_to_pip(
    tmp_path: Path, folders: Path, places: dict[str, str], case: str
) -> None:
    files, variables, wanted = FILES[case]
    words = places | {"home": str(tmp_path / "home")}
    host = Host(tmp_path, variables_of(variables, words))
    for where, text in files.items():
        host.configure(text.format(**words), where)
    if (tmp_path / "home/wheels").is_dir():
        wheels.wheel(tmp_path / "home/wheels", "tiny", "0.5")
    if (host.home / ".netrc").exists():
        (host.home / ".netrc").chmod(0o600)
    assert host.pips(tmp_path / "pip") == wanted, "pip itself"
    if wanted is not None:
        assert await host.version() == wanted
        return
    problem = await host.refusal()
    assert not problem.host_fault, "or an account could have hosts cordoned"
    assert "pip's configuration" in problem.message


async def test_a_broken_file_of_the_hosts_is_the_hosts_fault(tmp_path: Path) -> None:
    host = Host(tmp_path, {})
    (tmp_path / "xdg/pip").mkdir(parents=True)
    (tmp_path / "xdg/pip/pip.conf").write_text("[global]\nclient-cert = /no/where\nno-index = 1\n")
    problem = await host.refusal()
    assert problem.host_fault
    assert "/no/where" in problem.message


async def test_sources_of_the_agents_settings_replace_pips(tmp_path: Path, places: dict[str, str]) -> None:
    variables = {"PIP_EXTRA_INDEX_URL": places["new"], "PIP_INDEX_URL": places["new"], "PIP_CERT": places["ca"]}
    assert await Host(tmp_path, variables, index_url=places["old"]).version() == "1.0"
    assert await Host(tmp_path, variables, find_links=(places["links"],), no_index=True).version() == "0.5"


async def test_another_index_is_another_environment_and_a_new_password_is_not(
    tmp_path: Path, places: dict[str, str]
) -> None:
    host = Host(tmp_path, {"PIP_CERT": places["ca"], "PIP_INDEX_URL": places["old"]})
    assert await host.version() == "1.0"
    host.variables["PIP_INDEX_URL"] = places["new"]
    assert await host.version() == "2.0"
    first = await host.environments().get(TINY, "job", _nothing)
    host.variables["PIP_INDEX_URL"] = places["wrong"]
    assert await host.environments().get(TINY, "job", _nothing) == first
    host.variables["PIP_PRE"] = "1"
    host.variables["PIP_INDEX_URL"] = places["new"]
    assert await host.version() == "3.0rc1"
    constraints = tmp_path / "c.txt"
    constraints.write_text("tiny<3\n")
    host.variables["PIP_CONSTRAINT"] = str(constraints)
    assert await host.version() == "2.0"
    constraints.write_text("tiny>=3.0rc1\n")
    assert await host.version() == "3.0rc1"


def _nothing() -> None:
    raise AssertionError("it was to be there already")


LOOKING = """
import glob
for path in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        words = open(path, "rb").read()
    except OSError:
        continue
    assert b"w0rd" not in words, words
raise SystemExit("no command line shows it")
"""


async def test_no_command_line_log_or_refusal_shows_a_password(
    tmp_path: Path, places: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    source = wheels.source(tmp_path / "sent", "looking", LOOKING)
    variables = {"PIP_INDEX_URL": places["new"], "PIP_CERT": places["ca"], "PIP_FIND_LINKS": places["links"]}
    host = Host(tmp_path, {**variables, "HTTP_PROXY": places["proxy"]})
    uri = f"https://{LOGIN}127.0.0.1:9/looking-1.0-py3-none-any.whl?token=s3cret"
    problem = await host.refusal(Wanted((), files=((source, "d"),)))
    assert "no command line shows it" in problem.log.decode(), problem.log.decode()
    assert problem.log.decode().startswith("Installing from index https://***@localhost:")
    unreachable = await host.refusal(Wanted((f"looking @ {uri}",), (uri,)))
    assert await host.version() == "2.0"
    said = problem.log.decode() + problem.message + unreachable.log.decode() + unreachable.message
    said += "".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)
    assert "environment.built" in said and "Connection refused" in said
    assert "w0rd" not in said and "s3cret" not in said


@pytest.mark.require("root")
async def test_the_accounts_file_is_read_with_the_accounts_rights(tmp_path: Path, folders: Path) -> None:
    for parent in (tmp_path, *tmp_path.parents):
        if parent.name.startswith(("pytest-", "popen-")) or parent == tmp_path:
            parent.chmod(parent.stat().st_mode | 0o055)
    secret = tmp_path / "secret.conf"
    secret.write_text("[global]\nindex-url = https://hidden.example/\nno-index = perhaps\n")
    secret.chmod(0o600)
    host = Host(tmp_path, {"PIP_NO_INDEX": "1"}, python="/usr/bin/python3")
    (host.home / ".config/pip").mkdir(parents=True)
    (host.home / ".config/pip/pip.conf").symlink_to(secret)
    user = WorkerUser("nobody", str(host.home), "/bin/sh", 65534, 65534, ())
    with pytest.raises(CodeProblem) as caught:
        await host.environments(user).get(TINY, "job", lambda: None)
    assert "no index" in caught.value.log.decode()
    assert "hidden.example" not in caught.value.log.decode() + caught.value.message
