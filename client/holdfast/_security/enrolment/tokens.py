"""The form of a token: ``hft-`` and two dozen characters, of which the last ones find a slip of the hand.

The alphabet is Crockford's base 32 in lower case, without i, l, o and u.
"""

from __future__ import annotations

import hashlib
import secrets

from holdfast.errors import InvalidInput, Violation

PREFIX = "hft-"
SECRET_CHARACTERS = 26
"""130 bits, beyond guessing."""
CHECK_CHARACTERS = 4
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_ALIKE = str.maketrans({"o": "0", "i": "1", "l": "1"})


def draw() -> str:
    """A new random join token."""
    secret = "".join(secrets.choice(_ALPHABET) for _ in range(SECRET_CHARACTERS))
    return PREFIX + secret + _check(secret)


def digest(token: str) -> str:
    """The stored form of a token, a hash. Raises ``InvalidInput`` for what can't be one."""
    text = token.strip().lower()
    body = text.removeprefix(PREFIX).translate(_ALIKE)
    secret, check = body[:SECRET_CHARACTERS], body[SECRET_CHARACTERS:]
    if not text.startswith(PREFIX) or check != _check(secret):
        problem = "is no token, or was mistyped"
        raise InvalidInput([Violation("token", problem, "paste the whole line that the admin was given")])
    return hashlib.sha256(f"holdfast token {secret}".encode()).hexdigest()


def _check(secret: str) -> str:
    number = int.from_bytes(hashlib.sha256(secret.encode()).digest()[:4])
    return "".join(_ALPHABET[number >> 5 * i & 31] for i in range(CHECK_CHARACTERS))
