"""Packaged code: a folder as one archive that is known by the hash of its bytes.

``packing`` makes it, ``archive`` reads an untrusted one, ``ignore`` says what stays behind.
"""

from __future__ import annotations

import re

DIGEST = re.compile(r"[0-9a-f]{64}")
"""The name of a bundle: SHA-256 of its bytes."""


def is_digest(text: str) -> bool:
    """Whether the text may name a bundle, and so be the name of a file."""
    return DIGEST.fullmatch(text) is not None
