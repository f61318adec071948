"""A step count learned from lines that come again and again, of a program that reports none. For display only.

A number is a step count if it is the only one of its line's shape that rises by the same amount from line to line, and
never falls, in lines whose words are of training. What else counts up (requests served, attempts) has no such words;
what else stands in such lines (a loss, a rate, a time left, a port) does not rise evenly. An epoch's number is none:
it is too coarse, and one that is counted within each epoch falls. Nor is a percentage one, nor a count with its total,
which ``step_count`` reads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from holdfast.hang.pipeline.log_progress import MAX_LINE, PREPARING, SIGN, normalised, ungrouped
from holdfast.training.known_step import MOST_STEPS

SHAPES_MOST = 64
NEAR = 32
"""Characters before a number in which a word may name it."""
RISES = 5
EVEN_SHARE = 0.8
"""So many of the rises are of one size: a program may print an extra line before an evaluation."""
LEAP = 2.0
"""A number in lines of another shape goes on from the step that was read last if it begins below so many times that."""
SPAN_S = 20.0
"""What is counted at the start (layers, parameters, channels) is printed faster than this."""
_TRAINS = re.compile(
    r"(?<![a-z])(?:(?:global[_ ]?)?steps?|iters?|iterations?|it|batch(?:es)?|updates?|loss|lr|learning[_ ]rate"
    r"|grad(?:[_ ]?norm)?|tokens|samples)(?![a-z])",
    re.IGNORECASE,
)
_STEP = re.compile(
    rf"(?<![a-z])(?<!micro[_ -])(?:(?:global[_ ]?)?steps?|iters?|iterations?|it|updates?)[\s:=\[({SIGN},'\"-]{{0,4}}\Z",
    re.IGNORECASE,
)
_EPOCH = re.compile(rf"(?<![a-z])ep(?:och)?s?[\s:=\[({SIGN},'\"-]{{0,4}}\Z", re.IGNORECASE)
_OF_A_WHOLE = re.compile(r"\s{0,6}(?:%|(?:/|(?:out )?of\s)\s{0,6}#(?![,.]?#))")
"""After a percentage, and after a count that its total follows."""
_ASIDE = re.compile(r"(?<![a-z])(?:eval|valid|val(?![a-z])|test|predict|infer)", re.IGNORECASE)


@dataclass
class Place:
    """One number in a shape of lines."""

    last: float
    named: bool
    by: float = 0.0
    even: int = 0
    rises: int = 0
    falls: bool = False

    def take(self, value: float) -> None:
        """The next value."""
        rise = value - self.last
        self.last = value
        self.falls |= rise < 0 or not _is_whole(value)
        if rise <= 0:
            return
        self.rises += 1
        if self.even == 0 or rise == self.by:
            self.by, self.even = rise, self.even + 1
        elif 2 * self.even <= self.rises:
            self.by, self.even = rise, 1

    @property
    def counts(self) -> bool:
        """Whether it rises evenly, and has for long enough."""
        return not self.falls and self.even >= max(RISES, EVEN_SHARE * self.rises)


@dataclass
class Shape:
    """Lines of one shape, as the first rank that printed it goes on printing it."""

    rank: int
    first_s: float
    places: tuple[Place, ...]
    # The numbers of its first line.
    firsts: tuple[float, ...] = ()


@dataclass
class LearnedStep:
    """The newest step in the lines of one worker; None before there is one, and once it has fallen."""

    shapes: dict[str, Shape] = field(default_factory=dict)
    step: float | None = None
    # The place that it is read from; another one is taken only where its number goes on from the step.
    chosen: tuple[str, int] | None = None
    # The step in the first of those lines, and when that was read: long before it was known to be one.
    first: float | None = None
    first_s: float | None = None

    def take(self, rank: int, line: str, at_s: float) -> None:
        """One more line of a rank, read at ``at_s``."""
        if _TRAINS.search(line, 0, MAX_LINE) is None:
            return
        text, numbers = normalised(ungrouped(line[:MAX_LINE]))
        if not numbers or PREPARING.search(text) or _ASIDE.search(text):
            return
        if self.chosen is not None and (self.chosen[0] == text or len(self.shapes) >= SHAPES_MOST):
            self._forget_others()
        shape = self.shapes.get(text)
        if shape is None:
            if self._has_space(at_s):
                self.shapes[text] = Shape(rank, at_s, _places(text, numbers), numbers)
            return
        if shape.rank != rank:
            return
        for place, value in zip(shape.places, numbers, strict=False):
            place.take(value)
        if (self.chosen is None or self.chosen[0] != text) and at_s - shape.first_s >= SPAN_S:
            self._choose(text, shape)
        if self.chosen is not None and self.chosen[0] == text:
            place = shape.places[self.chosen[1]]
            self.step = None if place.falls else place.last

    def _has_space(self, at_s: float) -> bool:
        """Whether one more shape can be remembered, at need instead of those of a start, whose numbers don't rise."""
        if len(self.shapes) >= SHAPES_MOST and at_s - next(reversed(self.shapes.values())).first_s >= SPAN_S:
            self.shapes = {
                text: shape
                for text, shape in self.shapes.items()
                if at_s - shape.first_s < SPAN_S or any(place.rises for place in shape.places)
            }
        return len(self.shapes) < SHAPES_MOST

    def _forget_others(self) -> None:
        """Lines of other shapes go on from the chosen ones only where these come no more."""
        if self.chosen is not None and len(self.shapes) > 1:
            self.shapes = {text: shape for text, shape in self.shapes.items() if text == self.chosen[0]}

    def _choose(self, text: str, shape: Shape) -> None:
        found = [index for index, place in enumerate(shape.places) if place.counts]
        if self.chosen is not None:
            # The same step in lines that look otherwise by now, such as those with a time left below a day.
            step = self.step
            found = [index for index in found if step is not None and step <= shape.firsts[index] <= LEAP * step]
        named = [index for index in found if shape.places[index].named]
        best = named or found
        # A line may name one step twice.
        if best and len({(shape.places[index].last, *shape.firsts[index : index + 1]) for index in best}) == 1:
            again = self.chosen is not None
            self.chosen = (text, best[0])
            self._forget_others()
            if shape.firsts and not again:
                self.first, self.first_s = shape.firsts[best[0]], shape.first_s


def _places(text: str, numbers: tuple[float, ...]) -> tuple[Place, ...]:
    """The numbers of a shape's first line; those that can't be steps have fallen from the beginning."""
    found = []
    for at, value in zip((sign.start() for sign in re.finditer("#", text)), numbers, strict=False):
        before = text[max(0, at - NEAR) : at]
        is_other = not _is_whole(value) or _EPOCH.search(before) or _OF_A_WHOLE.match(text, at + 1)
        found.append(Place(value, bool(_STEP.search(before)), falls=bool(is_other)))
    return tuple(found)


def _is_whole(value: float) -> bool:
    return value <= MOST_STEPS and value.is_integer()
