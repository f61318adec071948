"""The names and addresses under which callers reach a controller, all of which its certificate has to carry.

A caller that knows the name that every controller has (``holdfast-controller``: agents, the command line) needs none
of them; browsers, curl and Prometheus check the name that they were given.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast._security.tls import HOST_NAME, SERVER_NAME
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from cryptography import x509

ALWAYS = (SERVER_NAME, "localhost", "127.0.0.1")
_LABEL = "[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_DNS = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*", re.IGNORECASE)
_WILDCARDS = ("0.0.0.0", "::", "", "*")


def checked(name: str, where: str) -> str:
    """``name`` in lower case, an address without brackets. Raises ``ConfigError`` that says ``where`` it is."""
    bare = name.strip().removeprefix("[").removesuffix("]").lower()
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        pass
    bare = bare.removesuffix(".")
    if not _DNS.fullmatch(bare) or bare.rpartition(".")[2].isdecimal():
        fix = "Write a name or an address without a port, such as ctl.lab or 10.0.0.5."
        raise ConfigError(f"{where}: {name!r} is no host.", fix=fix)
    if bare == HOST_NAME:
        raise ConfigError(f"{where}: {name!r} is what every host's certificate names.", fix="Write another name.")
    return bare


def served(given: Iterable[str], listens: Iterable[str] = ()) -> frozenset[str]:
    """All names of a controller's certificate: those that always are, ``given``, this machine's.

    ``listens`` are addresses as HOST:PORT; a wildcard adds nothing. Raises ``ConfigError`` for what is no name.
    """
    hosts = (listen.rpartition(":")[0].removeprefix("[").removesuffix("]") for listen in listens)
    names = {checked(name, "names") for name in given} | set(ALWAYS)
    names |= {checked(host, "listen") for host in hosts if host not in _WILDCARDS}
    try:
        names.add(checked(socket.gethostname(), "the machine's own name"))
    except ConfigError:
        pass  # such a name can't be asked for over TLS either
    return frozenset(names)


def named(certificate: Path) -> frozenset[str]:
    """The names and addresses in a server's certificate, lower case. Raises ``ConfigError``."""
    from cryptography import x509  # only where there are certificates to read: settings are checked without it

    try:
        read = x509.load_pem_x509_certificate(certificate.read_bytes())
        found = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound) as error:
        raise ConfigError(f"{certificate} is no certificate that names a server.") from error
    addresses = map(str, found.get_values_for_type(x509.IPAddress))
    return frozenset(name.lower() for name in (*found.get_values_for_type(x509.DNSName), *addresses))


def general_names(names: Iterable[str]) -> list[x509.GeneralName]:
    """The form in which a certificate holds names and addresses, those that are in all of ours first."""
    from cryptography import x509

    made: list[x509.GeneralName] = []
    for name in sorted(names, key=lambda name: (name not in ALWAYS, name)):
        try:
            made.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            made.append(x509.DNSName(name))
    return made
