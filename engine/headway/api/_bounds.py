"""The bounds of requests that services and their callers know, and the filter of a list by metadata. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from headway.errors import InvalidArgument
from headway.resource import is_foreign_pair, quoted, text_problem

MAX_TEXT = 255
"""The maximum length of a key, a word or an identifier other than a name: a uid, a store id, a condition's type."""

MAX_SUBJECTS = 64
"""The maximum number of subjects of a subscription. Each commit is compared with all of them."""

MAX_FILTER = 4096
"""The maximum length of a metadata filter, in characters."""

MAX_TERMS = 32
"""The maximum number of terms of a metadata filter. Each term is evaluated for every resource of a list."""

MAX_PAGE = 100_000
"""The maximum page size that a caller may request."""

MIN_TTL_MS, MAX_TTL_MS = 1_000, 3_600_000
"""The bounds of a lease's ttl."""

MAX_WAIT_MS = 20_000
"""The longest that a server waits for a lease to be released."""

MAX_NUMBER = 2**63 - 1
"""The highest term, and the highest number within a term, that a store can hold."""


Term = Callable[[Mapping[str, str]], bool]

# Terms of other languages of filters would match nothing, or everything, without a word: "color in (red)", "color:red".
# Before an equals sign such a key can only be meant as one, and a value may be any text, such as "a; b=c".
_FOREIGN_KEY = re.compile(r"[\s():;<>~'\"]")

_FORMS = "use key=value, key!=value, key or !key, with commas between"
_NEEDS_VALUE = "; a key with blanks, quotes or any of ():;<>~ needs its value, as in 'team:core=x'"


def metadata_terms(text: str) -> list[Term]:
    """Return the terms of a filter, all of which must hold. An empty filter has no terms and matches everything.

    A key contains none of the characters ``=!,`` and a value no comma. Blanks around them are ignored.
    """
    if problem := text_problem("metadata_filter", text, MAX_FILTER):
        raise InvalidArgument(problem)
    if not text.strip():
        return []
    parts = text.split(",")
    if len(parts) > MAX_TERMS:
        raise InvalidArgument(f"metadata_filter has {len(parts)} terms: it must have at most {MAX_TERMS}")
    return [_term(part.strip(), text) for part in parts]


def _term(part: str, text: str) -> Term:
    key, equals, value = (each.strip() for each in part.partition("="))
    negated = key.endswith("!") if equals else key.startswith("!")
    if negated:
        key = (key[:-1] if equals else key[1:]).strip()
    foreign = not equals and _FOREIGN_KEY.search(key) is not None
    if not key or "!" in key or foreign or (equals and is_foreign_pair(key, value)):
        hint = _NEEDS_VALUE if foreign else ""
        raise InvalidArgument(f"metadata_filter {quoted(text)}: {quoted(part)} is not a valid term: {_FORMS}{hint}")
    if equals:
        return lambda metadata: (metadata.get(key) == value) is not negated
    return lambda metadata: (key in metadata) is not negated
