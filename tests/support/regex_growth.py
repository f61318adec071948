"""How the time of Python's matcher grows with the text: told from the pattern alone, before anybody sends the text.

A backtracking matcher tries every way in which a pattern can match. There are exponentially many if some state can
return to itself in two ways on the same characters, as in ``(a+)+``; polynomially many if two loops that follow each
other share characters, as in ``\\s+x?\\s+``. Both are looked for in the pattern's automaton of positions. A search
begins anew at each character, as if any characters could precede the pattern.

Repeats of up to ``SPELT_OUT`` are written out; longer ones count as loops, though they end. What a look-around asks
for is taken as granted, and read as a pattern of its own. So the answer errs on the side of growth.
"""

from __future__ import annotations

import enum
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

SPELT_OUT = 4
_SAMPLE = frozenset(map(chr, range(128))) | frozenset("\x85\xa0éßĀ٠가\u2028\U0001f600")
"""Characters that tell apart the classes that patterns name; a pattern's own literals come on top."""
_CATEGORIES = {
    op.CATEGORY_DIGIT: r"\d",
    op.CATEGORY_NOT_DIGIT: r"\D",
    op.CATEGORY_SPACE: r"\s",
    op.CATEGORY_NOT_SPACE: r"\S",
    op.CATEGORY_WORD: r"\w",
    op.CATEGORY_NOT_WORD: r"\W",
}


class Growth(enum.IntEnum):
    """Time for a text twice as long: twice, four times or more, or squared."""

    LINEAR = 1
    POLYNOMIAL = 2
    EXPONENTIAL = 3


@dataclass
class _Part:
    """Part of an automaton: whether it matches nothing, and the positions at which it begins and ends."""

    empty: bool
    first: set[int]
    last: set[int]


@dataclass
class _Automaton:
    flags: int
    alphabet: frozenset[str]
    chars: list[frozenset[str]] = field(default_factory=list)
    follow: list[set[int]] = field(default_factory=list)
    twice: set[tuple[int, int]] = field(default_factory=set)
    """Steps that can be made in two ways."""
    asides: list[Any] = field(default_factory=list)
    """Contents of look-arounds."""
    conditions: bool = False
    """Whether there are look-arounds, anchors or boundaries."""

    def sequence(self, items: Iterable[Any]) -> _Part:
        whole = _Part(True, set(), set())
        for item in items:
            part = self.one(item)
            self.join(whole.last, part.first)
            whole = _Part(
                whole.empty and part.empty,
                whole.first | part.first if whole.empty else whole.first,
                whole.last | part.last if part.empty else part.last,
            )
        return whole

    def one(self, item: Any) -> _Part:
        code, value = item
        match code:
            case op.LITERAL | op.NOT_LITERAL | op.IN | op.ANY:
                return self.position(frozenset(c for c in self.alphabet if _takes(item, c, self.flags)))
            case op.BRANCH:
                return self.either(value[1])
            case op.SUBPATTERN:
                return self.sequence(value[-1])
            case op.ATOMIC_GROUP:
                return self.sequence(value)
            case op.MAX_REPEAT | op.MIN_REPEAT | op.POSSESSIVE_REPEAT:
                return self.repeat(*value)
            case op.ASSERT | op.ASSERT_NOT:
                self.asides.append(value[1])
                self.conditions = True
                return _Part(True, set(), set())
            case op.AT:
                self.conditions = self.conditions or value is not op.AT_BEGINNING_STRING
                return _Part(True, set(), set())
            case op.GROUPREF:
                return self.repeat(0, op.MAXREPEAT, [(op.ANY, None)])
        raise NotImplementedError(f"{code} in a pattern")

    def join(self, ends: set[int], starts: set[int]) -> None:
        for end in ends:
            self.twice |= {(end, start) for start in self.follow[end] & starts}
            self.follow[end] |= starts

    def position(self, chars: frozenset[str]) -> _Part:
        self.chars.append(chars)
        self.follow.append(set())
        at = len(self.chars) - 1
        return _Part(False, {at}, {at})

    def either(self, branches: Iterable[Any]) -> _Part:
        parts = [self.sequence(branch) for branch in branches]
        return _Part(
            any(part.empty for part in parts),
            set().union(*(part.first for part in parts)),
            set().union(*(part.last for part in parts)),
        )

    def repeat(self, low: int, high: int, items: Any) -> _Part:
        if high <= SPELT_OUT:
            if high == 0:
                return _Part(True, set(), set())
            rest = [(op.MAX_REPEAT, (max(low - 1, 0), high - 1, items))]
            part = self.sequence([*items, *rest])
            return _Part(part.empty or low == 0, part.first, part.last)
        part = self.sequence(items)
        self.join(part.last, part.first)
        return _Part(part.empty or low == 0, part.first, part.last)


