"""A user's certificate renews itself when it is used, after two thirds of its life."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

import anyio.to_thread

from holdfast._security import certificate
from holdfast._security.tls import TlsFiles
from holdfast.errors import HoldfastError, Unauthenticated


async def on_use(address: str, files: TlsFiles, *, oidc: bool = False) -> None:
    """Renew the certificate if it is due, in a thread; does nothing where ``address`` is empty."""
    if address:
        await anyio.to_thread.run_sync(if_due, address, files, oidc)


def if_due(address: str, files: TlsFiles, oidc: bool = False) -> None:
    """Renew the certificate if it is time for that; blocks for a moment then.

    With ``oidc`` the identity provider is asked, if it has given leave for that; else the user has to sign in again.

    A failure counts only once the certificate has ended: raises ``HoldfastError`` then. Where the file can't be
    written, as that of the whole system by an ordinary user, a user who may has to do it.
    """
    present, now = certificate.read(files.cert), time.time()
    if present.begins_at <= now < present.renew_at:
        return
    if not os.access(files.cert.parent, os.W_OK):
        if now < present.ends_at:
            return
        raise Unauthenticated(
            f"The certificate {files.cert} has ended.", fix="Ask an admin: holdfast user token NAME"
        )
    renew: Callable[[str, TlsFiles], object]
    if oidc:
        from holdfast._security.enrolment.sign_in import renew
    else:
        from holdfast._security.enrolment.renew import renew

    with contextlib.suppress(HoldfastError) if now < present.ends_at else contextlib.nullcontext():
        renew(address, files)
