"""Values of secrets: opened with the right key, as the right name of the right holder, and given in one order."""

from __future__ import annotations

import dataclasses
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from holdfast._base.secret import Secret
from holdfast._session.assignment import Assignment, Launch, Phase, SecretVariable
from holdfast._session.reports import WorkerId
from holdfast.errors import ConfigError, StorageFull
from holdfast.v1 import agent_pb2
from holdfast_controller.core.model.gang import Task
from holdfast_controller.core.step.actions import KeepSecret
from holdfast_controller.shell.secrets import secret_keys, vault
from holdfast_controller.shell.secrets.vault import Unreadable, Vault

OLD, NEW = (AESGCM.generate_key(256) for _ in range(2))
ANN, CANARY = ("user/ann", "wandb"), Secret(b"canary-77")


def holding(*keys: bytes) -> Vault:
    """A vault in which ann's wandb is sealed by the first key."""
    made = Vault(keys, {})
    made.keep(KeepSecret(*ANN, made.seal(*ANN, CANARY)))
    return made


def sealed(of: Vault) -> bytes:
    return of._sealed[ANN]


def test_a_value_comes_back_and_is_not_in_what_is_stored() -> None:
    kept = holding(NEW)
    assert kept.open(*ANN) == CANARY
    assert b"canary" not in sealed(kept)
    assert kept.seal(*ANN, CANARY) != sealed(kept), "a nonce is used once"


@pytest.mark.parametrize("other", [("user/bob", "wandb"), ("user/ann", "hf"), ("project/ann", "wandb")])
def test_a_value_that_was_moved_to_another_name_or_holder_opens_no_more(other: tuple[str, str]) -> None:
    kept = holding(NEW)
    kept.keep(KeepSecret(*other, sealed(kept)))
    with pytest.raises(Unreadable, match="can't be opened"):
        kept.open(*other)
    assert kept.unreadable() == [other]


@pytest.mark.parametrize("place", [0, 9, 25, -1])
def test_a_flipped_bit_anywhere_is_found(place: int) -> None:
    kept = holding(NEW)
    damaged = bytearray(sealed(kept))
    damaged[place] ^= 1
    kept.keep(KeepSecret(*ANN, bytes(damaged)))
    assert not kept.opens(*ANN)


def test_what_was_cut_short_or_is_gone_is_unreadable() -> None:
    kept = holding(NEW)
    kept.keep(KeepSecret(*ANN, b"short"))
    assert not kept.opens(*ANN)
    kept.keep(KeepSecret(*ANN, None))
    with pytest.raises(Unreadable, match="is not there any more"):
        kept.open(*ANN)


def test_a_new_key_opens_what_the_old_one_sealed_once_all_was_sealed_anew() -> None:
    both = Vault((NEW, OLD), {ANN: sealed(holding(OLD))})
    assert both.open(*ANN) == CANARY
    [anew] = both.reencrypted()
    assert Vault((NEW,), {ANN: anew.sealed or b""}).open(*ANN) == CANARY
    assert not Vault((NEW,), {ANN: sealed(both)}).opens(*ANN)
    both.keep(anew)
    assert both.reencrypted() == []


def test_all_values_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vault, "MOST_BYTES", 100)
    kept = holding(NEW)
    with pytest.raises(StorageFull):
        kept.seal("user/bob", "x", Secret(b"y" * 80))
    kept.keep(KeepSecret(*ANN, None))
    assert kept.seal("user/bob", "x", Secret(b"y" * 80))


def test_a_full_vault_takes_another_value_in_place_of_one_and_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Vault((OLD,), {})
    kept.keep(KeepSecret(*ANN, kept.seal(*ANN, CANARY)))
    monkeypatch.setattr(vault, "MOST_BYTES", len(sealed(kept)))

    assert kept.seal(*ANN, Secret(b"canary-78"))
    rotated = Vault((NEW, OLD), kept._sealed)
    (again,) = rotated.reencrypted()
    rotated.keep(again)
    assert rotated.open(*ANN) == CANARY


VARIABLES = (SecretVariable("KEY", secret="wandb", holder="user/ann"), SecretVariable("X", file="/etc/x"))


def order(phase: Phase, secrets: tuple[SecretVariable, ...] = VARIABLES) -> Assignment:
    launch = Launch(Task(("train",), secrets=secrets), 0, 1, 1) if phase is not Phase.STOP else None
    return Assignment(1, WorkerId("j", "workerpool0-0"), 1, 1, phase, launch=launch)


def given(kept: Vault, asked: Assignment) -> agent_pb2.Launch:
    message = agent_pb2.Assignment(launch=agent_pb2.Launch(processes=1))
    kept.give(asked, message)
    return message.launch


def test_values_go_with_the_order_to_run_alone() -> None:
    run = given(holding(NEW), order(Phase.RUN))
    assert [(each.name, each.value) for each in run.secrets] == [("KEY", b"canary-77")]
    assert run.lacks == ""
    assert given(holding(NEW), order(Phase.PREPARE)) == agent_pb2.Launch(processes=1)
    message = agent_pb2.Assignment()
    holding(NEW).give(order(Phase.STOP), message)
    assert not message.HasField("launch")


@pytest.mark.parametrize("phase", [Phase.PREPARE, Phase.RUN])
def test_an_order_says_which_secret_is_lacking_and_then_holds_none(phase: Phase) -> None:
    missing = dataclasses.replace(VARIABLES[0], name="OTHER", secret="gone")
    launch = given(holding(NEW), order(phase, (*VARIABLES, missing)))
    assert not launch.secrets
    assert launch.lacks == (
        "The secret gone of user ann, for OTHER, is not there any more. Set it again: holdfast secret set gone"
    )


def test_an_order_that_lacks_a_projects_secret_says_how_to_set_that() -> None:
    missing = SecretVariable("OTHER", secret="gone", holder="project/vision")
    launch = given(holding(NEW), order(Phase.PREPARE, (missing,)))
    assert launch.lacks.endswith("Set it again: holdfast secret set gone --project vision")


def test_values_that_would_not_fit_into_a_message_are_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vault, "MOST_OF_A_WORKER", 8)
    launch = given(holding(NEW), order(Phase.RUN))
    assert not launch.secrets
    assert "have 9 bytes together; at most 8" in launch.lacks


def test_the_key_file_is_made_once_for_nobody_else_to_read(tmp_path: Path) -> None:
    path = tmp_path / "state" / "secrets.key"
    [key] = secret_keys.load_or_make(path)
    assert len(key) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert secret_keys.load_or_make(path) == (key,)
    secret_keys.write(path, (NEW, key))
    assert secret_keys.load(path) == (NEW, key)


@pytest.mark.parametrize("text", [b"", b"canary-77\n", b"Y2FuYXJ5\n", b"\xff\n"])
def test_a_damaged_key_file_is_refused_and_not_shown(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "secrets.key"
    path.write_bytes(text)
    with pytest.raises(ConfigError) as caught:
        secret_keys.load_or_make(path)
    assert f"{path} holds no keys." in str(caught.value)
    assert "canary" not in str(caught.value) and caught.value.__cause__ is None
