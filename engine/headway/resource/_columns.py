"""The columns of a type: the payload fields that a table shows."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import betterproto2

from headway.base import did_you_mean, repr_text
from headway.errors import PayloadError
from headway.protobuf import Payload
from headway.resource._ids import quoted

if TYPE_CHECKING:
    from headway.resource._resource import Resource

_LONGEST = 40
"""The maximum length of a title."""

_OWN = ("PARTITION", "NAMESPACE", "NAME", "VERSION", "CONDITIONS")
_FORM = 'columns={"LEAD": "lead", "ROOMS": "office.rooms"}'

Columns = Mapping[str, str]
"""A mapping from the title of each column to the path of a field, such as ``office.rooms``."""


def columns_problem(payload: type[Any], columns: Columns) -> str | None:
    """Return the problem with the columns of a payload, or None if they are valid."""
    for title, path in columns.items():
        if problem := _title_problem(title) or _path_problem(payload, path):
            return f"columns: {problem}"
    return None


def column_text(data: Payload, path: str) -> str:
    """Return the text of a column.

    The text of an unset field is empty. Lists of messages, and maps, show the number of their elements.
    """
    value: Any = data
    for name in path.split("."):
        if value is None:
            return ""
        value = getattr(value, name)
    return _text(value)


def column_texts(resource: Resource[Any]) -> list[str]:
    """Return the texts of the columns of a resource's type; each is ``?`` if the payload cannot be decoded."""
    paths = resource.type.columns.values()
    try:
        return [column_text(resource.data, path) for path in paths]
    except PayloadError:
        # One resource with invalid data must not hide the others of a table.
        return ["?"] * len(paths)


def _title_problem(title: str) -> str | None:
    if not title.strip() or not title.isprintable() or len(title) > _LONGEST:
        return f"title {repr_text(title, 80)} must be 1 to {_LONGEST} printable characters: {_FORM}"
    if title in _OWN:
        return f"title {title!r} is reserved for a column of every table: choose another"
    return None


def _path_problem(payload: type[betterproto2.Message], path: str) -> str | None:
    if not path:
        return f"path {path!r} must be the name of a field, or several names joined by dots: {_FORM}"
    cls = payload
    *outer, last = path.split(".")
    for name in outer:
        field = _fields(cls).get(name)
        if field is None:
            return _unknown(path, cls, name)
        meta = betterproto2.FieldMetadata.get(field)
        if meta.proto_type != betterproto2.TYPE_MESSAGE or meta.repeated or meta.unwrap is not None:
            return f"path {quoted(path)}: {cls.__name__}.{name} is not a single message, so it has no fields to show"
        cls = cls._cls_for(field)
    field = _fields(cls).get(last)
    if field is None:
        return _unknown(path, cls, last)
    if betterproto2.FieldMetadata.get(field).proto_type == betterproto2.TYPE_BYTES:
        return f"path {quoted(path)}: {cls.__name__}.{last} holds bytes, which a table cannot show"
    return None


def _fields(cls: Any) -> dict[str, dataclasses.Field[Any]]:
    return {each.name: each for each in dataclasses.fields(cls)}


def _unknown(path: str, cls: type[betterproto2.Message], name: str) -> str:
    hint = did_you_mean(name, _fields(cls))
    return f"path {quoted(path)}: {cls.__name__} has no field {quoted(name)}{hint}"


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return str(len(value)) if value and isinstance(value[0], betterproto2.Message) else ",".join(map(_text, value))
    if isinstance(value, dict):
        return str(len(value))
    if isinstance(value, datetime.datetime):
        return readable_time(value)
    # A table shows of a message only that it is set.
    return "set" if isinstance(value, betterproto2.Message) else getattr(value, "name", None) or str(value)


def readable_time(time: datetime.datetime) -> str:
    """Return a human-readable time in UTC, to the second: ``2026-01-01 00:00:00Z``."""
    if time.tzinfo is not None:
        time = time.astimezone(datetime.UTC)
    return f"{time.replace(microsecond=0, tzinfo=None)}Z"
