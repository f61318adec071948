"""A Python that has the shim's code loaded and forks itself into shims: `python -I -S template.py FD`.

A fork takes half a millisecond where a Python start takes tens of them, and the shims share its pages. On each byte
that comes through FD, a unix stream socket, with one descriptor beside it, it forks a shim that talks over that
descriptor, and answers with a line: the shim's pid, or `- REASON`. It ends with its agent; the shims that it has
forked are init's children then, and ignored before: they are reaped as they end.

It never runs anything of a worker's and holds no state, so one that is lost is simply started again.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from _socket import AF_UNIX, CMSG_SPACE, MSG_CMSG_CLOEXEC, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET
from _socket import socket as Socket

if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from holdfast_agent.shim import shim

FD_BYTES = 4  # an int, as control messages carry descriptors


def receive(link: Socket) -> int | None:
    """The descriptor of the next shim; None when the agent is gone. Raises OSError."""
    data, control, _, _ = link.recvmsg(1, CMSG_SPACE(FD_BYTES), MSG_CMSG_CLOEXEC)
    if not data:
        return None
    for level, kind, descriptors in control:
        if (level, kind) == (SOL_SOCKET, SCM_RIGHTS):
            return int.from_bytes(descriptors[:FD_BYTES], sys.byteorder)
    raise OSError("an order without a descriptor")


def serve(link: Socket) -> int | None:
    """Forks until the agent is gone: then None. In each child it returns the descriptor to talk over."""
    while (fd := receive(link)) is not None:
        try:
            pid = os.fork()
        except OSError as error:
            link.sendall(f"- {error.strerror}\n".encode())
        else:
            if pid == 0:
                return fd
            link.sendall(f"{pid}\n".encode())
        os.close(fd)
    return None


def main() -> None:
    """Serve the descriptor that the command line names; each fork continues as a shim."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    gc.freeze()  # what is there now is never collected: a collection in a shim would copy every page it looks at
    link = Socket(AF_UNIX, SOCK_STREAM, 0, int(sys.argv[1]))
    try:
        fd = serve(link)
    except (BrokenPipeError, ConnectionResetError):
        return  # the agent has gone in the middle of an order
    if fd is not None:
        os.setsid()
        link.close()
        shim.run(fd)
        os._exit(0)  # taking the interpreter down would copy every page of it first


if __name__ == "__main__":
    main()
