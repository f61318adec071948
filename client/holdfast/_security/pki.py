"""Makes a cluster's certificates: one CA, and a leaf for each controller, host and user.

An identity is the URI in the leaf (``holdfast._base.identity``). All may call; a controller's leaf may serve as the
controller, and a host's under the one name ``holdfast-host``, which no client accepts from a controller.
Uses ``cryptography``, so an agent never imports this.
"""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Collection
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from holdfast._base.identity import BACKDATED_S, Identity, Kind
from holdfast._security import certificate, server_names
from holdfast._security.replacing import write as write
from holdfast._security.tls import HOST_NAME, TlsFiles
from holdfast.errors import ConfigError

CLOCK_SKEW = datetime.timedelta(seconds=BACKDATED_S)
"""Certificates start this long ago, for parties whose clocks are behind."""
PublicKey = ec.EllipticCurvePublicKey
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
CA_LIFETIME = datetime.timedelta(days=3650)
LEAF_LIFETIME = datetime.timedelta(days=365)


def create_ca(cluster: str, directory: Path, *, seed: bytes = b"") -> None:
    """Write ``ca.pem`` and ``ca.key`` (mode 0600), each atomically, into ``directory``, which must exist.

    The CA signs leaves only, never another CA. Those that are made from one secret ``seed`` trust each other's leaves.
    """
    key = _derived_key(seed) if seed else ec.generate_private_key(ec.SECP256R1())
    name = _common_name(f"Holdfast CA of {cluster}")
    made = (
        _builder(key.public_key(), _now(), CA_LIFETIME)
        .subject_name(name)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(ca=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    _write_pair(directory, "ca", key, made)


def _derived_key(seed: bytes) -> ec.EllipticCurvePrivateKey:
    # 64 bits more than the order of the group: no value is likelier than another to any measure.
    wide = HKDF(hashes.SHA256(), 40, salt=None, info=b"holdfast ca").derive(seed)
    return ec.derive_private_key(1 + int.from_bytes(wide) % (_P256_ORDER - 1), ec.SECP256R1())


def issue(
    ca_directory: Path,
    identity: Identity,
    directory: Path,
    name: str,
    *,
    lifetime: datetime.timedelta = LEAF_LIFETIME,
    server: bool = False,
    names: Collection[str] = (),
) -> TlsFiles:
    """Write ``NAME.pem`` and ``NAME.key`` (mode 0600), each atomically, into ``directory``, which must exist.

    ``server`` lets the holder serve everything as ``holdfast-controller``, ``localhost``, 127.0.0.1 and ``names``
    (``server_names.served``), and is for controllers only (``ValueError`` otherwise). The certificate never outlives
    its CA. Raises ``ConfigError`` when the CA's files are missing or unreadable.
    """
    if server and identity.kind is not Kind.CONTROLLER:
        raise ValueError(f"{identity} may not serve: it is no controller.")
    key = ec.generate_private_key(ec.SECP256R1())
    made = _leaf(
        ca_directory, identity, key.public_key(), _now(), lifetime, serves=_serves(server=server, names=names)
    )
    _write_pair(directory, name, key, made)
    return TlsFiles(ca_directory / "ca.pem", directory / f"{name}.pem", directory / f"{name}.key")


def sign(
    ca_directory: Path, identity: Identity, key: PublicKey, issued_at: float, lifetime: datetime.timedelta
) -> bytes:
    """A certificate in PEM for another party's key, issued at a time in epoch seconds; see ``issue``."""
    issued = datetime.datetime.fromtimestamp(issued_at, datetime.UTC)
    made = _leaf(ca_directory, identity, key, issued, lifetime, serves=())
    return made.public_bytes(serialization.Encoding.PEM)


def renew_server(
    ca_directory: Path, files: TlsFiles, lifetime: datetime.timedelta, names: Collection[str] = ()
) -> None:
    """Replace a controller's certificate by one for the same key and identity that begins now; ``names`` as above.

    Raises ``ConfigError`` when a file can't be read or is not what it should be.
    """
    old = certificate.read(files.cert)
    key = _read_key(files.key)
    renewed = _leaf(
        ca_directory, old.identity, key.public_key(), _now(), lifetime, serves=_serves(server=True, names=names)
    )
    write(files.cert, renewed.public_bytes(serialization.Encoding.PEM), 0o644)


def _serves(*, server: bool, names: Collection[str]) -> frozenset[str]:
    return frozenset(server_names.ALWAYS).union(names) if server else frozenset()


def _leaf(
    ca_directory: Path,
    identity: Identity,
    key: PublicKey,
    issued: datetime.datetime,
    lifetime: datetime.timedelta,
    *,
    serves: Collection[str],
) -> x509.Certificate:
    ca, ca_key = _read_ca(ca_directory)
    if issued >= ca.not_valid_after_utc:
        raise ConfigError(
            f"The CA in {ca_directory} has ended, by this machine's clock: {ca.not_valid_after_utc:%Y-%m-%d}.",
            fix="Set the clock right, or make a new CA: holdfast-controller init",
        )
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(str(identity))]
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    names += server_names.general_names(serves)
    if identity.kind is Kind.HOST:
        names.append(x509.DNSName(HOST_NAME))
    if serves or identity.kind is Kind.HOST:
        usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
    authority = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
        ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    )
    return (
        _builder(key, issued, lifetime, not_after=ca.not_valid_after_utc)
        .subject_name(_common_name(identity.name))
        .issuer_name(ca.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(authority, critical=False)
        .sign(ca_key, hashes.SHA256())
    )


# --- The change of a CA: ``ca.pem`` holds all that are trusted, the issuer first; ``ca.key`` is the issuer's ------

NEXT_KEY = "ca-next.key"


def trusted_cas(directory: Path) -> list[bytes]:
    """Every CA in ``ca.pem``, each in PEM, the issuer first. Raises ``ConfigError``."""
    return [each.public_bytes(serialization.Encoding.PEM) for each in _read_trusted(directory)]


def add_next_ca(directory: Path, cluster: str) -> None:
    """Make another CA, whose key is kept as ``ca-next.key``, and trust it after the one that issues."""
    issuer = _read_trusted(directory)[0]
    with tempfile.TemporaryDirectory(dir=directory, prefix=".next.") as made:
        create_ca(cluster, Path(made))
        fresh = _read_certificate(Path(made) / "ca.pem")
        write(directory / NEXT_KEY, (Path(made) / "ca.key").read_bytes(), 0o600)
    _write_trusted(directory, [issuer, fresh])


def let_next_issue(directory: Path) -> None:
    """The next CA issues from now on; the one so far is still trusted, and its key is gone."""
    key = _read_key(directory / NEXT_KEY).public_key()
    # By its key and not by its place: this may have been begun before.
    trusted = sorted(_read_trusted(directory), key=lambda each: each.public_key() != key)
    write(directory / "ca.key", (directory / NEXT_KEY).read_bytes(), 0o600)
    _write_trusted(directory, trusted)
    (directory / NEXT_KEY).unlink()


def drop_old_cas(directory: Path) -> None:
    """Trust only the CA that issues."""
    _write_trusted(directory, _read_trusted(directory)[:1])


def mend_change(directory: Path) -> None:
    """Go on with a change that was cut off between its files: whose key is there issues. Raises ``ConfigError``."""
    trusted = _read_trusted(directory)
    key = _read_key(directory / "ca.key").public_key()
    issuers = [each for each in trusted if each.public_key() == key]
    if not issuers:
        return
    if issuers[0] != trusted[0]:
        _write_trusted(directory, [issuers[0], *(each for each in trusted if each != issuers[0])])
    following = directory / NEXT_KEY
    if following.exists() and following.read_bytes() == (directory / "ca.key").read_bytes():
        following.unlink()


def is_of_issuer(directory: Path, cert: Path) -> bool:
    """Whether the CA that issues has issued this certificate. Raises ``ConfigError``."""
    try:
        _read_certificate(cert).verify_directly_issued_by(_read_ca(directory)[0])
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _read_trusted(directory: Path) -> list[x509.Certificate]:
    return _read_certificates(directory / "ca.pem")


def _read_certificates(path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}.") from error
    except ValueError as error:
        raise ConfigError(f"{path} is no certificate in PEM form.") from error


def _write_trusted(directory: Path, trusted: list[x509.Certificate]) -> None:
    pem = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in trusted)
    write(directory / "ca.pem", pem, 0o644)


