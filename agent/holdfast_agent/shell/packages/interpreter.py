"""Looks at the Python of the environments, and at how pip is configured for the account that installs."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast._base.dataclass import dataclass
from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.core.launch.pip_config import PipConfigError, Sources, config_files, options
from holdfast_agent.shell.packages.installer import Installer
from holdfast_agent.shell.packages.settings import CodeProblem, Packages

ASK_S = 60.0
SYSTEM_CERTIFICATES = ("/etc/ssl/certs", "/etc/pki/ca-trust/extracted/pem/directory-hash")
"""Folders of the authorities that distributions trust: Debian's and SUSE's, Fedora's and RHEL's."""
# Both run as the account: a link in its home must not make root read what the account may not.
_WHO = """
import json, os, sys, sysconfig
def text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 14)
    except FileNotFoundError:
        return None
    except OSError:
        return ""
above = os.path.dirname(os.path.dirname(sys.executable))
prefix = above if os.path.exists(above + "/pyvenv.cfg") else sys.prefix
site = prefix + "/pip.conf"
about = json.dumps([sys.version, sys.executable, sysconfig.get_platform()])
print(json.dumps([about, site, {path: text(path) for path in [*sys.argv[1:], site]}]))
"""
_WHICH = """
import hashlib, json, os, sys
def look(path):
    if os.path.isdir(path):
        return "folder"
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read(1 << 24)).hexdigest()
    except OSError as error:
        return "" if isinstance(error, FileNotFoundError) else "unreadable"
print(json.dumps({path: look(path) for path in sys.argv[1:]}))
"""


_FOLDER = "folder"
_UNREADABLE = ("", "unreadable")
JOIN = """
import sys
with open(sys.argv[1], "wb") as out:
    for path in sys.argv[2:]:
        with open(path, "rb") as file:
            out.write(file.read() + b"\\n")
"""
"""Script that joins certificates: TARGET FILE…"""
DROP_TORN = """
import importlib.util, marshal, os, sys
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        path = os.path.join(folder, name)
        if not name.endswith(".pyc") or os.path.islink(path):
            continue
        with open(path, "rb") as file:
            data = file.read()
        if data and not data.startswith(importlib.util.MAGIC_NUMBER):
            continue
        try:
            marshal.loads(data[16:])
        except (EOFError, ValueError, TypeError):
            os.unlink(path)
"""
"""Script that removes compiled modules of which a full disk has kept a part only; Python could not import them."""


@dataclass(frozen=True)
class Found:
    """An interpreter's path, a text that identifies it, the sources of packages, and digests of named files."""

    python: str
    about: str
    sources: Sources
    digests: Mapping[str, str]


class Interpreter:
    """The Python that environments of one account are made with."""

    def __init__(
        self, settings: Packages, installer: Installer, search_path: str, environment: Mapping[str, str]
    ) -> None:
        """``environment``: the host's variables for installations, see ``pip_config.settings_of``."""
        self._settings, self._installer, self._search_path = settings, installer, search_path
        self._environment = environment

    def look(self, cache: Path) -> Found:
        """Look at the interpreter and at pip's configuration, which may change at any time.

        ``cache`` marks the processes as ours. Blocks. Raises ``CodeProblem``.
        """
        home = _home(self._installer.user)
        python = shutil.which(self._settings.python, path=self._search_path)
        if python is None:
            problem = f"there is no {self._settings.python} on this host ([packages] python in agent.toml)"
            raise CodeProblem(problem, host_fault=True)
        of_host, of_account = config_files(self._environment, home)
        named = self._environment.get("PIP_CONFIG_FILE", "")
        about, site, texts = self._ask(python, cache, _WHO, *of_host, *of_account, *([named] if named else []))
        # pip's order; the account's files don't count beside one that is named and there.
        order = [*of_host, *([] if texts.get(named) is not None else of_account), site, *([named] if named else [])]
        files = [(path, texts[path]) for path in order if texts[path] is not None]
        # The account must not be able to make the host look broken.
        own = any(path in of_account for path, _ in files)
        try:
            sources = Sources.of(options(files if of_host else (), self._environment), self._environment, home)
        except PipConfigError as error:
            problem = f"pip's configuration on this host can't be used: {error}"
            raise CodeProblem(problem, host_fault=not own) from None
        sources, digests, lacking = self._checked(self._with_settings(sources), python, cache, home)
        if lacking:
            problem = (
                f"pip's configuration on this host names {lacking}, which {self._installer.user.name} can't read"
            )
            raise CodeProblem(problem, host_fault=not own)
        return Found(python, about, sources, digests)

    def _with_settings(self, sources: Sources) -> Sources:
        """Sources of ``agent.toml`` in place of all of pip's, where it names any."""
        settings = self._settings
        if not (settings.index_url or settings.extra_index_urls or settings.find_links or settings.no_index):
            return sources
        return dataclasses.replace(
            sources,
            index_url="" if settings.no_index else settings.index_url,
            extra_index_urls=() if settings.no_index else settings.extra_index_urls,
            find_links=settings.find_links,
            no_index=settings.no_index,
            first_index=True,
        )

    def _checked(
        self, sources: Sources, python: str, cache: Path, home: str
    ) -> tuple[Sources, dict[str, str], str]:
        """Sources without folders that are missing, digests of constraints, and a path that can't be read."""
        variables = dict(sources.environment)
        netrc = variables.setdefault("NETRC", f"{home}/.netrc")
        links = [place for place in sources.find_links if place.startswith("/")]
        constraints = [place for place in sources.constraints if place.startswith("/")]
        key = [variables["SSL_CLIENT_CERT"]] if "SSL_CLIENT_CERT" in variables else []
        paths = [*links, *constraints, *key, *sources.certificates, netrc, *SYSTEM_CERTIFICATES]
        seen: dict[str, str] = self._ask(python, cache, _WHICH, *paths)
        # OpenSSL, unlike pip, passes over a file or folder that its variables name and that is missing.
        lenient = {self._environment.get("SSL_CERT_FILE"), *self._environment.get("SSL_CERT_DIR", "").split(":")}
        needed = [*constraints, *key, *(path for path in sources.certificates if path not in lenient)]
        lacking = next((path for path in needed if seen[path] in _UNREADABLE), "")
        if seen[netrc] in _UNREADABLE:
            del variables["NETRC"]
        certificates = [path for path in sources.certificates if seen[path] not in _UNREADABLE]
        of_system = [folder for folder in SYSTEM_CERTIFICATES if seen[folder] == _FOLDER]
        if certificates:
            folders = [*(path for path in certificates if seen[path] == _FOLDER), *of_system]
            variables |= {"SSL_CERT_DIR": ":".join(dict.fromkeys(folders))} if folders else {}
        elif of_system:
            variables["UV_SYSTEM_CERTS"] = "1"
        sources = dataclasses.replace(
            sources,
            find_links=tuple(place for place in sources.find_links if seen.get(place) not in _UNREADABLE),
            certificates=tuple(path for path in certificates if seen[path] != _FOLDER),
            environment=variables,
        )
        return sources, {path: seen[path] for path in constraints}, lacking

    def _ask(self, python: str, cache: Path, script: str, *words: str) -> Any:
        stop = os.eventfd(0)
        try:
            command = [python, "-I", "-S", "-c", script, *words]
            return json.loads(self._installer.run(command, Path("/"), cache, ASK_S, stop))
        except (ValueError, RecursionError) as error:
            raise CodeProblem(f"{python} does not answer as a Python does", host_fault=True) from error
        finally:
            os.close(stop)


def _home(user: WorkerUser) -> str:
    return user.home.rstrip("/")
