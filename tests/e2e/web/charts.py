"""Answers with figures for charts, as no machine that runs these tests can measure them."""

from __future__ import annotations

from typing import Any


def charted(series: dict[str, Any]) -> dict[str, Any]:
    """An answer about 90 minutes with a restart and a rank that differs, which no host here can measure."""
    points = 90
    minutes = range(points)
    wave = [None if 40 <= at < 45 else 90 + at % 7 for at in minutes]
    figures = (("gpu_util", "%", wave, 1), ("power", "W", wave, 7), ("memory_used", "bytes", wave, 1 << 30))
    steps = [None if 40 <= at < 45 else (at if at < 40 else at - 20) * 60 for at in minutes]
    bare: dict[str, Any] = {"rank": None, "least": [], "most": []}
    rows = [
        bare
        | {
            "figure": name,
            "unit": unit,
            "quantile": quantile,
            "mean": [None if value is None else (value - spread * apart) * size for value in values],
        }
        for name, unit, values, size, apart in (*((*each, 1) for each in figures), ("step", "", steps, 1, 0))
        for quantile, spread in ((0, 60), (0.1, 8), (0.5, 0), (0.9, -2), (1, -3))
    ]
    rows.append(
        {
            "figure": "gpu_util",
            "unit": "%",
            "rank": 1,
            "quantile": None,
            "least": [],
            "most": [],
            "mean": [None if value is None else 30 for value in wave],
        }
    )
    return series | {"step": 60, "points": points, "series": rows, "problem": "", "nextPageToken": ""}


def long_ago(job: dict[str, Any], since: str) -> dict[str, Any]:
    """The job as if it had begun at ``since``, and had been restarted within."""
    begun = {"createTime": since, "startTime": since}
    return job | begun
