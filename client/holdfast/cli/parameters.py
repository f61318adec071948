"""Kinds of values that options take."""

from __future__ import annotations

import click

from holdfast import config


def duration(value: str | float) -> float:
    """Seconds, from ``90``, ``90s``, ``15m``, ``2h``."""
    try:
        return config.duration_s(float(value) if isinstance(value, str) and value.isdecimal() else value)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from error
