"""Generations: ULIDs that only increase within one resource."""

from __future__ import annotations

from ulid_transform import ulid_now

_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LOWEST, _HIGHEST = _DIGITS[0], _DIGITS[-1]


def generation_after(stored: str) -> str:
    """Return a new generation above the stored one, even within its millisecond or after the clock was set back."""
    fresh = ulid_now()
    return fresh if fresh > stored else _next(stored)


def _next(ulid: str) -> str:
    kept = ulid.rstrip(_HIGHEST)
    raised = _DIGITS[_DIGITS.index(kept[-1]) + 1]
    return kept[:-1] + raised + _LOWEST * (len(ulid) - len(kept))
