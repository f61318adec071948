"""``$(NAME)`` in arguments and environment values, by the rules that Kubernetes and the managed services share.

``$(NAME)`` becomes the variable's value, ``$$`` a single ``$`` (so ``$$(NAME)`` is the text ``$(NAME)``). A name
that is not set stays as it was written, as does any other ``$``. What was put in is not expanded again. Results are
bounded: a handful of variables that double each other would otherwise fill a host's memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

MAX_BYTES = 131_071
"""Longest argument, or ``NAME=value``, that Linux takes (MAX_ARG_STRLEN without its final NUL)."""
MAX_TOTAL_BYTES = 1_000_000
"""Longest sum of all arguments, and of all variables of one task: both fit under Linux's usual 2 MiB together."""

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


class TooLong(ValueError):
    """The text would grow beyond what a process can be started with."""


def expand(text: str, env: Mapping[str, str], *, max_bytes: int = MAX_BYTES) -> str:
    """``text`` with its references to ``env`` replaced.

    Raises ``TooLong`` as soon as the result exceeds ``max_bytes`` of UTF-8.
    """
    parts: list[str] = []
    size = end = 0
    # A "$(" after the last bracket is none; searching on from each would take quadratic time.
    last = text.rfind(")") + 1
    for found in _REFERENCE.finditer(text, 0, last):
        name = found[1]
        new = "$" if name is None else env.get(name, found[0])
        for part in (text[end : found.start()], new):
            parts.append(part)
            size += byte_length(part)
        end = found.end()
        if size > max_bytes:
            break
    parts.append(text[end:last] + text[last:].replace("$$", "$"))
    if size + byte_length(parts[-1]) > max_bytes:
        raise TooLong(f"grows beyond {max_bytes:,} bytes once its variables are expanded")
    return "".join(parts)


def expand_env(pairs: Iterable[tuple[str, str]], base: Mapping[str, str]) -> dict[str, str]:
    """``base`` with ``pairs`` added in their order; each value may use ``base`` and the pairs before it.

    Raises ``TooLong`` that names the variable.
    """
    result = dict(base)
    total = 0
    for name, value in pairs:
        try:
            result[name] = expand(value, result, max_bytes=MAX_BYTES - byte_length(name) - 1)
        except TooLong as error:
            raise TooLong(f"{name} {error}") from None
        total += byte_length(name) + byte_length(result[name]) + 2
        if total > MAX_TOTAL_BYTES:
            raise TooLong(
                f"{name} takes the variables beyond {MAX_TOTAL_BYTES:,} bytes in all once they are expanded"
            )
    return result


def expand_args(args: Iterable[str], env: Mapping[str, str]) -> list[str]:
    """Every argument expanded. Raises ``TooLong`` that names the argument's place, counted from 0."""
    result: list[str] = []
    total = 0
    for place, arg in enumerate(args):
        try:
            result.append(expand(arg, env))
        except TooLong as error:
            raise TooLong(f"argument {place} {error}") from None
        total += byte_length(result[-1]) + 1
        if total > MAX_TOTAL_BYTES:
            raise TooLong(
                f"argument {place} takes the arguments beyond {MAX_TOTAL_BYTES:,} bytes in all"
                " once they are expanded"
            )
    return result


def references(text: str) -> list[str]:
    """Every name that ``text`` refers to, as ``expand`` reads it."""
    last = text.rfind(")") + 1
    return [found[1] for found in _REFERENCE.finditer(text, 0, last) if found[1] is not None]


def byte_length(text: str) -> int:
    """Bytes of ``text`` as a process sees it (undecodable bytes of an inherited environment count thrice)."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
