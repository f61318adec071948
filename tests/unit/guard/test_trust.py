"""What follows from the secret that the tasks share."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography import x509

from holdfast._security import pki
from holdfast.errors import ConfigError, Unauthenticated
from holdfast.guard import certificates, trust

SEED, OTHER = b"s" * trust.SEED_BYTES, b"o" * trust.SEED_BYTES


def written(folder: Path, seed: bytes, host: str) -> Path:
    folder.mkdir()
    certificates.write_here(seed, folder, host, controller=True)
    return folder


def trusts(ca: Path, leaf: Path) -> bool:
    try:
        x509.load_pem_x509_certificate(leaf.read_bytes()).verify_directly_issued_by(
            x509.load_pem_x509_certificate(ca.read_bytes())
        )
    except Exception:  # noqa: BLE001 cryptography raises several kinds
        return False
    return True


def test_tasks_that_share_a_seed_trust_each_other_and_no_one_else(tmp_path: Path) -> None:
    one, two = written(tmp_path / "1", SEED, "n1"), written(tmp_path / "2", SEED, "n2")
    stranger = written(tmp_path / "3", OTHER, "n3")

    assert trusts(one / "ca.pem", two / "agent.pem")
    assert trusts(two / "ca.pem", one / "controller.pem")
    assert not trusts(one / "ca.pem", stranger / "agent.pem")


def test_keys_are_the_users_alone(tmp_path: Path) -> None:
    folder = written(tmp_path / "1", SEED, "n1")

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.glob("*.key")}
    assert modes == dict.fromkeys(("ca.key", "user.key", "agent.key", "controller.key"), 0o600)


def test_a_ca_of_no_seed_is_random(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        pki.create_ca("c", tmp_path / name)

    assert (tmp_path / "a/ca.key").read_bytes() != (tmp_path / "b/ca.key").read_bytes()


@pytest.mark.parametrize("text", ["abc", "zz" * 32, "aa" * 31])
def test_a_given_seed_has_32_bytes(text: str) -> None:
    with pytest.raises(ConfigError, match="32 bytes"):
        trust.given_seed(text)


def test_a_proof_is_of_these_words_by_this_seed() -> None:
    proof = trust.proof(SEED, "task", "1")

    assert proof == trust.proof(SEED, "task", "1")
    assert (
        len({proof, trust.proof(OTHER, "task", "1"), trust.proof(SEED, "task1"), trust.proof(SEED, "1", "task")})
        == 4
    )


class Unmunge:
    """What munge's programs print, without its daemon."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.uid, self.status, self.body = os.getuid(), "Success (0)", b""
        monkeypatch.setattr(subprocess, "run", self.run)

    def run(self, command: list[str], **given: object) -> subprocess.CompletedProcess[bytes]:
        if command[0] == "munge":
            body = given["input"]
            assert isinstance(body, bytes)
            assert f"--restrict-uid={os.getuid()}" in command
            self.body = body
            return subprocess.CompletedProcess(command, 0, b"MUNGE:x:\n", b"")
        head = f"STATUS:          {self.status}\nUID:             someone ({self.uid})\n\n".encode()
        failed = 0 if self.status == "Success (0)" else 15
        return subprocess.CompletedProcess(command, failed, head + self.body, b"")


def test_a_seed_travels_in_a_credential(monkeypatch: pytest.MonkeyPatch) -> None:
    Unmunge(monkeypatch)
    munge = trust.Munge()

    assert munge.open(munge.seal(SEED, "17.0"), "17.0") == SEED


def test_another_users_credential_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Unmunge(monkeypatch)
    munge = trust.Munge()
    sealed = munge.seal(SEED, "17.0")
    fake.uid += 1

    with pytest.raises(Unauthenticated, match="another user"):
        munge.open(sealed, "17.0")


def test_a_credential_of_another_job_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    Unmunge(monkeypatch)
    munge = trust.Munge()

    with pytest.raises(Unauthenticated, match="another job"):
        munge.open(munge.seal(SEED, "17.0"), "18.0")


def test_an_expired_credential_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Unmunge(monkeypatch)
    munge = trust.Munge()
    sealed = munge.seal(SEED, "17.0")
    fake.status = "Expired credential (15)"

    with pytest.raises(Unauthenticated, match=r"Expired credential \(15\)\. Set the clocks of both hosts, by NTP"):
        munge.open(sealed, "17.0")
