"""The ``races`` marker: only marked tests are run again, each has a reason, and a run with many of them fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.whole_run import reruns

CONFTEST = Path(__file__).parents[2] / "conftest.py"
INI = """
[pytest]
addopts = --strict-markers
markers =
    races(reason): as in the project
    require(part): as in the project
anyio_mode = auto
"""
FAILS_FIRST = """
import pathlib
import pytest

{mark}
@pytest.mark.parametrize("number", range({count}))
def test_late(tmp_path_factory, number):
    seen = pathlib.Path({folder!r}, str(number))
    again = seen.exists()
    seen.touch()
    assert again, "the first try is always too late"
"""
MARK = '@pytest.mark.races(reason="a disk that is slow at times")'


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reruns, "DELAY_S", 0.0)


def run(pytester: pytest.Pytester, *args: str, mark: str = MARK, count: int = 1) -> pytest.RunResult:
    """Run tests whose first try fails, under the project's own conftest."""
    pytester.makeini(INI)
    # Already registered by the outer run.
    pytester.makeconftest(CONFTEST.read_text().replace('pytest_plugins = ["pytester"]', ""))
    pytester.makepyfile(FAILS_FIRST.format(mark=mark, count=count, folder=str(pytester.path)))
    return pytester.runpytest("-p", "no:cacheprovider", *args)


def test_a_test_without_the_mark_fails_the_run_at_once(pytester: pytest.Pytester) -> None:
    result = run(pytester, mark="")
    result.assert_outcomes(failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_marked_test_runs_again_and_is_listed_with_its_reason_and_first_failure(
    pytester: pytest.Pytester, workers: str
) -> None:
    result = run(pytester, "-n", workers)
    assert result.ret == pytest.ExitCode.OK
    assert result.parseoutcomes() == {"passed": 1, "rerun": 1}
    result.stdout.fnmatch_lines(
        [
            "*passed only on a rerun*",
            "*test_late?0?: a disk that is slow at times",
            "*the first try is always too late*",
        ]
    )


def test_the_teardown_of_a_test_knows_whether_it_is_run_again(pytester: pytest.Pytester) -> None:
    seen = pytester.path / "seen"
    pytester.makepyfile(
        told=f"""
        import pathlib
        import pytest
        from tests.support.whole_run import reruns

        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_teardown(item):
            yield
            with pathlib.Path({str(seen)!r}).open("a") as file:
                print(item.name, reruns.runs_again(item), file=file)
        """
    )
    pytester.syspathinsert()
    run(pytester, "-p", "told", count=2)
    told = [f"test_late[{number}] {again}" for number in (0, 1) for again in (True, False)]
    assert seen.read_text().splitlines() == told


def test_more_than_the_bound_fail_the_run(pytester: pytest.Pytester) -> None:
    result = run(pytester, count=reruns.BOUND + 1)
    assert result.parseoutcomes()["passed"] == reruns.BOUND + 1
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            f"*{reruns.BOUND + 1} tests passed only on a rerun, and {reruns.BOUND} may*",
            "*test_late?0?: AssertionError: the first try is always too late*",
        ]
    )


def test_as_many_as_the_bound_pass(pytester: pytest.Pytester) -> None:
    assert run(pytester, count=reruns.BOUND).ret == pytest.ExitCode.OK


def test_a_marked_test_that_never_passes_fails_the_run_and_is_not_listed(pytester: pytest.Pytester) -> None:
    pytester.makeini(INI)
    pytester.makeconftest(CONFTEST.read_text().replace('pytest_plugins = ["pytester"]', ""))
    pytester.makepyfile(f"import pytest\n\n\n{MARK}\ndef test_never():\n    assert False\n")
    result = pytester.runpytest("-p", "no:cacheprovider")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.parseoutcomes() == {"failed": 1, "rerun": reruns.RERUNS}
    result.stdout.no_fnmatch_line("*passed only on a rerun*")


@pytest.mark.parametrize(
    "mark", ["@pytest.mark.races", '@pytest.mark.races("slow")', '@pytest.mark.races(reason=" ")']
)
def test_a_mark_without_a_reason_stops_the_run(pytester: pytest.Pytester, mark: str) -> None:
    result = run(pytester, mark=mark)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*say what it races with*"])
