"""Frozen dataclasses behave as the standard library's, and their methods are written once."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any

import pytest

from holdfast._base.dataclass import dataclass, replace


@dataclass(frozen=True, slots=True)
class Slotted:
    a: int
    b: tuple[int, ...] = (1,)
    c: list[int] = field(default_factory=list, compare=False)
    d: int = field(default=0, kw_only=True, repr=False, hash=False)


@dataclass(frozen=True)
class Plain:
    a: int
    more: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "a", self.a + 1)


def twins(**options: bool) -> list[Any]:
    """The same class by the standard library, and by ours."""

    def made(by: Callable[..., Any]) -> Any:
        class Thing:
            a: int
            b: int = 2
            c: list[int] = field(default_factory=list)
            d: int = field(default=0, compare=False, repr=False)

        Thing.__qualname__ = "Thing"
        return by(frozen=True, **options)(Thing)

    return [made(by) for by in (dataclasses.dataclass, dataclass)]


@pytest.mark.parametrize("slots", [False, True])
@pytest.mark.parametrize("kw_only", [False, True])
def test_every_call_has_the_outcome_of_the_standard_library(slots: bool, kw_only: bool) -> None:
    calls: list[Callable[[Any], Any]] = [
        lambda thing: repr(thing(a=1)),
        lambda thing: thing(1, 3),
        lambda thing: thing(),
        lambda thing: thing(a=1, e=1),
        lambda thing: thing(a=1, d=1) == thing(a=1, d=2),
        lambda thing: thing(a=1) == thing(a=2),
        lambda thing: thing(a=1) == 1,
        lambda thing: hash(thing(a=1)),
        lambda thing: hash(thing(a=1, c=())) == hash(thing(a=1, c=(), d=7)),
        lambda thing: setattr(thing(a=1), "a", 2),
        lambda thing: delattr(thing(a=1), "a"),
        lambda thing: repr(replace(thing(a=1), b=9)),
        lambda thing: repr(replace(thing(a=1), d=9, a=2, c=[3])),
        lambda thing: replace(thing(a=1, c=[4], d=3)) == thing(a=1, c=[4]),
        lambda thing: dataclasses.asdict(thing(a=1, c=[4])),
        lambda thing: thing(a=1).c is not thing(a=1).c,
        lambda thing: thing.__match_args__,
        lambda thing: copy.deepcopy(thing(a=1, c=[3])).c,
        lambda thing: thing.__init__.__qualname__,
    ]

    def outcome(call: Callable[[Any], Any], thing: Any) -> str:
        try:
            return repr(call(thing))
        except (TypeError, AttributeError) as error:
            return repr(error)

    theirs, ours = twins(slots=slots, kw_only=kw_only)
    for number, call in enumerate(calls):
        assert outcome(call, ours) == outcome(call, theirs), number


def test_each_method_is_written_once() -> None:
    _, thing = twins()
    stand_in = thing.__init__
    one = thing(1)
    written = thing.__init__
    assert written is not stand_in
    assert thing(1) == one
    assert thing.__init__ is written


def test_copies_and_pickles_of_frozen_instances() -> None:
    for each in (Slotted(1, (2,), [3], d=4), Plain(1, "x")):
        for other in (copy.copy(each), copy.deepcopy(each), pickle.loads(pickle.dumps(each))):
            assert other == each
            assert other is not each
    assert copy.copy(Slotted(1, d=4)).d == 4
    assert Plain(1).a == 2


def test_a_replacement_has_the_new_values_and_keeps_the_others() -> None:
    class Child(Plain):
        pass

    one, child = Slotted(1, (2,), [3], d=4), Child(1, more="x")
    new = replace(one, a=5, d=6)
    assert (new.a, new.b, new.d) == (5, (2,), 6)
    assert new.c is one.c
    assert one == Slotted(1, (2,), d=4)
    assert type(replace(child, more="y")) is Child
    assert replace(child, more="y").a == dataclasses.replace(child, more="y").a == 3, "made by the constructor"
    for by in (replace, dataclasses.replace):
        with pytest.raises(TypeError, match="unexpected keyword argument 'e'"):
            by(one, e=1)


def test_a_method_of_the_class_itself_stays() -> None:
    @dataclass(frozen=True)
    class Own:
        a: int

        def __eq__(self, other: object) -> bool:
            return True

        def __repr__(self) -> str:
            return "mine"

    assert Own(1) == 2
    assert repr(Own(1)) == "mine"
    assert hash(Own(1)) == hash((1,))


def test_what_contains_itself_is_shown() -> None:
    kept: list[Any] = []
    one = Plain(1, kept)
    kept.append(one)
    assert repr(one) == "Plain(a=2, more=[...])"


def test_others_are_the_standard_librarys() -> None:
    @dataclass
    class Loose:
        a: int

    @dataclass(frozen=True, order=True)
    class Ordered:
        a: int

    loose = Loose(1)
    loose.a = 2
    assert loose == Loose(2)
    assert Ordered(1) < Ordered(2)
    assert (replace(loose, a=3), replace(Ordered(1), a=2)) == (Loose(3), Ordered(2))
