"""Every mutant of the goodput ledger is found by some story."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest
from tests.unit.controller.ledger.goodput_mutants import MUTANTS
from tests.unit.controller.ledger.goodput_stories import STORIES

from holdfast_controller.core.fold import allocation, restore
from holdfast_controller.core.fold import job as job_fold
from holdfast_controller.core.goodput import fold, shares, tape, work

MODULES: dict[str, ModuleType] = {"fold": fold, "shares": shares, "tape": tape, "work": work}
USERS = (fold, shares, tape, work, allocation, job_fold, restore)


@contextmanager
def mutated(module: ModuleType, text: str, replacement: str) -> Iterator[None]:
    """Have the module, and all that imports from it, as its changed source makes it."""
    source = inspect.getsource(module)
    assert source.count(text) == 1, f"{text!r} occurs {source.count(text)} times"
    kept = {user: dict(vars(user)) for user in USERS}
    try:
        exec(compile(source.replace(text, replacement), module.__name__, "exec"), vars(module))
        for name, old in kept[module].items():
            new = vars(module).get(name)
            if new is old or name.startswith("__"):
                continue
            for user in USERS:
                if vars(user).get(name) is old:
                    setattr(user, name, new)
        yield
    finally:
        for user, names in kept.items():
            vars(user).clear()
            vars(user).update(names)


@pytest.mark.parametrize(("module", "text", "replacement"), MUTANTS)
def test_mutant_is_found(module: str, text: str, replacement: str) -> None:
    with mutated(MODULES[module], text, replacement):
        for story in STORIES.values():
            try:
                story()
            except Exception:  # noqa: BLE001 - what a mutant breaks may raise anything
                return
    pytest.fail("no story fails")


def test_stories_hold_after_the_mutants() -> None:
    for story in STORIES.values():
        story()
