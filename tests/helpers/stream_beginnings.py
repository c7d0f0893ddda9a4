"""The faults with which a WatchList stream may begin: those of an endpoint, a replica that lags, or a wrong server."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Unreachable(NamedTuple):
    """The endpoint refuses the connection."""


class Compacted(NamedTuple):
    """The endpoint no longer has the history after the requested position, so the reader needs a new watch."""


Then = Literal["catches up", "hangs", "is slow", "stands still"]


class Behind(NamedTuple):
    """The endpoint is a replica that lags: it answers with a snapshot of an older revision.

    Attributes:
        revision: the revision of its snapshot.
        then: it catches up at once, sends nothing more, takes more than a minute to catch up, or repeats its bookmark.
    """

    revision: int
    then: Then


class Half(NamedTuple):
    """The connection breaks in the middle of the snapshot, after this number of resources."""

    resources: int


class Beyond(NamedTuple):
    """A wrong server: it resumes after its newest revision instead of the requested one."""


class Again(NamedTuple):
    """A wrong server: it repeats the changes of this number of revisions before the beginning."""

    revisions: int


Begins = Unreachable | Compacted | Behind | Half | Beyond | Again
NEEDS_SNAPSHOT = (Compacted, Behind, Half)
"""The faults of an endpoint that cannot resume a stream."""