def check_ca(directory: Path) -> None:
    """Raises ``ConfigError`` unless ``ca.pem`` and ``ca.key`` can be read and belong together."""
    ca, _ = _read_ca(directory)
    if ca != _read_certificate(directory / "ca.pem"):
        raise _not_the_key(directory)


def remaining(certificate: Path) -> datetime.timedelta:
    """How long the PEM certificate is still valid; negative once it has expired. Raises ``ConfigError``."""
    loaded = _read_certificate(certificate)
    return loaded.not_valid_after_utc - datetime.datetime.now(datetime.UTC)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _builder(
    key: PublicKey,
    issued: datetime.datetime,
    lifetime: datetime.timedelta,
    *,
    not_after: datetime.datetime | None = None,
) -> x509.CertificateBuilder:
    end = issued + lifetime
    return (
        x509.CertificateBuilder()
        .serial_number(x509.random_serial_number())
        .public_key(key)
        .not_valid_before(issued - CLOCK_SKEW)
        .not_valid_after(min(end, not_after) if not_after else end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _common_name(text: str) -> x509.Name:
    # X.509 allows 64 characters; nothing reads the common name but people.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _key_usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not ca,
        key_cert_sign=ca,
        crl_sign=ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _read_certificate(path: Path) -> x509.Certificate:
    return _read_certificates(path)[0]


def _read_ca(directory: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """The CA that issues and its key, which say together who that is, also in the middle of a change."""
    trusted, key = _read_trusted(directory), _read_key(directory / "ca.key")
    for each in trusted:
        if each.public_key() == key.public_key():
            return each, key
    raise _not_the_key(directory)


def _not_the_key(directory: Path) -> ConfigError:
    return ConfigError(f"{directory / 'ca.key'} is not the key of {directory / 'ca.pem'}.")


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}.") from error
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{path} is no private key in PEM form.") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{path} is no elliptic curve key.")
    return key


def _write_pair(directory: Path, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write(directory / f"{name}.key", pem, 0o600)
    write(directory / f"{name}.pem", certificate.public_bytes(serialization.Encoding.PEM), 0o644)
