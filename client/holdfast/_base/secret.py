"""A value that must not be seen: it prints as ``***``, and there is one word in the code that opens it, ``reveal``.

What would carry it away by accident is refused: pickling, JSON, comparison by hash. A secret that has to travel is
put into its message by hand, at the last moment.
"""

from __future__ import annotations

import hmac
from typing import NoReturn

from holdfast.errors import InvalidInput, Violation

HIDDEN = "***"
"""Printed in place of a secret."""
MAX_BYTES = 64 << 10
"""Longest value; Linux takes variables of twice that."""
NAME_PATTERN = "[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
NAME_RULE = "letters, digits, dots, dashes and underscores, a letter or digit first; at most 63"


class Secret:
    """Holds bytes and shows none of them."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def reveal(self) -> bytes:
        """The value, for the code that must pass it on."""
        return self._value

    def __len__(self) -> int:
        return len(self._value)

    def __repr__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._value, other._value)

    __hash__ = None  # type: ignore[assignment]

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled")


def taken(value: bytes, path: str = "value") -> Secret:
    """A value as a user gives it: without the line end that files and ``echo`` put after it.

    Raises ``InvalidInput``, which shows nothing of it.
    """
    value = value.removesuffix(b"\n").removesuffix(b"\r")
    if not value:
        raise InvalidInput([Violation(path, "is empty", "give a value of one byte or more")], what="The secret")
    if b"\0" in value:
        problem = "contains a NUL byte, which no variable can hold"
        raise InvalidInput([Violation(path, problem, "encode it, such as with base64")], what="The secret")
    if len(value) > MAX_BYTES:
        problem = f"has {len(value):,} bytes; at most {MAX_BYTES:,} are allowed"
        fix = "put it in a file on the hosts, and tell the program where that is"
        raise InvalidInput([Violation(path, problem, fix)], what="The secret")
    return Secret(value)
