"""How gRPC finds the address of a name. Imports nothing, so that it can be said before gRPC is loaded."""

from __future__ import annotations

import os


def as_the_machine_does() -> None:
    """Have names looked up by the C library, as everything else here does it. Call it before ``import grpc``.

    gRPC's own resolver asks the name servers for IPv6 addresses even of names in /etc/hosts, and where no name
    server answers each call of a command waits 10 to 25 s for that.
    """
    os.environ.setdefault("GRPC_DNS_RESOLVER", "native")
