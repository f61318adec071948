"""The fingerprint by which snapshots of another build are known."""

from __future__ import annotations

import enum
from dataclasses import make_dataclass
from types import GenericAlias
from typing import Any

from holdfast_controller.shell.store import codec


def test_what_is_stored_of_entities_has_another_layout_with_every_change_of_a_field() -> None:
    class Colour(enum.Enum):
        RED = "red"

    class Others(enum.Enum):
        RED = "red"
        BLUE = "blue"

    def of(*fields: tuple[str, Any]) -> str:
        inner = make_dataclass("Inner", fields)
        return codec.fingerprint(
            make_dataclass("Outer", [("name", str), ("inner", GenericAlias(dict, (str, inner)))])
        )

    one = of(("paint", Colour), ("count", int))
    others = [
        of(("paint", Colour)),
        of(("paint", Colour), ("count", float)),
        of(("paint", Colour), ("number", int)),
        of(("paint", Others), ("count", int)),
    ]
    assert one == of(("paint", Colour), ("count", int))
    assert len({one, *others}) == 5
