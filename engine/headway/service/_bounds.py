"""The bounds of a request's fields: how much text, and how many entries, a caller may send in each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import PayloadError
from headway.resource import DELETION_TIMESTAMP, FINALIZERS, MAX_NAME, check_field_count, pb, quoted
from headway.service._refusals import invalid

MAX_TEXT = 255
"""Characters of a key, a word or an identifier that names nothing by itself: a uid, a store id, a condition's type."""

MAX_METADATA = 1000
"""Entries of metadata."""

MAX_METADATA_SIZE = 256 << 10
"""Characters of all metadata of a resource, keys and values."""

MAX_FINALIZERS = 100
MAX_STATUSES = 100
"""Statuses of one resource."""

MAX_CONDITIONS = 100
"""Conditions of one status."""

MAX_ALL_CONDITIONS = 500
"""Conditions of all statuses of one resource. With them, and with its metadata, it has fewer fields than a server
decodes of one request, so that what has been read can be written back."""

MAX_STATUS_SIZE = 64 << 10
"""Characters of one status."""

MAX_PAYLOAD_FIELDS = 100_000
"""Fields of a payload, with those of all messages in it: hooks, indexes and clients decode it in one go."""

MAX_FILTER = 4096
"""Characters of a metadata filter."""

MAX_TERMS = 32
"""Terms of a metadata filter. Each is asked of every resource of a list."""

MAX_PAGE = 100_000
"""Resources of a page that a caller may ask for."""

MAX_TOKEN = 1024
"""Characters of a page token: those that a server makes are shorter."""


def check_text(field: str, text: str, limit: int = MAX_TEXT) -> None:
    """Refuse a text of more than ``limit`` characters."""
    if len(text) > limit:
        raise invalid(f"{field} {quoted(text)} has {len(text)} characters: it must have at most {limit}")


def check_prefix(text: str) -> None:
    """Refuse what begins no name because it is longer than one, or not in lower case."""
    if len(text) > MAX_NAME:
        raise invalid(f"name_prefix {quoted(text)} must have at most {MAX_NAME} characters, as names have")
    if text != text.lower():
        raise invalid(f"name_prefix {text!r} must be lower case, as names are")


def check_metadata(metadata: Mapping[str, str]) -> None:
    """Refuse metadata of too many entries or finalizers, or of too much text."""
    if len(metadata) > MAX_METADATA:
        raise invalid(f"resource.metadata has {len(metadata)} entries: it must have at most {MAX_METADATA}")
    size = 0
    for key, value in metadata.items():
        if len(key) > MAX_TEXT:
            raise invalid(f"resource.metadata: key {quoted(key)} must have at most {MAX_TEXT} characters")
        size += len(key) + len(value)
    if size > MAX_METADATA_SIZE:
        raise invalid(f"resource.metadata has {size} characters: it must have at most {MAX_METADATA_SIZE} in all")
    if DELETION_TIMESTAMP in metadata:
        check_text(f"metadata.{DELETION_TIMESTAMP}", metadata[DELETION_TIMESTAMP])
    if FINALIZERS in metadata and (count := len(metadata[FINALIZERS].split())) > MAX_FINALIZERS:
        raise invalid(f"metadata.{FINALIZERS} has {count} names: it must have at most {MAX_FINALIZERS}")


def check_payload(payload: type[Any], data: bytes) -> None:
    """Refuse a payload of too many fields."""
    # A field takes a byte at least, so that most payloads needn't be counted.
    if len(data) <= MAX_PAYLOAD_FIELDS:
        return
    try:
        check_field_count(payload, data, MAX_PAYLOAD_FIELDS)
    except PayloadError as error:
        raise invalid(f"resource.data is {error}: it must have at most {MAX_PAYLOAD_FIELDS} in all") from None


def check_statuses(statuses: Mapping[str, pb.Status]) -> None:
    """Refuse more statuses than a resource may have, and any that is too large by itself."""
    if len(statuses) > MAX_STATUSES:
        raise invalid(f"resource.status has {len(statuses)} statuses: it must have at most {MAX_STATUSES}")
    if (count := sum(len(status.conditions) for status in statuses.values())) > MAX_ALL_CONDITIONS:
        raise invalid(f"resource.status has {count} conditions: it must have at most {MAX_ALL_CONDITIONS} in all")
    for key, status in statuses.items():
        check_text("resource.status: key", key)
        check_status(status, f"resource.status[{key!r}]")


def check_status(status: pb.Status, field: str) -> None:
    """Refuse a status of too many conditions, or of too much text."""
    conditions = status.conditions
    if len(conditions) > MAX_CONDITIONS:
        raise invalid(f"{field} has {len(conditions)} conditions: it must have at most {MAX_CONDITIONS}")
    check_text(f"{field}.observed_generation", status.observed_generation)
    size = 0
    for index, condition in enumerate(conditions):
        check_text(f"{field}.conditions[{index}].type", condition.type)
        check_text(f"{field}.conditions[{index}].reason", condition.reason)
        if condition.resource is not None:
            check_text(f"{field}.conditions[{index}].resource.section", condition.resource.section)
        size += len(condition.type) + len(condition.reason) + len(condition.message)
    if size > MAX_STATUS_SIZE:
        raise invalid(f"{field} has {size} characters: it must have at most {MAX_STATUS_SIZE} in all")


def room_problem(stored: Mapping[str, pb.Status], key: str, status: pb.Status) -> str | None:
    """What keeps a resource that has these statuses from having this one, too, or None.

    One that has more already, from before there were bounds, may have no more than it has.
    """
    others = [each for other, each in stored.items() if other != key]
    if key not in stored and len(others) >= MAX_STATUSES:
        return f"it has {len(others)} other statuses, and may have {MAX_STATUSES} in all"
    count = sum(len(each.conditions) for each in others) + len(status.conditions)
    if count > max(MAX_ALL_CONDITIONS, sum(len(each.conditions) for each in stored.values())):
        return f"it would have {count} conditions, and may have {MAX_ALL_CONDITIONS} in all statuses"
    return None


def check_position(message: pb.Position | None, field: str) -> None:
    """Refuse a position whose ids are longer than any store's."""
    if message is not None:
        check_text(f"{field}.store_id", message.store_id)
        check_text(f"{field}.incarnation", message.incarnation)
        check_text(f"{field}.versions", message.versions)
