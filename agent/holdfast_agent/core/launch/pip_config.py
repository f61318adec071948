"""Translates a host's configuration of pip into settings for uv. Pure.

``[global]`` and ``[install]`` of pip's files count, a later file before an earlier one, ``[install]`` of any file
before ``[global]`` of any, and the variables ``PIP_*`` before both. Options without a meaning for an environment of
its own (``user``, ``target``, ``cache-dir``, …) are ignored, as pip ignores options that it doesn't know.
"""

from __future__ import annotations

import configparser
import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field

from holdfast._base.dataclass import dataclass

NO_FILES = "/dev/null"
"""Value of PIP_CONFIG_FILE with which pip reads no file at all."""
PROBLEM_CHARACTERS = 300
"""Of a file whose every line is wrong, the first few are named."""
SECRET_CHARACTERS = 4
"""Shorter passwords are hidden in URLs only: hidden everywhere, they would blank out other words."""

_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"})
_TAKEN = frozenset(
    {"SSL_CERT_FILE", "SSL_CERT_DIR", "NETRC", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "XDG_CONFIG_DIRS"}
)
_ALIASES = {"pypi-url": "index-url", "default-timeout": "timeout", "no-dependencies": "no-deps"}
_TRUE, _FALSE = ("y", "yes", "t", "true", "on", "1"), ("n", "no", "f", "false", "off", "0")
_CREDENTIALS = re.compile(r"(?<=://)[^/\s?#]*@")
_QUERY = re.compile(r"(https?://[^\s?#]+)(\?[^\s#]*)?", re.IGNORECASE)
"""An address and its query, if it has one: without the question mark a search would start again in every address."""


class PipConfigError(Exception):
    """A host's configuration of pip can't be used. ``where`` names the file or the option."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")
        self.where = where


def settings_of(*environments: Mapping[str, str]) -> dict[str, str]:
    """Pick the variables that installations heed; later environments override earlier ones.

    Names of proxy variables are in upper case afterwards; within an environment lower case wins, as elsewhere.
    """
    found: dict[str, str] = {}
    for environment in environments:
        for name, value in sorted(environment.items()):  # upper case first
            if name.upper() in _PROXIES:
                found[name.upper()] = value
            elif name in _TAKEN or name.startswith("PIP_"):
                found[name] = value
    return found


def config_files(environment: Mapping[str, str], home: str) -> tuple[list[str], list[str]]:
    """(files of the host, files of the account) in pip's order, without PIP_CONFIG_FILE."""
    if environment.get("PIP_CONFIG_FILE") == NO_FILES:
        return [], []
    folders = [folder for folder in environment.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":") if folder]
    of_host = [*(f"{folder}/pip/pip.conf" for folder in folders), "/etc/pip.conf"]
    return of_host, [f"{home}/.pip/pip.conf", f"{home}/.config/pip/pip.conf"]


def options(files: Iterable[tuple[str, str]], environment: Mapping[str, str]) -> dict[str, str]:
    """Merge ``files``, (path, text) each, and the variables ``PIP_*`` into options by their long names.

    Raises ``PipConfigError``.
    """
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}}
    for path, text in files:
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(text)
        except configparser.Error as error:
            raise PipConfigError(path, textwrap.shorten(str(error), PROBLEM_CHARACTERS)) from None
        for section in sections:
            if parser.has_section(section):
                sections[section].update(_named(parser.items(section)))
    variables = dict(_named((name[4:], value) for name, value in environment.items() if name.startswith("PIP_")))
    merged: dict[str, str] = {}
    for found in (*sections.values(), variables):
        merged.update({name: value for name, value in found.items() if value})
    return merged


