"""From a pasted line to a certificate and settings: for a host, and for a user."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from pathlib import Path

import grpc

from holdfast._base.dataclass import dataclass
from holdfast._base.identity import NAME_RULE, is_name
from holdfast._base.proto_values import seconds
from holdfast._base.rpc_status import from_rpc_error
from holdfast._security import certificate
from holdfast._security.enrolment import files, pinning, requests, tokens
from holdfast._security.enrolment.renew import checked_cas
from holdfast.errors import ConfigError, InvalidInput, Violation
from holdfast.v1 import access_pb2, enrolment_pb2, enrolment_pb2_grpc

CLOCKS_APART_S = 240.0
"""Certificates begin 300 s before they are issued; past this a new one might not be valid here yet."""
Clock = Callable[[], float]
"""Epoch seconds."""


@dataclass(frozen=True, slots=True)
class Line:
    """The contents of the admin's join line: the enrolment service's HOST:PORT, the token, and the hash of the CA."""

    address: str
    token: str
    ca_hash: str


@dataclass(frozen=True, slots=True)
class Enrolled:
    """Result of enrolment: path of the settings, our identity, and its expiry."""

    settings: Path
    cluster: str
    name: str
    controller: str
    ends_at: float
    motd: access_pb2.Motd | None = None
    """The message of the day, for users."""


def join(
    line: Line, name: str, directory: Path, *, state_dir: Path, log_dir: Path, clock: Clock = time.time
) -> Enrolled:
    """Make this machine the host ``name``: key, certificates and, where there is none, ``agent.toml``.

    Raises ``HoldfastError`` with what to do; nothing is written then.
    """
    if not is_name(name):
        raise InvalidInput([Violation("name", f"{name!r} is no name", NAME_RULE)])
    settings = directory / "agent.toml"
    if settings.exists():
        _check_same_host(settings, name)
    key, ca, answer = _enrol(line, name, clock)
    files.folder(directory)
    write_identity(directory, "agent", ca, key, answer.certificate)
    if not settings.exists():
        values = {
            "controller": answer.controller,
            "name": name,
            "state_dir": str(state_dir),
            "log_dir": str(log_dir),
            "ca": "ca.pem",
            "cert": "agent.pem",
            "key": "agent.key",
            "enrolment": answer.enrolment,
        }
        files.write(settings, files.toml("Made by `holdfast-agent join`, which leaves it alone.", values), 0o600)
    return enrolled(settings, answer)


def log_in(line: Line, directory: Path, *, clock: Clock = time.time) -> Enrolled:
    """Make the user running this the user of the token: key, certificates and ``client.toml`` in ``directory``."""
    key, ca, answer = _enrol(line, "", clock)
    files.folder(directory, 0o700)
    write_identity(directory, "user", ca, key, answer.certificate)
    settings = directory / "client.toml"
    values = {
        "controller": answer.controller,
        "ca": "ca.pem",
        "cert": "user.pem",
        "key": "user.key",
        "enrolment": answer.enrolment,
    }
    files.write(settings, files.toml("Made by `holdfast login`.", values), 0o600)
    return enrolled(settings, answer)


def _enrol(line: Line, host: str, clock: Clock) -> tuple[bytes, bytes, enrolment_pb2.EnrolResponse]:
    """(our key, the CA, the answer); the first two in PEM."""
    tokens.digest(line.token)  # a slip is found before anything is sent
    ca = pinning.fetch_authority(line.address, line.ca_hash, clock())
    key = requests.new_key()
    asked = enrolment_pb2.EnrolRequest(
        token=line.token.strip(), request=requests.request(key), host=host, takes_trusted=True
    )
    try:
        with pinning.channel(line.address, ca) as link:
            stub = enrolment_pb2_grpc.EnrolmentServiceStub(link)
            answer = stub.Enrol(asked, timeout=pinning.CALL_S)
    except grpc.RpcError as error:
        raise from_rpc_error(error, endpoint=line.address, within_s=pinning.CALL_S) from error
    check_clock(seconds(answer.time), clock())
    return requests.key_pem(key), checked_cas(answer.trusted or ca), answer


def check_clock(theirs: float, ours: float) -> None:
    """Raises ``ConfigError`` where the clocks of controller and machine are too far apart for certificates."""
    if abs(theirs - ours) > CLOCKS_APART_S:
        side = "behind" if ours < theirs else "ahead of"
        here = datetime.datetime.fromtimestamp(ours, datetime.UTC)
        there = datetime.datetime.fromtimestamp(theirs, datetime.UTC)
        raise ConfigError(
            f"The clock of this machine is {side} the controller's: {here:%Y-%m-%d %H:%M:%S} UTC here,"
            f" {there:%Y-%m-%d %H:%M:%S} UTC there.",
            fix="Set the clock (timedatectl set-ntp true), have another token made, and try again.",
        )


def _check_same_host(settings: Path, name: str) -> None:
    import tomllib

    try:
        known = tomllib.loads(settings.read_text()).get("name")
    except (OSError, ValueError) as error:
        raise ConfigError(f"Cannot read {settings}: {error}.") from error
    if known != name:
        fix = f"Write --name {known}, or remove {settings} first."
        raise ConfigError(f"{settings} is that of the host {known}, not of {name}.", fix=fix)


def write_identity(directory: Path, stem: str, ca: bytes, key: bytes, certified: bytes) -> None:
    """Write the CAs, a key (mode 0600) and its certificate into a folder."""
    files.write(directory / "ca.pem", ca, 0o644)
    files.write(directory / f"{stem}.key", key, 0o600)
    files.write(directory / f"{stem}.pem", certified, 0o644)


def enrolled(settings: Path, answer: enrolment_pb2.EnrolResponse | enrolment_pb2.SignInResponse) -> Enrolled:
    """The result, as the certificate in the answer says it."""
    read = certificate.parse(answer.certificate.decode())
    motd = answer.motd if answer.HasField("motd") else None
    return Enrolled(settings, answer.cluster, read.identity.name, answer.controller, read.ends_at, motd)
