"""The standard library's dataclasses; methods of frozen ones are written at their first call.

``dataclasses.dataclass`` writes and compiles six functions for a frozen class, when its module is imported. The
programs have hundreds of such classes, and call few of those functions (ADR 85). All that differs is that
``inspect.signature`` says nothing of such a class. ``replace`` is a method as well, written so: it takes less than half
the time of ``dataclasses.replace``, which looks up the fields and builds keyword arguments at each call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass, replace
else:

    def dataclass(cls=None, /, *, frozen=False, **options):
        """Make a class as ``dataclasses.dataclass`` does."""
        if cls is None:
            return lambda each: dataclass(each, frozen=frozen, **options)
        if frozen and options.keys() <= {"kw_only", "slots"}:
            return _frozen(cls, **options)
        return dataclasses.dataclass(cls, frozen=frozen, **options)

    def replace(one, /, **new):
        """Copy ``one`` with new values of some fields, as ``dataclasses.replace`` does; one of any dataclass."""
        try:
            make = one.__replace__
        except AttributeError:
            return dataclasses.replace(one, **new)
        return make(**new)


def _frozen(cls: type, **options: bool) -> Any:
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, **options)(cls)
    written = {"__init__": _init, "__eq__": _eq, "__hash__": _hash, "__replace__": _replace}
    methods = _METHODS | {name: _stand_in(made, name, text) for name, text in written.items()}
    own = {name for name, value in vars(cls).items() if value is not None}  # no __hash__ beside an own __eq__
    for name in methods.keys() - own:
        setattr(made, name, methods[name])
    return made


def _stand_in(made: Any, name: str, text: Callable[[Any, dict[str, Any]], str]) -> Callable[..., Any]:
    def first(self: object, *args: Any, **named: Any) -> Any:
        scope: dict[str, Any] = {"__name__": made.__module__, "MISSING": MISSING}
        exec(text(made, scope), scope)
        method = scope[name]
        method.__qualname__ = f"{made.__qualname__}.{name}"
        setattr(made, name, method)
        return method(self, *args, **named)

    return first


def _init(made: Any, scope: dict[str, Any]) -> str:
    parameters, by_name, lines = ["self"], ["*"], ["pass"]
    for field in dataclasses.fields(made):
        name, slot = field.name, vars(made).get(field.name)
        scope[f"_{name}_default"], scope[f"_{name}_new"] = field.default, field.default_factory
        required = field.default is MISSING is field.default_factory
        (by_name if field.kw_only else parameters).append(name if required else f"{name}=_{name}_default")
        value = name if field.default_factory is MISSING else f"_{name}_new() if {name} is MISSING else {name}"
        slotted = isinstance(slot, MemberDescriptorType)  # whose own setter takes a third less time
        scope[f"_set_{name}"] = slot.__set__ if slotted else object.__setattr__
        lines.append(f"_set_{name}(self, {value})" if slotted else f"_set_{name}(self, {name!r}, {value})")
    lines += ["self.__post_init__()"] if hasattr(made, "__post_init__") else []
    return f"def __init__({', '.join(parameters + by_name * (len(by_name) > 1))}):\n " + "\n ".join(lines)


def _eq(made: Any, _: dict[str, Any]) -> str:
    compared = [field.name for field in dataclasses.fields(made) if field.compare]
    same = f"{_tuple('self', compared)} == {_tuple('other', compared)}"
    return f"def __eq__(self, other):\n return {same} if other.__class__ is self.__class__ else NotImplemented"


def _hash(made: Any, _: dict[str, Any]) -> str:
    hashed = [each.name for each in dataclasses.fields(made) if (each.compare if each.hash is None else each.hash)]
    return f"def __hash__(self): return hash({_tuple('self', hashed)})"


def _replace(made: Any, _: dict[str, Any]) -> str:
    fields = dataclasses.fields(made)
    values = [f"self.{each.name} if {each.name} is MISSING else {each.name}" for each in fields]
    given = [f"{each.name}={value}" if each.kw_only else value for each, value in zip(fields, values, strict=True)]
    new = "".join(f", {each.name}=MISSING" for each in fields)
    return f"def __replace__(self, /{', *' if new else ''}{new}): return self.__class__({', '.join(given)})"


def _tuple(of: str, names: list[str]) -> str:
    return f"({''.join(f'{of}.{name},' for name in names)})"


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _setattr(self: object, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _setstate(self: object, state: Any) -> None:
    """Take the state of a copy: attributes, or with slots None and these."""
    for name, value in (state[1] if isinstance(state, tuple) else state).items():
        object.__setattr__(self, name, value)


_METHODS = {"__repr__": _repr, "__setattr__": _setattr, "__delattr__": _delattr, "__setstate__": _setstate}
