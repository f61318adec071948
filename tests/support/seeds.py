"""Tests of many seeds as one test: thousands of tests of a millisecond cost more to collect and report than to run."""

from __future__ import annotations

from collections.abc import Callable


def seeds(count: int) -> Callable[[Callable[[int], None]], Callable[[], None]]:
    """Run a test with each seed below ``count``; the one with which it fails is noted on the error."""

    def decorate(test: Callable[[int], None]) -> Callable[[], None]:
        def every() -> None:
            for seed in range(count):
                try:
                    test(seed)
                except BaseException as error:
                    error.add_note(f"with seed {seed}")
                    raise

        every.__name__, every.__qualname__, every.__doc__ = test.__name__, test.__qualname__, test.__doc__
        every.__module__ = test.__module__
        return every

    return decorate
