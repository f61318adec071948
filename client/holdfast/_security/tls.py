"""Mutual TLS for every link: where the three files are, and the credentials made from them.

gRPC is loaded by who makes credentials: who issues certificates needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from holdfast._base import identity
from holdfast._base.dataclass import dataclass
from holdfast._base.identity import Identity
from holdfast.errors import ConfigError, Unauthenticated

if TYPE_CHECKING:
    import grpc

SERVER_NAME = "holdfast-controller"
"""DNS name in every controller's certificate, so that a controller may move to another address."""

HOST_NAME = "holdfast-host"
"""DNS name in every host's certificate: under it agents serve their metrics, and nothing else is asked for."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the cluster's CA, and one's own certificate and key."""

    ca: Path
    cert: Path
    key: Path

    def read(self) -> tuple[bytes, bytes, bytes]:
        """(ca, cert, key). Raises ``ConfigError`` with the file's name."""
        parts = []
        for path in (self.ca, self.cert, self.key):
            try:
                parts.append(path.read_bytes())
            except OSError as error:
                raise ConfigError(f"Cannot read {path}: {error.strerror}.") from error
        return parts[0], parts[1], parts[2]


def channel_credentials(files: TlsFiles) -> grpc.ChannelCredentials:
    """TLS credentials of a client or an agent: they prove our identity and trust only the cluster's CA."""
    import grpc

    ca, cert, key = files.read()
    return grpc.ssl_channel_credentials(root_certificates=ca, private_key=key, certificate_chain=cert)


def server_credentials(
    files: TlsFiles, *, anyone: bool = False, begun: Callable[[], object] = lambda: None
) -> grpc.ServerCredentials:
    """TLS credentials of the controller: a caller without a certificate of the cluster's CA reaches no handler.

    With ``anyone`` no certificate is asked for. Files that are replaced count from the next handshake on; open
    connections go on as they are. ``begun`` is called as a handshake begins, in a thread of gRPC's.
    """
    import grpc

    watched = _Watched(files, begun)
    first = watched.configuration()
    # Its stubs don't know that None means "as before".
    fetch = cast("Callable[[], grpc.ServerCertificateConfiguration]", watched.changed)
    return grpc.dynamic_ssl_server_credentials(first, fetch, require_client_authentication=not anyone)


class _Watched:
    """Answers gRPC's question at every handshake: whether the files have changed."""

    def __init__(self, files: TlsFiles, begun: Callable[[], object]) -> None:
        self._files = files
        self._begun = begun
        self._seen = self._stamps()

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        import grpc

        ca, cert, key = self._files.read()
        return grpc.ssl_server_certificate_configuration([(key, cert)], root_certificates=ca)

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """None, too, while a file can't be read: then those that were read go on to serve."""
        self._begun()
        now = self._stamps()
        if now == self._seen:
            return None
        try:
            made = self.configuration()
        except ConfigError:
            return None
        self._seen = now
        return made

    def _stamps(self) -> list[tuple[int, int]]:
        try:
            found = [path.stat() for path in (self._files.ca, self._files.cert, self._files.key)]
        except OSError:
            return []
        return [(status.st_mtime_ns, status.st_ino) for status in found]


class Certified(Protocol):
    """The part of a call's context that is used here."""

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """The certificate of the other end, under gRPC's keys."""


def caller(context: Certified) -> Identity:
    """The caller's identity, from the verified peer certificate. Raises ``Unauthenticated``."""
    return caller_in(context.auth_context())


def caller_in(auth: Mapping[str, Iterable[bytes]]) -> Identity:
    """Identity of the caller in a gRPC authentication context. Raises ``Unauthenticated``."""
    names = auth.get("peer_spiffe_id") or auth.get("x509_subject_alternative_name") or ()
    uris = [name.decode() for name in names if name.startswith(b"holdfast://")]
    if not uris:
        raise Unauthenticated("The certificate carries no Holdfast identity.")
    return identity.of_uris(uris)
