"""Generations: ULIDs that only grow within one resource."""

from __future__ import annotations

from ulid_transform import ulid_now

_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LOWEST, _HIGHEST = _DIGITS[0], _DIGITS[-1]


def generation_after(stored: str) -> str:
    """A new generation above the stored one: also within its millisecond, and when the clock has been put back."""
    fresh = ulid_now()
    return fresh if fresh > stored else _next(stored)


def _next(ulid: str) -> str:
    kept = ulid.rstrip(_HIGHEST)
    raised = _DIGITS[_DIGITS.index(kept[-1]) + 1]
    return kept[:-1] + raised + _LOWEST * (len(ulid) - len(kept))
