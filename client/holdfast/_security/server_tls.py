"""The TLS context of a server of ours that isn't gRPC's, fresh at each handshake: mutual, unless for browsers."""

from __future__ import annotations

import ssl

from holdfast._security.tls import TlsFiles
from holdfast.errors import ConfigError


def server_context(files: TlsFiles, *, anyone: bool = False) -> ssl.SSLContext:
    """A context that admits only certificates of the cluster's CA; with ``anyone`` it asks for none.

    Raises ``ConfigError``.

    Files that are replaced count from the next handshake on; while they can't be read, those before go on to serve.
    """
    newest, seen = _context(files, anyone), _stamps(files)

    def on_hello(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        nonlocal newest, seen
        now = _stamps(files)
        if now != seen:
            try:
                newest, seen = _context(files, anyone), now
            except ConfigError:
                pass
        connection.context = newest

    first = _context(files, anyone)
    first.sni_callback = on_hello
    return first


def _context(files: TlsFiles, anyone: bool) -> ssl.SSLContext:
    files.read()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(files.cert, files.key)
        context.load_verify_locations(files.ca)
    except ssl.SSLError as error:
        problem = f"{files.cert}, its key {files.key} or {files.ca} cannot be used"
        raise ConfigError(f"{problem}: {error.reason or error}.") from error
    if not anyone:
        context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _stamps(files: TlsFiles) -> list[tuple[int, int]]:
    try:
        found = [path.stat() for path in (files.ca, files.cert, files.key)]
    except OSError:
        return []
    return [(status.st_mtime_ns, status.st_ino) for status in found]
