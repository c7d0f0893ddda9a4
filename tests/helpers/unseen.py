"""Looks of a test at a resource, which are not those of the reconcile that it watches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headway.resource import LOOKING


@contextmanager
def unseen() -> Iterator[None]:
    """Keep looks at statuses and versions in this block from counting as the reconcile's own."""
    token = LOOKING.set(None)
    try:
        yield
    finally:
        LOOKING.reset(token)
