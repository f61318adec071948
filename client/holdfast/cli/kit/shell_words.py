"""Commands as a person would type them into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

_KEPT_BY_DOUBLE_QUOTES = frozenset('"$`\\!')
"""What a shell still reads within double quotes."""


def shell_line(words: Sequence[str]) -> str:
    """The words as one line that a shell reads back as they are, such as ``python -c "print('x')"``."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    if "'" in word and not _KEPT_BY_DOUBLE_QUOTES.intersection(word):
        return f'"{word}"'
    return shlex.quote(word)
