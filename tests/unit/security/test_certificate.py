"""What the standard library alone reads of a certificate is what ``cryptography`` reads."""

from __future__ import annotations

import datetime
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast._base.identity import Identity, Kind
from holdfast._security import certificate, pki, renewal
from holdfast.errors import ConfigError

# From 2050 on, the year has four digits in a certificate.
LIVES = tuple(datetime.timedelta(days=days) for days in (9 / 86400, 1, 3650, 12_000))


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pki")
    pki.create_ca("lab", directory)
    return directory


@pytest.mark.parametrize("life", LIVES, ids=str)
@pytest.mark.parametrize(
    "who",
    [
        Identity("lab", Kind.HOST, "h"),
        Identity("lab", Kind.USER, "ann@example.org"),
        Identity("c" * 63, Kind.CONTROLLER, "n" * 63),
    ],
    ids=lambda who: who.name[:20],
)
def test_dates_and_identity(ca: Path, tmp_path: Path, who: Identity, life: datetime.timedelta) -> None:
    files = pki.issue(ca, who, tmp_path, "leaf", lifetime=life, server=who.kind is Kind.CONTROLLER)
    read = certificate.read(files.cert)
    right = x509.load_pem_x509_certificate(files.cert.read_bytes())
    assert read.identity == who
    assert read.issued_at == right.not_valid_before_utc.timestamp() + 300
    assert read.ends_at == right.not_valid_after_utc.timestamp()
    assert read.issued_at < read.renew_at < read.ends_at


def test_dates_past_2049_have_another_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pki, "CA_LIFETIME", datetime.timedelta(days=365 * 60))
    pki.create_ca("lab", tmp_path)
    who = Identity("lab", Kind.HOST, "h")
    files = pki.issue(tmp_path, who, tmp_path, "leaf", lifetime=datetime.timedelta(days=365 * 50))
    right = x509.load_pem_x509_certificate(files.cert.read_bytes())
    assert right.not_valid_after_utc.year > 2049
    assert certificate.read(files.cert).ends_at == right.not_valid_after_utc.timestamp()


@pytest.mark.parametrize(
    "text", ["", "no certificate", "-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n"]
)
def test_what_is_none_is_refused_with_the_files_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "agent.pem"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"agent\.pem is no certificate of a cluster"):
        certificate.read(path)
    with pytest.raises(ConfigError, match="Cannot read"):
        certificate.read(tmp_path / "gone.pem")


def test_a_ca_names_nobody(ca: Path) -> None:
    with pytest.raises(ConfigError, match="carries 0 Holdfast identities"):
        certificate.read(ca / "ca.pem")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_ones_never_do_worse_than_be_refused(ca: Path, data: st.DataObject) -> None:
    import base64

    leaf = ca / "leaf.pem"
    if not leaf.exists():
        pki.issue(ca, Identity("lab", Kind.HOST, "h"), ca, "leaf")
    der = bytearray(x509.load_pem_x509_certificate(leaf.read_bytes()).public_bytes(Encoding.DER))
    for at in data.draw(st.lists(st.integers(0, len(der) - 1), min_size=1, max_size=4)):
        der[at] = data.draw(st.integers(0, 255))
    der = der[: data.draw(st.integers(0, len(der)))]
    pem = f"-----BEGIN CERTIFICATE-----\n{base64.b64encode(der).decode()}\n-----END CERTIFICATE-----\n"
    damaged = ca / "damaged.pem"
    damaged.write_text(pem)
    try:
        certificate.read(damaged)
    except ConfigError:
        pass


@pytest.mark.parametrize(("off_s", "renewed"), [(0.0, 0), (-3600.0, 1), (25 * 86_400.0, 1)])
def test_a_users_certificate_is_renewed_before_it_begins_and_when_it_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, off_s: float, renewed: int
) -> None:
    """That of a controller whose clock was ahead is not valid yet."""
    pki.create_ca("lab", tmp_path)
    user = Identity("lab", Kind.USER, "ann")
    files = pki.issue(tmp_path, user, tmp_path, "ann", lifetime=datetime.timedelta(days=30))
    now, asked = time.time() + off_s, []
    monkeypatch.setattr("holdfast._security.renewal.time.time", lambda: now)
    monkeypatch.setattr("holdfast._security.enrolment.renew.renew", lambda *given: asked.append(given))

    renewal.if_due("ctl:7444", files)

    assert len(asked) == renewed
