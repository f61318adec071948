"""The cluster's CA at work: signs for keys that others hold, and keeps the controller's own certificate."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import hashlib
import time
from collections.abc import Collection
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from holdfast._base.identity import Credential, Identity, Kind
from holdfast._daemon import log
from holdfast._security import certificate, pki, server_names
from holdfast._security.enrolment.requests import MALFORMED
from holdfast._security.tls import TlsFiles
from holdfast.errors import ConfigError, Denied, InvalidInput, Unauthenticated, Violation
from holdfast_controller.shell.base.config import CertificateConfig

LOOK_AGAIN_S = 3600.0
"""The longest sleep until the controller's own certificate is looked at again: clocks are set now and then."""
RETRY_S = 30.0


class Authority:
    """Signs with the CA in a directory. Raises ``ConfigError`` when its files are missing or don't match.

    ``serves`` are the names and addresses that the controller's own certificate has to carry.
    """

    def __init__(
        self, directory: Path, lifetimes: CertificateConfig, cluster: str = "main", serves: Collection[str] = ()
    ) -> None:
        self.directory = directory
        self.serves = frozenset(serves)
        self.lifetimes = lifetimes
        self.cluster = cluster
        path = directory / "ca.pem"
        try:
            path.read_bytes()
            pki.mend_change(directory)
        except (OSError, ValueError) as error:
            fix = "Correct ca_directory, or make a cluster: holdfast-controller init"
            raise ConfigError(f"Cannot read the CA's certificate {path}: {error}.", fix=fix) from error
        pki.check_ca(directory)
        self.reload()

    def reload(self) -> None:
        """Read the trusted CAs again; the first one issues."""
        pems = pki.trusted_cas(self.directory)
        self._cas = [x509.load_pem_x509_certificate(pem) for pem in pems]
        self.pem = b"".join(pems)
        self.trusted = tuple(map(ca_hash, pems))

    @property
    def ca_hash(self) -> str:
        """``sha256:`` and the digest of the certificate of the CA that issues: what a join line has to name."""
        return self.trusted[0]

    def sign(
        self, identity: Identity, key: ec.EllipticCurvePublicKey, issued_at: float, lifetime_s: float | None = None
    ) -> bytes:
        """A certificate in PEM; of the lifetime that the settings give its kind, unless it is given here."""
        own = self.lifetimes.host if identity.kind is Kind.HOST else self.lifetimes.user
        lifetime = own if lifetime_s is None else lifetime_s
        return pki.sign(self.directory, identity, key, issued_at, datetime.timedelta(seconds=lifetime))

    def holder(self, pem: bytes, key: ec.EllipticCurvePublicKey, now: float) -> Credential:
        """Identity of the holder of a certificate of ours, proven by its key. Raises ``Denied`` or ``InvalidInput``."""
        try:
            shown = x509.load_pem_x509_certificate(pem)
            self._check_issuer(shown)
            read = certificate.parse(shown.public_bytes(serialization.Encoding.PEM).decode())
        except (*MALFORMED, Unauthenticated) as error:
            problem = "is none that this cluster's CA has issued"
            raise InvalidInput([Violation("certificate", problem, "join again with a token")]) from error
        if shown.public_key() != key or read.identity.kind is Kind.CONTROLLER:
            raise Denied("The request is signed with another key than that of the certificate.", fix=_JOIN)
        if now > read.ends_at + self.lifetimes.renew_after_end:
            ended = datetime.datetime.fromtimestamp(read.ends_at, datetime.UTC)
            raise Denied(f"The certificate has ended {ended:%Y-%m-%d %H:%M} UTC, too long ago.", fix=_JOIN)
        return read

    def _check_issuer(self, shown: x509.Certificate) -> None:
        """Raises ``ValueError`` unless one of the trusted CAs has issued it."""
        for ca in self._cas:
            with contextlib.suppress(*MALFORMED):
                shown.verify_directly_issued_by(ca)
                return
        raise ValueError("no CA of this cluster has issued it")

    def renew_own(self, files: TlsFiles) -> None:
        """Replace the controller's own certificate, for the same key. Raises ``ConfigError`` or ``OSError``."""
        lifetime = datetime.timedelta(seconds=self.lifetimes.controller)
        pki.renew_server(self.directory, files, lifetime, self.serves)

    async def keep_own(self, files: TlsFiles) -> None:
        """Renew the controller's own certificate, for ever; open connections go on."""
        while True:
            due_s = await self.look_at_own(files)
            await asyncio.sleep(due_s)

    async def look_at_own(self, files: TlsFiles) -> float:
        """Renew that certificate unless it is good: of the CA that issues, with all names, begun, not soon over.

        Returns the seconds until the next look.
        """
        try:
            missing = self.serves - server_names.named(files.cert)
            present = certificate.read(files.cert)
            good = not missing and pki.is_of_issuer(self.directory, files.cert)
            if not good or not present.begins_at <= time.time() < present.renew_at:
                await asyncio.to_thread(self.renew_own, files)
                log.info("certificate.renewed", file=str(files.cert), names_added=sorted(missing))
            return min(max(1.0, certificate.read(files.cert).renew_at - time.time()), LOOK_AGAIN_S)
        except (ConfigError, OSError) as error:
            log.warning("certificate.renewal_failed", error=str(error))
            return RETRY_S


def ca_hash(pem: bytes) -> str:
    """Fingerprint of a CA: the hash of its certificate in DER form."""
    der = x509.load_pem_x509_certificate(pem).public_bytes(serialization.Encoding.DER)
    return "sha256:" + hashlib.sha256(der).hexdigest()


_JOIN = "Join again with a token: holdfast host token create NAME, or holdfast user token NAME"
