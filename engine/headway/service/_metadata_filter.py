"""The metadata filter of a List: its syntax and its terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headway.resource import quoted
from headway.service._bounds import MAX_FILTER, MAX_TERMS, check_text
from headway.service._refusals import invalid

Term = Callable[[Mapping[str, str]], bool]

_FORMS = "use key=value, key!=value, key or !key, with commas between"


def metadata_terms(text: str) -> list[Term]:
    """Return the terms of a filter, all of which must hold. An empty filter has no terms and matches everything.

    A key contains none of the characters ``=!,`` and a value no comma. Blanks around them are ignored.
    """
    check_text("metadata_filter", text, MAX_FILTER)
    if not text.strip():
        return []
    parts = text.split(",")
    if len(parts) > MAX_TERMS:
        raise invalid(f"metadata_filter has {len(parts)} terms: it must have at most {MAX_TERMS}")
    return [_term(part.strip(), text) for part in parts]


def _term(part: str, text: str) -> Term:
    key, equals, value = (each.strip() for each in part.partition("="))
    negated = key.endswith("!") if equals else key.startswith("!")
    if negated:
        key = (key[:-1] if equals else key[1:]).strip()
    if not key or "!" in key:
        raise invalid(f"metadata_filter {quoted(text)}: {quoted(part)} is not a valid term: {_FORMS}")
    if equals:
        return lambda metadata: (metadata.get(key) == value) is not negated
    return lambda metadata: (key in metadata) is not negated
