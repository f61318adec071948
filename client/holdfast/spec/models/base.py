"""What every model of the job file shares: the base class, and text that occurs in several of them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from holdfast.spec.parse.scalars import Text


class Model(BaseModel):
    """Frozen, no unknown fields, camelCase outside and snake_case inside."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
    )


Label = Annotated[str, Text(max_chars=64)]
LabelKey = Annotated[str, Text(max_chars=64, empty=False)]


def model_in(annotation: Any) -> type[Model] | None:
    """The model inside a field's annotation (``X``, ``X | None``, ``tuple[X, ...]``), or None for scalars."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return annotation
    arguments = getattr(annotation, "__args__", ())
    return next((found for arg in arguments if (found := model_in(arg)) is not None), None)