def _named(items: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for name, value in items:
        long = name.lower().replace("_", "-").removeprefix("--")
        yield _ALIASES.get(long, long), value or ""


@dataclass(frozen=True)
class Sources:
    """Indexes, links and limits of an installation, and how to reach them."""

    index_url: str = field(default="", repr=False)
    extra_index_urls: tuple[str, ...] = field(default=(), repr=False)
    find_links: tuple[str, ...] = field(default=(), repr=False)
    no_index: bool = False
    first_index: bool = False
    """Take a package from the first index that knows it; pip takes the best version of all indexes."""
    trusted_hosts: tuple[str, ...] = ()
    no_binary: tuple[str, ...] = ()
    only_binary: tuple[str, ...] = ()
    pre: bool = False
    no_deps: bool = False
    require_hashes: bool = False
    build_isolation: bool = True
    constraints: tuple[str, ...] = field(default=(), repr=False)
    keyring: str = ""
    certificates: tuple[str, ...] = ()
    """Files and folders with authorities to trust beside those of the system, as pip does."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables for uv: proxies, time limits, files with logins and keys."""

    @classmethod
    def of(cls, found: Mapping[str, str], environment: Mapping[str, str], home: str) -> Sources:
        """Sources by pip's options and an environment from ``settings_of``. Raises ``PipConfigError``."""
        index = not _true(found, "no-index", False)
        return cls(
            index_url=found.get("index-url", "") if index else "",
            extra_index_urls=_words(found, "extra-index-url") if index else (),
            find_links=tuple(_expanded(place, home) for place in _words(found, "find-links")),
            no_index=not index,
            trusted_hosts=_words(found, "trusted-host"),
            no_binary=_names(found, "no-binary"),
            only_binary=_names(found, "only-binary"),
            pre=_true(found, "pre", False),
            no_deps=_true(found, "no-deps", False),
            require_hashes=_true(found, "require-hashes", False),
            # pip stores the value of this negative option as that of the positive one.
            build_isolation=_true(found, "no-build-isolation", True),
            constraints=tuple(_expanded(place, home) for place in _words(found, "constraint")),
            keyring="subprocess" if found.get("keyring-provider") in ("subprocess", "import") else "",
            certificates=_certificates(found, environment, home),
            environment=_environment(found, environment, home),
        )

    def identity(self) -> list[object]:
        """Everything that decides which packages are installed, for a key. Contains no secret."""
        return [
            *(_bare(self.index_url), *map(_bare, self.extra_index_urls), "", *map(_bare, self.find_links)),
            *(self.no_index, self.first_index, self.no_binary, self.only_binary, self.pre, self.no_deps),
            self.build_isolation,
        ]

    def uv_toml(self) -> str:
        """Text of a uv.toml. A file, since every account of the host can read command lines."""
        table: dict[str, object] = {
            "index-url": self.index_url,
            "extra-index-url": self.extra_index_urls,
            "find-links": self.find_links,
            "no-index": self.no_index,
            "index-strategy": "" if self.first_index else "unsafe-best-match",
            "no-binary": self.no_binary,
            "only-binary": self.only_binary,
            "prerelease": "allow" if self.pre else "",
            "no-deps": self.no_deps,
            "require-hashes": self.require_hashes,
            "no-build-isolation": not self.build_isolation,
            "keyring-provider": self.keyring,
        }
        lines = [f"allow-insecure-host = {_toml(self.trusted_hosts)}"] if self.trusted_hosts else []
        return "\n".join(
            [*lines, "[pip]", *(f"{key} = {_toml(value)}" for key, value in table.items() if value), ""]
        )

    def in_words(self) -> str:
        """One line for the log of the installation, without secrets."""
        index = [self.index_url or "PyPI", *self.extra_index_urls] if not self.no_index else []
        said = [f"index {', '.join(index)}"] if index else ["no index"]
        said += [f"links {', '.join(self.find_links)}"] if self.find_links else []
        proxy = self.environment.get("HTTPS_PROXY") or self.environment.get("ALL_PROXY")
        said += [f"proxy {proxy}"] if proxy else []
        said += [f"certificates {', '.join(self.certificates)}"] if self.certificates else []
        return self.hide("; ".join(said))

    def hide(self, text: str) -> str:
        """Blank out the credentials in any URL of ``text``, and the secrets of these sources anywhere in it."""
        text = _QUERY.sub(lambda found: found[1] + ("?***" if found[2] else ""), _CREDENTIALS.sub("***@", text))
        urls = (self.index_url, *self.extra_index_urls, *self.find_links, *self.constraints)
        proxies = (value for name, value in self.environment.items() if name in _PROXIES - {"NO_PROXY"})
        secrets = {secret for url in (*urls, *proxies) for secret in _secrets(url)}
        for secret in sorted(secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text


def _environment(found: Mapping[str, str], environment: Mapping[str, str], home: str) -> dict[str, str]:
    made = {"NETRC": environment["NETRC"]} if environment.get("NETRC") else {}
    # A proxy of pip's own is used for every host, and the environment's are not.
    proxy = found.get("proxy", "")
    if proxy:
        proxy = proxy if "://" in proxy else f"http://{proxy}"
        made |= {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy}
    else:
        made |= {name: environment[name] for name in sorted(_PROXIES) if environment.get(name)}
    if certificate := found.get("client-cert"):
        made["SSL_CLIENT_CERT"] = _expanded(certificate, home)
    for name, variable in (("timeout", "UV_HTTP_TIMEOUT"), ("retries", "UV_HTTP_RETRIES")):
        if value := found.get(name):
            if not re.fullmatch(r"\d+(\.\d*)?", value):
                raise PipConfigError(name, f"{value} is no number")
            made[variable] = str(int(float(value)) or (1 if name == "timeout" else 0))
    return made


def _certificates(found: Mapping[str, str], environment: Mapping[str, str], home: str) -> tuple[str, ...]:
    named = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
    files = [found.get("cert", ""), *(environment.get(name, "") for name in named)]
    folders = environment.get("SSL_CERT_DIR", "").split(":")
    return tuple(dict.fromkeys(_expanded(path, home) for path in (*files, *folders) if path))


def _true(found: Mapping[str, str], name: str, otherwise: bool) -> bool:
    value = found.get(name, "").lower()
    if value and value not in (*_TRUE, *_FALSE):
        raise PipConfigError(name, f"{value} is neither yes nor no")
    return value in _TRUE if value else otherwise


def _words(found: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(found.get(name, "").split())


def _names(found: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in found.get(name, "").split(",") if word.strip())


def _expanded(path: str, home: str) -> str:
    return home + path[1:] if path == "~" or path.startswith("~/") else path


def _bare(url: str) -> str:
    """The URL without its credentials: an index stays the same when its password changes."""
    return _CREDENTIALS.sub("", url)


def _secrets(url: str) -> Iterator[str]:
    """The password of a URL, or a token in place of the user, both quoted as in the URL and unquoted."""
    credentials = url.partition("://")[2].partition("/")[0].rpartition("@")[0]
    user, colon, password = credentials.partition(":")
    secret = password if colon and password else user
    yield from (text for text in (secret, _unquoted(secret)) if len(text) >= SECRET_CHARACTERS)


def _unquoted(text: str) -> str:
    raw = re.sub(rb"%([0-9A-Fa-f]{2})", lambda match: bytes([int(match[1], 16)]), text.encode())
    return raw.decode("utf-8", "replace")


def _toml(value: object) -> str:
    """A string, list or boolean as TOML, which JSON is too once characters are not escaped as UTF-16."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
