"""Tokens: hard to guess, easy to paste, and a slip of the hand is found before anything is sent."""

from __future__ import annotations

import pytest

from holdfast._security.enrolment import tokens
from holdfast.errors import InvalidInput


def test_no_two_are_alike() -> None:
    drawn = {tokens.draw() for _ in range(1000)}
    assert len({tokens.digest(token) for token in drawn}) == 1000
    assert all(token not in tokens.digest(token) for token in drawn)


def test_case_blanks_and_letters_that_look_alike_do_not_matter() -> None:
    token = tokens.draw()
    read_aloud = token.replace("0", "O").replace("1", "l")
    assert tokens.digest(f" {token.upper()}\n") == tokens.digest(token)
    assert tokens.digest("hft-" + read_aloud.removeprefix("hft-")) == tokens.digest(token)


def test_every_single_slip_is_found() -> None:
    token = tokens.draw()
    for at in range(4, len(token)):
        for other in ("x", "7"):
            if token[at] != other:
                with pytest.raises(InvalidInput, match="mistyped"):
                    tokens.digest(token[:at] + other + token[at + 1 :])


@pytest.mark.parametrize("text", ["", "hft-", "hft-abc", "abc", "hft-" + "0" * 30, "hft-" + "é" * 30])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="paste the whole line"):
        tokens.digest(text)
