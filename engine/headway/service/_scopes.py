"""The check of a watch's filter by metadata."""

from __future__ import annotations

from headway.resource import selected, selector_problem
from headway.service._refusals import invalid


def check_selector(text: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata entries that a watch asks for. Refuse an invalid filter."""
    if not text:
        return ()
    if problem := selector_problem("metadata_filter", text):
        raise invalid(problem)
    return selected(text)
