"""Errors as statuses: whatever they say, they fit into a call's trailing metadata."""

from __future__ import annotations

import base64
from urllib.parse import quote

import pytest

from holdfast._base.rpc_status import to_status
from holdfast.errors import HoldfastError, InvalidInput, NotFound, Violation

TRAILING_METADATA_MAX = 8 << 10

LONG = ("x" * 100_000, "☃" * 100_000, "é" * 1_000)


@pytest.mark.parametrize(
    "error",
    [
        *(NotFound(text, fix=text) for text in LONG),
        *(InvalidInput([Violation(text, text, text)] * 50) for text in LONG),
        InvalidInput([Violation(f"a[{n}]", "is much too long to be listed in full here") for n in range(5_000)]),
    ],
)
def test_status_fits_however_long_the_error_is(error: HoldfastError) -> None:
    status = to_status(error)
    details = 0
    for _, value in status.trailing_metadata:
        assert isinstance(value, bytes)
        details += len(base64.b64encode(value))
    assert len(quote(status.details)) + details < TRAILING_METADATA_MAX


def test_short_error_is_sent_as_it_is() -> None:
    status = to_status(NotFound("There is no job 'x'.", fix="See: holdfast ps --all"))
    assert status.details == "There is no job 'x'."
