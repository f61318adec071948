"""A file under a passphrase, written and read as a stream: a cut, a swap or a changed byte is found.

The key is scrypt's. Each chunk is sealed with AES-256-GCM; its nonce counts, and says of the last one that it is
the last (the construction is known as STREAM, and is also that of age). It is not a file of age's because pyrage, its
Python binding, takes what goes under a passphrase whole into memory, and a backup may be larger than that.
"""

from __future__ import annotations

import io
import os
import struct
from typing import IO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from holdfast.errors import Denied, StoreError

CHUNK_BYTES = 1 << 20
SALT_BYTES = 16
_TAG_BYTES = 16
_COST = 1 << 15
"""32 MiB and a tenth of a second for each guess."""


def _cipher(passphrase: str, salt: bytes) -> AESGCM:
    return AESGCM(Scrypt(salt=salt, length=32, n=_COST, r=8, p=1).derive(passphrase.encode()))


def _nonce(number: int, *, last: bool) -> bytes:
    return bytes(3) + struct.pack(">Q?", number, last)


class Sealer(io.RawIOBase):
    """Writes what it is given to ``file``, sealed. Closing it writes the last chunk, and leaves ``file`` open."""

    def __init__(self, file: IO[bytes], passphrase: str, salt: bytes) -> None:
        self._file, self._cipher = file, _cipher(passphrase, salt)
        self._held, self._number = bytearray(), 0

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._held += data
        while len(self._held) > CHUNK_BYTES:
            self._put(bytes(self._held[:CHUNK_BYTES]), last=False)
            del self._held[:CHUNK_BYTES]
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._put(bytes(self._held), last=True)
        super().close()

    def _put(self, chunk: bytes, *, last: bool) -> None:
        self._file.write(self._cipher.encrypt(_nonce(self._number, last=last), chunk, None))
        self._number += 1


class Opener(io.RawIOBase):
    """Reads what a ``Sealer`` has written. Raises ``Denied`` for another passphrase, ``StoreError`` for damage."""

    def __init__(self, file: IO[bytes], passphrase: str, salt: bytes) -> None:
        self._file, self._cipher = file, _cipher(passphrase, salt)
        self._held, self._number, self._over = b"", 0, False
        self._next = self._file.read(CHUNK_BYTES + _TAG_BYTES)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while not self._over and (size < 0 or len(self._held) < size):
            self._take()
        wanted = len(self._held) if size < 0 else size
        found, self._held = self._held[:wanted], self._held[wanted:]
        return found

    def _take(self) -> None:
        sealed, self._next = self._next, self._file.read(CHUNK_BYTES + _TAG_BYTES)
        last = not self._next
        try:
            self._held += self._cipher.decrypt(_nonce(self._number, last=last), sealed, None)
        except InvalidTag as error:
            if self._number == 0:
                raise Denied("The passphrase is not that of the backup, or its file is damaged.") from error
            raise StoreError(
                "The backup is damaged, or cut short.", fix="Take another copy of it, or an earlier one."
            ) from error
        self._number += 1
        self._over = last


def new_salt() -> bytes:
    """For one file."""
    return os.urandom(SALT_BYTES)
