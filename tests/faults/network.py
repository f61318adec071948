"""Machines with addresses of their own, on one machine: a network namespace for each, and one that joins them.

All that is made has this process's number in its name and is gone when the network is left.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

NOWHERE = "02:00:00:00:00:01"
"""A hardware address that nobody has: what is sent there is lost without a word."""


@dataclass(frozen=True)
class Network:
    """``names`` in the order of their addresses."""

    prefix: str
    names: tuple[str, ...]

    def namespace(self, name: str) -> str:
        """The file that stands for it."""
        return f"/run/netns/{self.prefix}{name}"

    def address(self, name: str) -> str:
        return f"10.77.0.{self.names.index(name) + 1}"

    def inside(self, name: str, *command: str) -> list[str]:
        """What runs ``command`` there. Its process is that which is started: nothing stands between."""
        return ["nsenter", f"--net={self.namespace(name)}", *command]

    def cut(self, sender: str, receiver: str) -> None:
        """From now on nothing that ``sender`` sends reaches ``receiver``; the other way stays open."""
        self._neighbour("replace", sender, receiver, "lladdr", NOWHERE, "nud", "permanent")

    def mend(self, sender: str, receiver: str) -> None:
        """Undo ``cut``."""
        self._neighbour("del", sender, receiver)

    def unplug(self, name: str) -> None:
        """From now on nothing leaves or reaches ``name``."""
        _ip("-n", f"{self.prefix}switch", "link", "set", name, "down")

    def plug(self, name: str) -> None:
        """Undo ``unplug``."""
        _ip("-n", f"{self.prefix}switch", "link", "set", name, "up")

    def default_routes(self) -> None:
        """Give everybody a way to elsewhere, as hosts have it; nobody is there."""
        for name in self.names:
            _ip("-n", f"{self.prefix}{name}", "route", "add", "default", "via", "10.77.0.254", "dev", "eth0")

    def _neighbour(self, verb: str, sender: str, receiver: str, *how: str) -> None:
        _ip("-n", f"{self.prefix}{sender}", "neigh", verb, self.address(receiver), "dev", "eth0", *how)


def _ip(*args: str) -> None:
    done = subprocess.run(["ip", *args], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, f"ip {args}: {done.stderr}"


@contextlib.contextmanager
def joined(names: Sequence[str]) -> Iterator[Network]:
    """A network of ``names``, each able to reach every other. Needs root."""
    network = Network(f"hf{os.getpid()}-", tuple(names))
    switch, made = f"{network.prefix}switch", []
    try:
        for name in ("switch", *names):
            _ip("netns", "add", network.prefix + name)
            made.append(network.prefix + name)
            _ip("-n", network.prefix + name, "link", "set", "lo", "up")
        _ip("-n", switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", switch, "link", "set", "br0", "up")
        for name in names:
            there = network.prefix + name
            _ip("-n", switch, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", there)
            _ip("-n", switch, "link", "set", name, "master", "br0", "up")
            _ip("-n", there, "address", "add", f"{network.address(name)}/24", "dev", "eth0")
            _ip("-n", there, "link", "set", "eth0", "up")
        yield network
    finally:
        for there in made:
            _ip("netns", "del", there)
