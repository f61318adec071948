"""Token buckets by key, within a bound on memory. Times are monotonic seconds."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field


@dataclass
class Buckets:
    """Each key may spend ``burst`` at once and gets ``per_s`` back each second.

    Keys past ``most`` push out the least recently used ones. A key that returns after that has a full bucket, so a
    bound over all keys needs another ``Buckets`` with one key.
    """

    burst: float
    per_s: float
    most: int = 1024
    _left: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)
    """By key: what is left, and as of when."""

    def spend(self, key: str, now: float) -> bool:
        """Take one token; False, and none is taken, where none is left."""
        left = self._now(key, now)
        allowed = left >= 1
        self._put(key, left - 1 if allowed else left, now)
        return allowed

    def charge(self, key: str, amount: float, now: float) -> float:
        """Take ``amount`` for what has happened already; what isn't there is owed. Returns ``owed_s``."""
        left = self._now(key, now) - amount
        self._put(key, left, now)
        return max(-left, 0.0) / self.per_s

    def owed_s(self, key: str, now: float) -> float:
        """Seconds until nothing is owed any more; 0 where nothing is."""
        return max(-self._now(key, now), 0.0) / self.per_s

    def has(self, key: str, now: float) -> bool:
        """Whether a token is left; takes none."""
        return self._now(key, now) >= 1

    def _put(self, key: str, left: float, now: float) -> None:
        self._left.pop(key, None)
        self._left[key] = (left, now)
        if len(self._left) > self.most:
            self._left.popitem(last=False)

    def _now(self, key: str, now: float) -> float:
        left, since = self._left.get(key, (self.burst, now))
        return min(self.burst, left + (now - since) * self.per_s)
