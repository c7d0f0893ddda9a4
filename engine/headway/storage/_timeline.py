"""The sessions of a store that several engines share. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import NamedTuple

KNOWN_SESSIONS = 256
"""The number of earlier sessions that a store knows. A watch cannot resume after a position of an older one."""


class Timeline(NamedTuple):
    """The sessions of a store in order, each as a pair (first revision, id).

    Invariant: all engines that follow one history have the same timeline up to the revisions that they have reached.
    """

    eras: tuple[tuple[int, str], ...]

    def at(self, revision: int) -> str:
        """Return the session of a revision."""
        first, id = self.eras[-1]
        if revision >= first:
            return id
        index = bisect_right(self.eras, revision, key=lambda era: era[0])
        return self.eras[max(index - 1, 0)][1]

    @property
    def oldest(self) -> int:
        """The first revision of the oldest known session, or 0 if no session has been forgotten."""
        return self.eras[0][0] if len(self.eras) > KNOWN_SESSIONS else 0

    def lefts(self) -> Mapping[str, int | None]:
        """Return every known session with its last possible revision, or None for the current session."""
        ends = [first - 1 for first, _ in self.eras[1:]]
        return {id: left for (_, id), left in zip(self.eras, [*ends, None], strict=True)}
