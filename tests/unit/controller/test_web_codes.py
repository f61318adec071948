"""One-use codes by which browsers sign in: so many of a user are open at once, and no fewer."""

from __future__ import annotations

from holdfast_controller.core.model.accounts.web_sessions import CODES_OF_ONE, Codes


def test_so_many_codes_of_a_user_are_open_at_once_and_then_the_oldest_counts_no_longer() -> None:
    codes = Codes()
    drawn = [f"code-{number}" for number in range(CODES_OF_ONE + 1)]
    codes.add("of another", "ben", 100.0)
    for each in drawn:
        codes.add(each, "ann", 100.0)
    assert [codes.redeem(each, 101.0) for each in drawn] == ["", *["ann"] * CODES_OF_ONE]
    assert codes.redeem("of another", 101.0) == "ben"
