"""Receivers that jobs may name in URLs: hosts by name and port, and the addresses that they may resolve to.

The controller reaches addresses that users don't. So an admin names each host, with its port unless it is the standard
one. A name that resolves to an address inside the site (private, loopback, link-local) is called only if the address is
named as well: otherwise the owner of the name's DNS would choose what is called.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from holdfast.errors import ConfigError
from holdfast.spec.rules.notifications import parts

SETTING = "notification_hosts"
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
STANDARD_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(r"(?:\*\.)?[a-z0-9_]([a-z0-9_.-]{0,250}[a-z0-9_])?")
_ENTRY = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[^:\[\]/]+))(?::(?P<port>[0-9]{1,5}))?")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class AllowedHosts:
    """The hosts that ``notification_hosts`` names. Raises ``ConfigError`` for an entry that is none."""

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._hosts: set[tuple[str, int | None]] = set()
        """Name or address, and port; None is the standard port of the URL's scheme."""
        self._networks: list[Network] = []
        for entry in entries:
            self._add(entry)

    def _add(self, entry: str) -> None:
        text = entry.strip().lower()
        network = _network(text)
        if network is not None:
            self._networks.append(network)
            if "/" not in text:
                self._hosts.add((str(network.network_address), None))
            return
        found = _ENTRY.fullmatch(text)
        port = int(found["port"]) if found is not None and found["port"] else None
        host = _network(found["v6"] or found["name"]) if found is not None and "/" not in text else None
        if host is not None and (port is None or 0 < port < 65536):
            self._networks.append(host)
            self._hosts.add((str(host.network_address), port))
            return
        name = (found["name"] or "") if found is not None else ""
        if not _NAME.fullmatch(name.rstrip(".")) or (port is not None and not 0 < port < 65536):
            fix = (
                'Write "hooks.example", "hooks.example:8443", "*.example", an address, or a network ("10.0.0.0/8").'
            )
            raise ConfigError(f"{SETTING}: {entry!r} is no host.", fix=fix)
        self._hosts.add((name.rstrip("."), port))

    def admits(self, url: str) -> bool:
        """Whether a job's URL names an allowed host at an allowed port."""
        found = parts(url)
        if found is None or found.scheme not in STANDARD_PORTS or found.hostname is None:
            return False
        host, standard = found.hostname.rstrip("."), STANDARD_PORTS[found.scheme]
        port = found.port or standard
        names = [host, *(f"*.{host.split('.', at)[at]}" for at in range(1, host.count(".") + 1))]
        return any(
            (name, port) in self._hosts or (port == standard and (name, None) in self._hosts) for name in names
        )

    def may_call(self, address: str) -> bool:
        """Whether a name may resolve to this address: a public one, or one that is named."""
        ip = ipaddress.ip_address(address.partition("%")[0])
        if any(ip in network for network in self._networks):
            return True
        inner = _embedded(ip)
        if inner is not None:
            return self.may_call(str(inner))
        return ip.is_global and not ip.is_multicast


def wanted(url: str) -> str:
    """Host and port of a URL, as an admin would write them into the setting."""
    found = parts(url)
    if found is None or found.hostname is None:
        return "its host"
    host = f"[{found.hostname}]" if ":" in found.hostname else found.hostname
    standard = found.port is None or found.port == STANDARD_PORTS.get(found.scheme)
    return host if standard else f"{host}:{found.port}"


def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _embedded(ip: Address) -> Address | None:
    """The IPv4 address that an IPv6 one stands for; None where it stands for itself."""
    if isinstance(ip, ipaddress.IPv4Address):
        return None
    if ip in _NAT64:
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
