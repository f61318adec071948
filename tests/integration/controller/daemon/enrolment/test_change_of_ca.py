"""A change of the CA that is cut off anywhere, and controllers whose certificates it has passed by: all are let in."""

from __future__ import annotations

import datetime
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from holdfast._base.identity import Identity, Kind
from holdfast._security import certificate, pki
from holdfast._security.tls import TlsFiles
from holdfast.errors import ConfigError, StoreError
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.shell.base.config import CertificateConfig
from holdfast_controller.shell.enrolment.authority import RETRY_S, Authority
from holdfast_controller.shell.enrolment.rotation import Rotation, Stage

pytestmark = pytest.mark.anyio
CONTROLLER = Identity("lab", Kind.CONTROLLER, "controller")
USER = Identity("lab", Kind.USER, "ann")
DAY_S = 86_400.0


class CutOff(BaseException):
    """The process ends here."""


class Nobody:
    """No certificates were issued that anyone has to renew."""

    async def all(self) -> dict[str, Any]:
        return {}


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    directory = tmp_path / "ca"
    directory.mkdir()
    pki.create_ca("lab", directory)
    return directory


def issuers(ca: Path, cert: Path) -> list[int]:
    """The places in ``ca.pem`` of those that have issued a certificate."""
    shown, found = x509.load_pem_x509_certificate(cert.read_bytes()), []
    for place, each in enumerate(x509.load_pem_x509_certificates((ca / "ca.pem").read_bytes())):
        try:
            shown.verify_directly_issued_by(each)
        except Exception:  # noqa: BLE001 a signature, a name or a key is wrong
            continue
        found.append(place)
    return found


def controller(ca: Path, folder: Path) -> tuple[Authority, TlsFiles]:
    folder.mkdir(exist_ok=True)
    files = pki.issue(ca, CONTROLLER, folder, "controller", server=True)
    return Authority(ca, CertificateConfig()), files


def rotation(authority: Authority, files: TlsFiles) -> Rotation:
    return Rotation(authority, Nobody(), Cluster(), (), files)  # type: ignore[arg-type]


async def step(rotating: Rotation, name: str = "rotate") -> str:
    return str((await rotating.answer({"step": name, "force": True}))["stage"])


@pytest.mark.parametrize("cut", range(4))
async def test_a_change_that_is_cut_off_goes_on_and_all_that_is_issued_meanwhile_is_good(
    ca: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    """After so many of its three changes to files, or none of them."""
    authority, files = controller(ca, tmp_path / "own")
    assert await step(rotation(authority, files)) == Stage.ANNOUNCED.value
    left = cut
    write, unlink = pki.write, Path.unlink

    def may_change() -> None:
        nonlocal left
        if not left:
            raise CutOff
        left -= 1

    def cut_write(path: Path, content: bytes, mode: int) -> None:
        may_change()
        write(path, content, mode)

    def cut_unlink(path: Path, missing_ok: bool = False) -> None:
        if path.name == pki.NEXT_KEY:
            may_change()
        unlink(path, missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(pki, "write", cut_write)
        patched.setattr(Path, "unlink", cut_unlink)
        try:
            pki.let_next_issue(ca)
        except CutOff:
            pass
    during = pki.issue(ca, USER, tmp_path, "during").cert
    assert len(issuers(ca, during)) == 1

    authority = Authority(ca, CertificateConfig())  # it starts again
    rotating = rotation(authority, files)
    assert await authority.look_at_own(files) > RETRY_S
    assert issuers(ca, files.cert) == [0]
    if rotating.stage is Stage.ANNOUNCED:
        assert not cut, "the new one has issued"
        await step(rotating)
    assert rotating.stage is Stage.ISSUING
    assert issuers(ca, files.cert) == [0]
    assert await step(rotating, "finish") == Stage.AT_REST.value
    assert issuers(ca, files.cert) == [0] == issuers(ca, pki.issue(ca, USER, tmp_path, "after").cert)
    assert sorted(os.listdir(ca)) == ["ca.key", "ca.pem"]


async def test_a_controller_that_was_away_during_a_rotation_gets_a_certificate_of_the_new_ca(
    ca: Path, tmp_path: Path
) -> None:
    first, other = controller(ca, tmp_path / "own"), controller(ca, tmp_path / "others")[1]
    for name in ("rotate", "rotate", "finish"):
        await step(rotation(*first), name)
    assert issuers(ca, other.cert) == []
    copied = tmp_path / "copied"
    shutil.copytree(ca, copied)

    await Authority(copied, CertificateConfig()).look_at_own(other)

    assert issuers(copied, other.cert) == [0]


async def test_a_file_that_cannot_be_written_is_named(
    ca: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rotating = rotation(*controller(ca, tmp_path / "own"))
    await step(rotating)

    def full(ca_directory: Path, files: TlsFiles, *_: object) -> None:
        raise OSError(28, "No space left on device", str(files.cert))

    monkeypatch.setattr(pki, "renew_server", full)

    with pytest.raises(StoreError, match=r"controller\.pem: No space left on device"):
        await step(rotating)


async def test_a_certificate_that_is_not_valid_yet_is_replaced(ca: Path, tmp_path: Path) -> None:
    authority, files = controller(ca, tmp_path / "own")
    ahead = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=300)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pki, "_now", lambda: ahead)
        authority.renew_own(files)
    assert certificate.read(files.cert).begins_at > time.time() + 299 * DAY_S

    await authority.look_at_own(files)

    assert certificate.read(files.cert).begins_at <= time.time()
    good = files.cert.read_bytes()
    await authority.look_at_own(files)
    assert files.cert.read_bytes() == good


def test_no_certificate_is_issued_by_a_ca_that_has_ended(ca: Path, tmp_path: Path) -> None:
    key = pki._read_key(pki.issue(ca, USER, tmp_path, "ann").key).public_key()

    with pytest.raises(ConfigError, match="has ended, by this machine's clock"):
        pki.sign(ca, USER, key, time.time() + 3651 * DAY_S, datetime.timedelta(days=1))
