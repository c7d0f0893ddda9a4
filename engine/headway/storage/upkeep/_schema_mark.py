"""The stored records of schemas, as far as a copy of a store has to know them. `headway.versions` makes them."""

from __future__ import annotations

from headway.protobuf import copy_message
from headway.resource import Kind, pb

SCHEMA_KIND: Kind = ("internal", "Schema")

REPLACED = "replaced"
"""The metadata key of a record whose schema has replaced an incompatible one: the last revision before that."""


def without_mark(stored: pb.Resource) -> pb.Resource:
    """Return a copy of a record without its mark, which counts only in the store that has set it.

    Another store has revisions of its own. What it has of an earlier schema is in the history of the first one.
    """
    copied = copy_message(stored)
    copied.metadata.pop(REPLACED, None)
    return copied
