"""Parts that all models of the job file share: the base class, and text that occurs in several of them."""

from __future__ import annotations

import functools
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidatorFunctionWrapHandler, model_validator
from pydantic.alias_generators import to_camel

from holdfast.spec.models.scalars import REFUSED, Text, read_once
from holdfast.spec.wording import plain

RULES_FOLLOW = {"rules": "follow"}
"""Context of a validation whose caller applies the rules that join fields, once all fields are read."""


class Model(BaseModel):
    """Frozen, no unknown fields, camelCase outside and snake_case inside."""

    model_config = ConfigDict(
        defer_build=True,  # a validation needs the model it begins with, which builds those within it for itself
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )
    IGNORED: ClassVar[frozenset[str]] = frozenset()
    """Fields that are taken and mean nothing."""

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, data: Any, handler: ValidatorFunctionWrapHandler) -> Self:
        if data is REFUSED:
            return None  # type: ignore[return-value]
        if not isinstance(data, dict):
            return handler(data)  # type: ignore[no-any-return]
        ignored, nullable = _unset(cls)
        # As in protobuf's JSON, null means unset; but text that YAML took for null is a trap to be named.
        fields = {
            key: value
            for key, value in data.items()
            if key not in ignored and (key not in nullable or plain(value) is not None)
        }
        return read_once(data, fields, handler)  # type: ignore[no-any-return]


@functools.cache
def _unset(model: type[Model]) -> tuple[frozenset[str], frozenset[str]]:
    """Keys of a mapping that don't count: always, and when their value is null. Both spellings."""
    nullable = [name for name, field in model.model_fields.items() if field.annotation is not str]
    return both_spellings(model.IGNORED), both_spellings(nullable)


def both_spellings(names: Any) -> frozenset[str]:
    """The names as they are, and in camelCase."""
    return frozenset((*names, *map(to_camel, names)))


Label = Annotated[str, Text(max_chars=64)]
LabelKey = Annotated[str, Text(max_chars=64, empty=False)]


def model_in(annotation: Any) -> type[Model] | None:
    """The model inside a field's annotation (``X``, ``X | None``, ``tuple[X, ...]``), or None for scalars."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return annotation
    arguments = getattr(annotation, "__args__", ())
    return next((found for arg in arguments if (found := model_in(arg)) is not None), None)
