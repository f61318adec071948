"""Conditions on labels, as Kubernetes writes them: ``gpu in (h100,h200),!old,rack!=r7``.

``key=value``, ``key in (a,b)`` and ``key`` ask for a label; ``key!=value``, ``key notin (a,b)`` and ``!key`` for its
absence: they also hold where there is no such label.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from holdfast._base.dataclass import dataclass

MATCH_CHARS = 4_096
CONDITIONS_MOST = 64
MATCH_FIX = "write conditions with commas between them, such as: gpu in (h100,h200),!old,rack!=r7"
_WORD = r"""[^\s,()=!<>'"]{1,64}"""
_CONDITION = re.compile(
    rf"""\s*(?:
        !\s*(?P<lacks>{_WORD})
        | (?P<key>{_WORD}) \s* (?P<sign>==|=|!=) \s* (?P<value>{_WORD})
        | (?P<of>{_WORD}) \s+ (?P<how>in|notin) \s* \( \s* (?P<values>{_WORD}(?:\s*,\s*{_WORD})*) \s* \)
        | (?P<has>{_WORD})
    )\s*(?P<end>,|$)""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Condition:
    """A label that is asked for, with one of ``values``, or with any where there are none; or that is ``unwanted``."""

    key: str
    values: tuple[str, ...] = ()
    unwanted: bool = False

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether it holds for these labels."""
        value = labels.get(self.key)
        there = value in self.values if self.values else value is not None
        return there is not self.unwanted

    def __str__(self) -> str:
        if not self.values:
            return f"!{self.key}" if self.unwanted else self.key
        if len(self.values) == 1:
            return f"{self.key}{'!=' if self.unwanted else '='}{self.values[0]}"
        return f"{self.key} {'notin' if self.unwanted else 'in'} ({','.join(self.values)})"


def read_match(text: str) -> tuple[Condition, ...]:
    """The conditions of a text; of an empty one none. Raises ``ValueError`` with the problem in words."""
    found: list[Condition] = []
    at = 0
    while text.strip() and at <= len(text):
        read = _CONDITION.match(text, at)
        if read is None:
            rest = text[at:].strip()
            raise ValueError(f"{rest[:40]!r} is no condition on a label" if rest else "ends with a comma")
        found.append(_condition(read))
        if len(found) > CONDITIONS_MOST:
            raise ValueError(f"has more than {CONDITIONS_MOST} conditions")
        if not read["end"]:
            break
        at = read.end()
    return tuple(found)


def _condition(read: re.Match[str]) -> Condition:
    if read["lacks"]:
        return Condition(read["lacks"], unwanted=True)
    if read["key"]:
        return Condition(read["key"], (read["value"],), read["sign"] == "!=")
    if read["of"]:
        values = sorted({value.strip() for value in read["values"].split(",")})
        return Condition(read["of"], tuple(values), read["how"] == "notin")
    return Condition(read["has"])


def contradiction(conditions: Iterable[Condition]) -> str:
    """The first label for which not all conditions can hold at once; empty where there is none."""
    by_key: dict[str, list[Condition]] = {}
    for each in conditions:
        by_key.setdefault(each.key, []).append(each)
    return next((key for key, of_key in by_key.items() if not _can_hold(of_key)), "")


def _can_hold(conditions: list[Condition]) -> bool:
    """Whether some value of one label, or its absence, meets all conditions on it."""
    key = conditions[0].key
    named = {value for each in conditions for value in each.values}
    other = "".join(sorted(named)) + "?"
    return any(
        all(each.holds(labels) for each in conditions) for labels in ({}, *({key: v} for v in (*named, other)))
    )
