"""Errors in other processes: a pool of workers sends them back pickled."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest

from holdfast import errors
from holdfast.errors import HoldfastError, InvalidInput, Violation

OTHERS = (HoldfastError, errors.JobFailed, errors.WaitTimeout, errors.ConfigError)
KINDS = [*errors.ERRORS_BY_REASON.values(), *OTHERS]


def through_a_pipe(error: HoldfastError) -> HoldfastError:
    found = pickle.loads(pickle.dumps(error))
    assert isinstance(found, HoldfastError)
    return found


@pytest.mark.parametrize("way", [through_a_pipe, copy.copy, copy.deepcopy])
@pytest.mark.parametrize("kind", KINDS)
def test_an_error_is_the_same_on_the_other_side(
    kind: type[HoldfastError], way: Callable[[HoldfastError], HoldfastError]
) -> None:
    if issubclass(kind, InvalidInput):
        error: HoldfastError = kind([Violation("a", "is wrong", "mend it")], what="The call")
    else:
        error = kind("It is wrong.", fix="Mend it.")
    error.add_note("seen")
    found = way(error)
    assert (type(found), vars(found), found.args, str(found)) == (kind, vars(error), error.args, str(error))
