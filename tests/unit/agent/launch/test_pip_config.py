"""pip's options in uv's words. What the real pip makes of them is compared in tests/integration/agent/launch."""

from __future__ import annotations

import tomllib

import pytest

from holdfast_agent.core.launch.pip_config import PipConfigError, Sources, config_files, options, settings_of

HOME = "/home/ann"


def sources(**variables: str) -> Sources:
    environment = settings_of(variables)
    return Sources.of(options([], environment), environment, HOME)


def test_only_variables_that_installations_heed_are_taken() -> None:
    service = {"HTTPS_PROXY": "http://a", "https_proxy": "http://b", "SECRET": "x", "PIP_PRE": "1", "PATH": "/"}
    assert settings_of(service) == {"HTTPS_PROXY": "http://b", "PIP_PRE": "1"}
    assert settings_of(service, {"HTTPS_PROXY": "http://c"})["HTTPS_PROXY"] == "http://c"


def test_files_are_those_of_pip() -> None:
    assert config_files({}, HOME) == (
        ["/etc/xdg/pip/pip.conf", "/etc/pip.conf"],
        ["/home/ann/.pip/pip.conf", "/home/ann/.config/pip/pip.conf"],
    )
    assert config_files({"PIP_CONFIG_FILE": "/dev/null"}, HOME) == ([], [])


def test_install_comes_before_global_of_a_later_file() -> None:
    files = [
        ("a", "[install]\nIndex_URL = https://a\n[other]\npre = 1\n"),
        ("b", "[global]\nindex-url = https://b\n"),
    ]
    assert options(files, {}) == {"index-url": "https://a"}
    assert options(files, {"PIP_INDEX_URL": "https://c"}) == {"index-url": "https://c"}
    assert options([*files, ("c", "[install]\nindex-url =\n")], {}) == {"index-url": "https://b"}


def test_uv_is_given_all_of_it_as_toml() -> None:
    found = sources(
        PIP_INDEX_URL='https://u:"q\\@index/',
        PIP_EXTRA_INDEX_URL="https://b\nhttps://c",
        PIP_FIND_LINKS="~/w /é😀",
        PIP_TRUSTED_HOST="b c:8",
        PIP_ONLY_BINARY="x, y",
        PIP_NO_DEPENDENCIES="on",
        PIP_DEFAULT_TIMEOUT="0.5",
        PIP_RETRIES="0",
        PIP_PROXY="proxy:3128",
        NO_PROXY="*",
    )
    assert tomllib.loads(found.uv_toml()) == {
        "allow-insecure-host": ["b", "c:8"],
        "pip": {
            "index-url": 'https://u:"q\\@index/',
            "extra-index-url": ["https://b", "https://c"],
            "find-links": ["/home/ann/w", "/é😀"],
            "index-strategy": "unsafe-best-match",
            "only-binary": ["x", "y"],
            "no-deps": True,
        },
    }
    assert found.environment == {
        "HTTP_PROXY": "http://proxy:3128",
        "HTTPS_PROXY": "http://proxy:3128",
        "UV_HTTP_TIMEOUT": "1",
        "UV_HTTP_RETRIES": "0",
    }


def test_without_an_index_none_is_named() -> None:
    found = sources(PIP_INDEX_URL="https://a", PIP_EXTRA_INDEX_URL="https://b", PIP_NO_INDEX="true")
    assert tomllib.loads(found.uv_toml())["pip"] == {"no-index": True, "index-strategy": "unsafe-best-match"}
    assert found.in_words() == "no index"


def test_secrets_are_blanked_out_as_written_and_as_meant() -> None:
    found = sources(
        PIP_INDEX_URL="https://token-9f@index/simple", HTTPS_PROXY="http://u:p%40ss%2F@proxy:1", NO_PROXY="index"
    )
    said = "https://token-9f@index/simple token-9f p%40ss%2F p@ss/ https://h/x.whl?sig=abc#sha256=1 ftp://a:b@c/"
    hidden = found.hide(said)
    assert "token-9f" not in hidden and "ss" not in hidden and "abc" not in hidden and ":b@" not in hidden
    assert "https://***@index/simple" in hidden and "https://h/x.whl?***#sha256=1" in hidden
    assert "token" not in repr(found) + found.in_words() and "ss" not in repr(found)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("part", ["http://", "http://a", "?", "https://a?", "://", "@"])
def test_secrets_are_looked_for_in_time_proportional_to_the_text(part: str) -> None:
    """A text so long that anything else would outlast the time that a test has."""
    sources().hide(part * (4_000_000 // len(part)))


def test_a_key_has_indexes_without_their_passwords() -> None:
    def key(url: str) -> object:
        return sources(PIP_INDEX_URL=url).identity()

    assert key("https://u:a@index/simple") == key("https://u:b@index/simple") == key("https://index/simple")
    assert key("https://index/simple") != key("https://index/other")
    assert sources(PIP_NO_INDEX="1").identity() != sources().identity()


@pytest.mark.parametrize(
    ("variables", "problem"),
    [({"PIP_NO_INDEX": "perhaps"}, "no-index: perhaps"), ({"PIP_TIMEOUT": "soon"}, "timeout: soon is no number")],
)
def test_nonsense_is_refused_by_name(variables: dict[str, str], problem: str) -> None:
    with pytest.raises(PipConfigError, match=problem):
        sources(**variables)
    with pytest.raises(PipConfigError, match=r"^a: .*section"):
        options([("a", "x = 1\n")], {})


def test_of_a_file_whose_every_line_is_wrong_the_first_ones_are_named() -> None:
    with pytest.raises(PipConfigError, match=r"\[line +2\]") as refused:
        options([("a", "[global]\n" + "yes\n" * 4_000)], {})
    assert len(str(refused.value)) < 400
