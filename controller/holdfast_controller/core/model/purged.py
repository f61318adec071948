"""Ids of jobs that were deleted for good: their ids are not given again, for which eight bytes of each are enough."""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left


class PurgedJobs:
    """A set of ids that never shrinks. One in 10^13 ids is taken for one of a million that are in it: no harm."""

    def __init__(self) -> None:
        self._digests = array("Q")

    def add(self, job_id: str) -> None:
        """Take an id in; it may be in it already."""
        digest = _digest(job_id)
        at = bisect_left(self._digests, digest)
        if at == len(self._digests) or self._digests[at] != digest:
            self._digests.insert(at, digest)

    def __contains__(self, job_id: object) -> bool:
        digest = _digest(str(job_id))
        at = bisect_left(self._digests, digest)
        return at < len(self._digests) and self._digests[at] == digest

    def __len__(self) -> int:
        return len(self._digests)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PurgedJobs) and self._digests == other._digests

    __hash__ = None  # type: ignore[assignment]


def _digest(job_id: str) -> int:
    return int.from_bytes(hashlib.blake2b(job_id.encode(), digest_size=8).digest(), "big")
