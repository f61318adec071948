"""Other ends of a process's descriptors, as /proc names them: sockets, pipes, terminals, files, locks.

Pure readers of text: the links in /proc/PID/fd, the socket tables in /proc/PID/net, and /proc/locks.
"""

from __future__ import annotations

import enum
import ipaddress
import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from holdfast._base.dataclass import dataclass

_TERMINAL = re.compile(r"/dev/(tty\w*|pts/\d+|console|hvc\d+)$")
_NUMBERED = re.compile(r"(socket|pipe):\[(\d+)\]$")
_DELETED = " (deleted)"


class Sort(enum.Enum):
    """Sorts of descriptors."""

    SOCKET = "socket"
    PIPE = "pipe"
    TERMINAL = "terminal"
    # The controlling side of a pseudo terminal, whose other side a child has.
    PTMX = "pseudo terminal"
    EVENT = "event"
    TIMER = "timer"
    PROCESS = "process"
    EPOLL = "epoll"
    # A completion channel of InfiniBand or RoCE: the other end is a peer.
    RDMA = "RDMA"
    DEVICE = "device"
    FILE = "file"
    OTHER = "other"


_ANONYMOUS = {
    "anon_inode:[eventfd]": Sort.EVENT,
    "anon_inode:[timerfd]": Sort.TIMER,
    "anon_inode:[pidfd]": Sort.PROCESS,
    "anon_inode:[eventpoll]": Sort.EPOLL,
    "anon_inode:[infinibandevent]": Sort.RDMA,
    "anon_inode:inotify": Sort.FILE,
}


class Link(NamedTuple):
    """One descriptor: its sort, the inode of a socket or pipe, and the path of anything else."""

    sort: Sort
    inode: int = 0
    path: str = ""


def link_of(text: str) -> Link:
    """The descriptor behind a link of /proc/PID/fd."""
    if numbered := _NUMBERED.match(text):
        return Link(Sort.SOCKET if numbered[1] == "socket" else Sort.PIPE, int(numbered[2]))
    if text in _ANONYMOUS:
        return Link(_ANONYMOUS[text], path=text.removeprefix("anon_inode:"))
    if text.startswith("/dev/"):
        if _TERMINAL.match(text):
            return Link(Sort.TERMINAL, path=text)
        if text == "/dev/ptmx" or text.startswith("/dev/pts/ptmx"):
            return Link(Sort.PTMX, path=text)
        if not text.startswith("/dev/shm/"):
            return Link(Sort.DEVICE, path=text)
    if text.startswith("/"):
        return Link(Sort.FILE, path=text.removesuffix(_DELETED))
    return Link(Sort.OTHER, path=text)


class Tcp(NamedTuple):
    """A row of /proc/PID/net/tcp: addresses as text, an IPv4 address in an IPv6 one as IPv4."""

    local: tuple[str, int]
    remote: tuple[str, int]
    listening: bool
    inode: int


def parse_tcp(data: bytes) -> Iterator[Tcp]:
    """The rows of /proc/PID/net/tcp, tcp6, udp or udp6; what is none is left out."""
    for line in data.split(b"\n")[1:]:
        words = line.split(None, 10)
        if len(words) < 10 or not words[9].isdigit():
            continue
        try:
            yield Tcp(_address(words[1]), _address(words[2]), words[3] == b"0A", int(words[9]))
        except (ValueError, struct.error):
            continue


def _address(word: bytes) -> tuple[str, int]:
    text, _, port = word.partition(b":")
    raw = bytes.fromhex(text.decode())
    # Each 32-bit word is in the machine's own order.
    packed = b"".join(struct.pack(">I", one) for (one,) in struct.iter_unpack("=I", raw))
    address = ipaddress.ip_address(packed)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address), int(port, 16)


def shown(address: tuple[str, int]) -> str:
    """An address as people write it: 10.0.0.7:443, [::1]:80."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Unix(NamedTuple):
    """A row of /proc/PID/net/unix; ``path`` is empty where it has no name, and begins with @ in the abstract space."""

    inode: int
    listening: bool
    path: str


_ACCEPTS = 0x00010000


def parse_unix(data: bytes) -> Iterator[Unix]:
    """The rows of /proc/PID/net/unix."""
    for line in data.split(b"\n")[1:]:
        words = line.split(None, 7)
        if len(words) < 7 or not words[6].isdigit():
            continue
        path = words[7].decode("utf-8", "replace") if len(words) > 7 else ""
        yield Unix(int(words[6]), bool(int(words[3], 16) & _ACCEPTS), path)


class Lock(NamedTuple):
    """A lock of a file that a process holds. ``waiting``: pids that wait for it. ``pid`` -1: not one process's.

    ``shared``: for reading, so that others may hold it, too.
    """

    pid: int
    # Major and minor of the device, and the inode, as /proc/locks prints them.
    file: tuple[int, int, int]
    waiting: tuple[int, ...] = ()
    shared: bool = False


def parse_locks(data: bytes) -> list[Lock]:
    """All locks of /proc/locks."""
    found: dict[bytes, Lock] = {}
    for line in data.split(b"\n"):
        words = line.split()
        waits = len(words) > 1 and words[1] == b"->"
        if waits:
            del words[1]
        if len(words) < 6:
            continue
        try:
            major, minor, inode = words[5].split(b":")
            pid, file = int(words[4]), (int(major, 16), int(minor, 16), int(inode))
        except ValueError:
            continue
        if not waits:
            found[words[0]] = Lock(pid, file, shared=words[3] == b"READ")
        elif words[0] in found:
            held = found[words[0]]
            found[words[0]] = held._replace(waiting=(*held.waiting, pid))
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Fdinfo:
    """/proc/PID/fdinfo/FD, as far as waits need it."""

    watched: tuple[int, ...] = ()
    inode: int = 0
    mount: int = -1
    # The process that a pidfd refers to.
    pid: int = 0


def parse_fdinfo(data: bytes) -> Fdinfo:
    """The descriptors that an epoll watches, a file's inode and mount, and a pidfd's process."""
    watched = []
    numbers = {b"ino:": 0, b"mnt_id:": -1, b"Pid:": 0}
    for line in data.split(b"\n"):
        words = line.split()
        if len(words) < 2:
            continue
        if words[0] == b"tfd:":
            watched.append(int(words[1]))
        elif words[0] in numbers:
            numbers[words[0]] = int(words[1])
    return Fdinfo(tuple(watched), numbers[b"ino:"], numbers[b"mnt_id:"], max(0, numbers[b"Pid:"]))