def growth(pattern: str | bytes, flags: int = 0, *, search: bool = True) -> Growth:
    """How time grows for ``search``, or for ``match`` and ``fullmatch``. Raises ``re.error``."""
    text = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
    tree = parser.parse(text, flags & ~re.DEBUG)
    return max(_growths(list(tree), tree.state.flags, search))


def _growths(items: list[Any], flags: int, search: bool) -> Iterator[Growth]:
    found = _Automaton(flags, _SAMPLE | frozenset(_literals(items)))
    before = [(op.MAX_REPEAT, (0, op.MAXREPEAT, [(op.NOT_LITERAL, -1)]))] if search else []
    whole = found.sequence([*before, *items])
    # Where a match may end as soon as a loop is reached, what follows can't fail and have it tried in other ways.
    yield _ambiguity(found, whole.last if search and not found.conditions else set())
    for aside in found.asides:
        yield from _growths(list(aside), flags, search=False)


def _ambiguity(of: _Automaton, done: set[int]) -> Growth:
    follow, chars = of.follow, of.chars
    reach = [_reached(follow, at) for at in range(len(chars))]
    loops = [at for at in range(len(chars)) if at in reach[at]]
    for at in loops:
        # Two ways from a position back to itself on the same characters.
        inside = {p for p in reach[at] if at in reach[p]}
        if any((at, step) in of.twice for step in inside):
            return Growth.EXPONENTIAL
        pairs = _walk(((at, at),), follow, chars, (inside, inside))
        if any(p != q and (at, at) in _walk(((p, q),), follow, chars, (inside, inside)) for p, q in pairs):
            return Growth.EXPONENTIAL
    for at in loops:
        for then in loops:
            if then == at or then in done or then not in reach[at] or at in reach[then]:
                continue
            allowed = (
                {p for p in reach[at] if at in reach[p]},
                {p for p in reach[at] | {at} if then in reach[p] or p == then},
                {p for p in reach[then] if then in reach[p]},
            )
            if (at, then, then) in _walk(((at, at, then),), follow, chars, allowed):
                return Growth.POLYNOMIAL
    return Growth.LINEAR


def _reached(follow: list[set[int]], start: int) -> set[int]:
    seen: set[int] = set()
    todo = deque(follow[start])
    while todo:
        at = todo.popleft()
        if at not in seen:
            seen.add(at)
            todo.extend(follow[at])
    return seen


def _walk(
    starts: Iterable[tuple[int, ...]],
    follow: list[set[int]],
    chars: list[frozenset[str]],
    allowed: tuple[set[int], ...],
) -> set[tuple[int, ...]]:
    """What several walkers, each on its own positions, can reach together by reading the same characters."""
    seen: set[tuple[int, ...]] = set()
    todo = deque(starts)
    while todo:
        states = todo.popleft()
        ways: list[tuple[tuple[int, ...], frozenset[str] | None]] = [((), None)]
        for state, inside in zip(states, allowed, strict=True):
            ways = [
                ((*way, step), both)
                for way, shared in ways
                for step in follow[state] & inside
                if (both := chars[step] if shared is None else shared & chars[step])
            ]
        for way, _ in ways:
            if way not in seen:
                seen.add(way)
                todo.append(way)
    return seen


def _takes(item: Any, char: str, flags: int) -> bool:
    """Whether an item that stands for one character takes this one."""
    code, value = item
    if code is op.ANY:
        return char != "\n" or bool(flags & re.DOTALL)
    if code is op.NOT_LITERAL:
        return not _takes((op.LITERAL, value), char, flags)
    cased = {char.lower(), char.upper()} if flags & re.IGNORECASE else set()
    forms = {char, *(form for form in cased if len(form) == 1)}
    if code is op.LITERAL:
        return value >= 0 and chr(value) in {*forms} | ({chr(value).lower()} & forms)
    found = any(_in(each, form, flags) for each in value for form in forms)
    return found is not ((op.NEGATE, None) in value)


def _in(item: Any, char: str, flags: int) -> bool:
    code, value = item
    match code:
        case op.LITERAL:
            return bool(ord(char) == value)
        case op.RANGE:
            return bool(value[0] <= ord(char) <= value[1])
        case op.CATEGORY:
            return re.fullmatch(_CATEGORIES[value], char, flags & re.ASCII) is not None
    return False


def _literals(items: Any) -> Iterator[str]:
    """Every character that a pattern names, and the ends of its ranges."""
    if isinstance(items, tuple) and len(items) == 2 and items[0] in (op.LITERAL, op.NOT_LITERAL):
        yield chr(items[1])
    elif isinstance(items, tuple) and len(items) == 2 and items[0] is op.RANGE:
        yield from map(chr, items[1])
    elif not isinstance(items, (str, int)) and isinstance(items, Iterable):
        for each in items:
            yield from _literals(each)
