"""The names and times in answers, as texts. A `Ref` is a resource, or all of a type if it has no name. No I/O."""

from __future__ import annotations

import datetime

from headway._gen.headway.observe.v1 import Ref
from headway.resource import DEFAULT_UNIT, Key, ResourceId, TypeName


def ref_of(type: TypeName, key: Key) -> Ref:
    """Return the reference to a key of a type."""
    return Ref(str(type), *key)


def kind_of(ref: Ref) -> str:
    """Return the type without its group and version."""
    return ref.type.rpartition(".")[2]


def id_of(ref: Ref) -> ResourceId:
    """Return the reference as an id, without uid."""
    group, version, kind = ref.type.rsplit(".", 2)
    return ResourceId(TypeName(group, version, kind), ref.name, ref.partition, ref.namespace)


def ref_text(ref: Ref) -> str:
    """Return the reference for people, such as ``Team sales/core``."""
    units = [] if ref.partition in ("", DEFAULT_UNIT) else [ref.partition]
    if units or ref.namespace not in ("", DEFAULT_UNIT):
        units.append(ref.namespace)
    return f"{kind_of(ref)} {'/'.join(filter(None, (*units, ref.name)))}".rstrip()


def short_name(function: str) -> str:
    """Return a name of a function for people: without the functions that it is nested in."""
    return function.rpartition("<locals>.")[2]


def when_text(at: float, now: float) -> str:
    """Return a time of day in UTC, and how far it is from now. Times of other days have their date."""
    if not at:
        return "an unknown time"
    try:
        moment = datetime.datetime.fromtimestamp(at, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        # A reconciler may ask for its next call after any number of seconds, such as by a wrong unit.
        return "a time after the year 9999" if at > now else "an unknown time"
    form = "%H:%M:%S" if abs(now - at) < 43_200 else "%Y-%m-%d %H:%M:%S"
    distance = seconds_text(abs(now - at))
    return f"{moment:{form}} ({f'in {distance}' if at > now else f'{distance} ago'})"


def seconds_text(seconds: float) -> str:
    """Return a duration, rounded to its unit."""
    if seconds < 0.001:
        return "< 1 ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
