"""``$(NAME)`` in arguments and variables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast._base.job_file.expand import MAX_BYTES, MAX_TOTAL_BYTES, TooLong, expand, expand_args, expand_env

ENV = {"A": "1", "B": "$(A)", "EMPTY": "", "A_B": "two"}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("", ""),
        ("plain", "plain"),
        ("$(A)", "1"),
        ("x$(A)y$(A_B)", "x1ytwo"),
        ("[$(EMPTY)]", "[]"),
        ("$(NONE)", "$(NONE)"),
        ("$()", "$()"),
        ("$(A", "$(A"),
        ("$(A $(A)", "$(A $(A)"),  # the name reaches to the first closing bracket
        ("$A", "$A"),
        ("${A}", "${A}"),
        ("$", "$"),
        ("a$", "a$"),
        ("$$", "$"),
        ("$$$$", "$$"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$(A)", "$$(A)"),
        ("5$$ and $(A)", "5$ and 1"),
        ("$(A)$(", "1$("),
        ("$(A)$$$($$", "1$$($"),
        ("$(B)", "$(A)"),  # what was put in is not expanded again
    ],
)
def test_references_and_escapes_expand_as_in_kubernetes(text: str, expanded: str) -> None:
    assert expand(text, ENV) == expanded


@given(st.text(alphabet="$()AB x"))
def test_a_doubled_dollar_sign_protects_any_text(text: str) -> None:
    assert expand(text.replace("$", "$$"), ENV) == text


def test_unclosed_references_are_passed_over_in_linear_time() -> None:
    text = "$(A)" + "$(" * 60_000
    assert expand(text, ENV) == "1" + text[4:]  # seconds if each were searched to the end


def test_each_variable_sees_the_base_and_those_before_it() -> None:
    pairs = [
        ("ROOT", "/data"),
        ("RUN", "$(ROOT)/$(HOST)"),
        ("EARLY", "$(LATE)"),
        ("LATE", "x"),
        ("ESC", "$$(ROOT)"),
    ]

    env = expand_env(pairs, {"HOST": "host-0", "ROOT": "/"})

    assert env == {
        "HOST": "host-0",
        "ROOT": "/data",
        "RUN": "/data/host-0",
        "EARLY": "$(LATE)",
        "LATE": "x",
        "ESC": "$(ROOT)",
    }


def test_a_variable_may_extend_the_one_it_replaces() -> None:
    assert expand_env([("PATH", "/opt/bin:$(PATH)")], {"PATH": "/bin"}) == {"PATH": "/opt/bin:/bin"}


def test_the_base_is_left_as_it_was() -> None:
    base = {"A": "1"}
    expand_env([("A", "2")], base)
    assert base == {"A": "1"}


def test_an_expansion_beyond_the_kernels_limit_is_refused() -> None:
    env = {"BIG": "x" * 1000}
    assert len(expand("$(BIG)" * 131, env)) == 131_000
    with pytest.raises(TooLong, match="grows beyond 131,071 bytes"):
        expand("$(BIG)" * 132, env)


def test_the_limit_counts_bytes_not_characters() -> None:
    assert expand("é" * (MAX_BYTES // 2), {})
    with pytest.raises(TooLong):
        expand("é" * (MAX_BYTES // 2 + 1), {})


def test_variables_that_double_each_other_are_stopped_early() -> None:
    pairs = [("V0", "xx"), *((f"V{i}", f"$(V{i - 1})$(V{i - 1})") for i in range(1, 100))]
    with pytest.raises(TooLong, match="V16 grows beyond"):
        expand_env(pairs, {})


def test_many_long_variables_are_stopped_in_all() -> None:
    pairs = [("BIG", "x" * 100_000), *((f"V{i}", "$(BIG)") for i in range(20))]
    with pytest.raises(TooLong, match=f"V8 takes the variables beyond {MAX_TOTAL_BYTES:,} bytes"):
        expand_env(pairs, {})


def test_many_long_arguments_are_stopped_in_all() -> None:
    with pytest.raises(TooLong, match="argument 9 takes the arguments beyond"):
        expand_args(["$(BIG)"] * 1000, {"BIG": "x" * 100_000})


def test_a_long_argument_is_named_by_its_place() -> None:
    assert expand_args(["a", "$(A)"], ENV) == ["a", "1"]
    with pytest.raises(TooLong, match="argument 1 grows beyond"):
        expand_args(["a", "$(BIG)$(BIG)"], {"BIG": "x" * 100_000})


def test_undecodable_bytes_of_an_inherited_environment_are_carried() -> None:
    raw = b"\xff".decode(errors="surrogateescape")
    assert expand("$(RAW)", {"RAW": raw}) == raw
