"""The order of the results of the site's search: guides first, and internals last."""

from __future__ import annotations

TITLE = 1000.0
"""What a word in a title counts, where one in a text counts 1: the theme has it so."""

# The first prefix of a page's path decides. A title of the reference is a name, such as `retry`, and internals have
# most of the names: there it counts no more than a word of a guide.
_BOOSTS = (
    ("decisions/", 0.5),
    ("examples/", 0.2),
    ("CHANGELOG", 0.05),
    ("reference/headway.md", 10 / TITLE),
    ("reference/", 1 / TITLE),
)


def boost(path: str) -> float:
    """Return the weight of a page of the site in its search."""
    return next((weight for prefix, weight in _BOOSTS if path.startswith(prefix)), 1.0)
