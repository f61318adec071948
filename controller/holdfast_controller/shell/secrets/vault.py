"""Values of secrets: sealed on disk and in memory, opened only while a host is ordered to launch.

Each value is sealed by AES-256-GCM under the newest key of ``secrets.key`` with a nonce of its own; its holder and
its name are authenticated with it, so that a row of the table which was moved to another name or another user opens
no more. A sealed value is: 8 bytes that name the key, 12 of nonce, the rest.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from holdfast._base.secret import Secret
from holdfast._daemon import log
from holdfast._session.assignment import Assignment, Phase, SecretVariable
from holdfast.errors import StorageFull
from holdfast.v1 import agent_pb2
from holdfast_controller.core.events.access import holder_in_words
from holdfast_controller.core.step.actions import KeepSecret
from holdfast_controller.shell.secrets import secret_keys
from holdfast_controller.shell.store import kept_rows
from holdfast_controller.shell.store.store import Store

KEY_NAME_BYTES, NONCE_BYTES = 8, 12
MOST_BYTES = 64 << 20
"""Most bytes of all encrypted values together; they are held in memory."""
MOST_OF_A_WORKER = 256 << 10
"""Of all values that one worker is given: they travel in one message, and each rank has them all."""


class Unreadable(Exception):
    """Why a secret has no value, in words that follow its name."""


class Vault:
    """All secrets in sealed form. ``keep`` follows the store; nothing here is ever written."""

    def __init__(self, keys: Sequence[bytes], sealed: Mapping[tuple[str, str], bytes]) -> None:
        """``keys``, the newest first; ``sealed`` by holder and name."""
        self._ciphers = {_name_of(key): AESGCM(key) for key in reversed(keys)}
        self._newest = _name_of(keys[0])
        self._sealed = dict(sealed)
        self._bytes = sum(map(len, self._sealed.values()))

    def seal(self, holder: str, name: str, secret: Secret) -> bytes:
        """Seal a value for storage. Raises ``StorageFull``."""
        if self._bytes - len(self._sealed.get((holder, name), b"")) + len(secret) > MOST_BYTES:
            raise StorageFull(f"All secrets together have {MOST_BYTES >> 20} MiB.", fix="Remove some.")
        return self._sealed_anyhow(holder, name, secret)

    def _sealed_anyhow(self, holder: str, name: str, secret: Secret) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        closed = self._ciphers[self._newest].encrypt(nonce, secret.reveal(), _belonging(holder, name))
        return self._newest + nonce + closed

    def open(self, holder: str, name: str) -> Secret:
        """The decrypted value. Raises ``Unreadable``."""
        sealed = self._sealed.get((holder, name))
        if sealed is None:
            raise Unreadable("is not there any more")
        cipher = self._ciphers.get(sealed[:KEY_NAME_BYTES])
        nonce, closed = sealed[KEY_NAME_BYTES:][:NONCE_BYTES], sealed[KEY_NAME_BYTES + NONCE_BYTES :]
        try:
            if cipher is None:
                raise InvalidTag
            return Secret(cipher.decrypt(nonce, closed, _belonging(holder, name)))
        except (InvalidTag, ValueError):
            raise Unreadable("can't be opened: it was sealed with a key that is lost, or was damaged") from None

    def opens(self, holder: str, name: str) -> bool:
        """Whether the secret has a value."""
        try:
            self.open(holder, name)
        except Unreadable:
            return False
        return True

    def keep(self, kept: KeepSecret) -> None:
        """Apply a durable change of a secret."""
        self._bytes -= len(self._sealed.pop((kept.holder, kept.name), b""))
        if kept.sealed is not None:
            self._sealed[kept.holder, kept.name] = kept.sealed
            self._bytes += len(kept.sealed)

    def unreadable(self) -> list[tuple[str, str]]:
        """Holder and name of every secret that can't be opened."""
        return [owned for owned in self._sealed if not self.opens(*owned)]

    def reencrypted(self) -> list[KeepSecret]:
        """Every secret that an older key has sealed, sealed with the newest."""
        return [
            KeepSecret(*owned, self._sealed_anyhow(*owned, self.open(*owned)))
            for owned, sealed in self._sealed.items()
            if sealed[:KEY_NAME_BYTES] != self._newest and self.opens(*owned)
        ]

    def give(self, order: Assignment, message: agent_pb2.Assignment) -> None:
        """Put into the order to launch what the worker's secret variables hold, or why it can't be launched."""
        variables = [each for each in order.launch.task.secrets if each.secret] if order.launch else []
        if not variables:
            return
        try:
            values = self._values(variables)
        except Unreadable as problem:
            message.launch.lacks = str(problem)
            return
        if order.phase is Phase.RUN:
            for name, secret in values.items():
                message.launch.secrets.add(name=name, value=secret.reveal())

    def _values(self, variables: Sequence[SecretVariable]) -> dict[str, Secret]:
        values = {}
        for each in variables:
            try:
                values[each.name] = self.open(each.holder, each.secret)
            except Unreadable as problem:
                about = f"The secret {each.secret} of {holder_in_words(each.holder)}, for {each.name},"
                kind, _, whose = each.holder.partition("/")
                option = f" --project {whose}" if kind == "project" else ""
                fix = f"Set it again: holdfast secret set {each.secret}{option}"
                raise Unreadable(f"{about} {problem}. {fix}") from None
        if (size := sum(map(len, values.values()))) > MOST_OF_A_WORKER:
            limit = f"at most {MOST_OF_A_WORKER:,} are given to one worker"
            raise Unreadable(f"The values of its secretEnv have {size:,} bytes together; {limit}.")
        return values


async def open_vault(store: Store, path: Path) -> Vault:
    """The vault over what the store holds, after all of it was sealed with the newest key.

    Raises ``ConfigError`` for a damaged key file. A lost one costs the secrets alone, which can be set again.
    """
    keys = await asyncio.to_thread(secret_keys.load_or_make, path)
    vault = Vault(keys, await asyncio.wrap_future(store.call(_rows, store)))
    if anew := vault.reencrypted():
        await asyncio.wrap_future(store.call(store.commit, [], anew))
        for kept in anew:
            vault.keep(kept)
        log.info("secrets.reencrypted", secrets=len(anew))
    lost = vault.unreadable()
    if lost:
        names = [f"{holder}/{name}" for holder, name in lost[:10]]
        fix = f"restore {path} from a backup and restart, or set them again"
        log.warning("secrets.unreadable", secrets=len(lost), examples=names, fix=fix)
    elif len(keys) > 1:
        await asyncio.to_thread(secret_keys.write, path, keys[:1])
    return vault


def _rows(store: Store) -> dict[tuple[str, str], bytes]:
    return store.transaction(kept_rows.read_secrets)


def _name_of(key: bytes) -> bytes:
    return hashlib.sha256(b"holdfast secrets key\n" + key).digest()[:KEY_NAME_BYTES]


def _belonging(holder: str, name: str) -> bytes:
    return json.dumps(["holdfast secret", holder, name]).encode()
