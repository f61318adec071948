"""What is typed at a joined terminal: all of it is the program's, but for the way out."""

from __future__ import annotations

import pytest

from holdfast.cli.jobs.terminal import Escape


def fed(*typed: bytes) -> tuple[bytes, bool]:
    escape, keys, left = Escape(), b"", False
    for each in typed:
        more, left = escape.feed(each)
        keys += more
        if left:
            break
    return keys, left


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize(
    ("typed", "keys", "left"),
    [
        (b"ls\r", b"ls\r", False),
        (b"~.", b"", True),
        (b"ls\r~.more", b"ls\r", True),
        (b"a~.", b"a~.", False),
        (b"cd ~\r", b"cd ~\r", False),
        (b"\r~~.", b"\r~.", False),
        (b"\r~x", b"\r~x", False),
        (b"~\r~.", b"~\r", True),
        (b"\x03\x04", b"\x03\x04", False),
        ("\r~ü".encode(), "\r~ü".encode(), False),
    ],
)
def test_only_enter_tilde_dot_leaves(typed: bytes, keys: bytes, left: bool, split: bool) -> None:
    pieces = [bytes((byte,)) for byte in typed] if split else [typed]
    assert fed(*pieces) == (keys, left)
