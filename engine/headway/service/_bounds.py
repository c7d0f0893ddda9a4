"""The bounds of the fields of a resource, and of a list: lengths of texts, numbers of entries. Pure.

A value out of bounds is refused before any look-up. The error shows only the beginning of a long value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.api import MAX_TEXT
from headway.base import Steps
from headway.errors import InvalidArgument, PayloadError
from headway.protobuf import counting_fields
from headway.resource import (
    DELETION_TIMESTAMP,
    FINALIZERS,
    MAX_NAME,
    ResourceType,
    quoted,
    selected,
    selector_problem,
    text_problem,
    unicode_problem,
)

MAX_METADATA = 1000
"""The maximum number of metadata entries."""

MAX_METADATA_SIZE = 256 << 10
"""The maximum length of all metadata of a resource, keys and values, in characters."""

MAX_FINALIZERS = 100

MAX_TOKEN = 1024
"""The maximum length of a page token. Those that a server creates are shorter."""


def check_text(field: str, text: str, limit: int = MAX_TEXT) -> None:
    """Refuse a text of more than ``limit`` characters, or one that is not Unicode."""
    # Most texts are like this.
    if len(text) <= limit and text.isascii():
        return
    if problem := text_problem(field, text, limit):
        raise InvalidArgument(problem)


def check_prefix(text: str) -> None:
    """Refuse a prefix that no name can have: one longer than a name, or with upper-case letters."""
    if len(text) > MAX_NAME:
        raise InvalidArgument(f"name_prefix {quoted(text)} must have at most {MAX_NAME} characters, as names have")
    if text != text.lower():
        raise InvalidArgument(f"name_prefix {text!r} must be lower case, as names are")


def check_metadata(metadata: Mapping[str, str]) -> None:
    """Refuse metadata with too many entries or finalizers, or with too much text."""
    if len(metadata) > MAX_METADATA:
        raise InvalidArgument(f"resource.metadata has {len(metadata)} entries: it must have at most {MAX_METADATA}")
    size = 0
    for key, value in metadata.items():
        if len(key) > MAX_TEXT:
            raise InvalidArgument(f"resource.metadata: key {quoted(key)} must have at most {MAX_TEXT} characters")
        size += len(key) + len(value)
        if problem := unicode_problem("resource.metadata: key", key):
            raise InvalidArgument(problem)
        if not value.isascii() and (problem := unicode_problem(f"resource.metadata[{quoted(key)}]", value)):
            raise InvalidArgument(problem)
    if size > MAX_METADATA_SIZE:
        raise InvalidArgument(
            f"resource.metadata has {size} characters: it must have at most {MAX_METADATA_SIZE} in all"
        )
    if DELETION_TIMESTAMP in metadata:
        check_text(f"metadata.{DELETION_TIMESTAMP}", metadata[DELETION_TIMESTAMP])
    if FINALIZERS in metadata and (count := len(metadata[FINALIZERS].split())) > MAX_FINALIZERS:
        raise InvalidArgument(f"metadata.{FINALIZERS} has {count} names: it must have at most {MAX_FINALIZERS}")


def check_payload(type: ResourceType[Any], data: bytes) -> Steps[None]:
    """Refuse a payload with more fields than its type allows."""
    # A field takes at least one byte, so most payloads need not be counted.
    if len(data) <= type.max_fields:
        return
    try:
        yield from counting_fields(type.payload, data, type.max_fields)
    except PayloadError as error:
        most = f"it must have at most {type.max_fields} in all, the max_fields of the type"
        raise InvalidArgument(f"resource.data is {error}: {most}") from None


def check_selector(text: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata entries that a watch asks for. Refuse an invalid filter."""
    if not text:
        return ()
    if problem := selector_problem("metadata_filter", text):
        raise InvalidArgument(problem)
    return selected(text)
