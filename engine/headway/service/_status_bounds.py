"""The bounds of the statuses of a resource: lengths of texts, numbers of statuses and conditions. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from headway.errors import InvalidArgument
from headway.resource import pb, unicode_problem
from headway.service._bounds import check_text

MAX_STATUSES = 100
"""The maximum number of statuses of one resource."""

MAX_CONDITIONS = 100
"""The maximum number of conditions of one status."""

MAX_ALL_CONDITIONS = 500
"""The maximum number of conditions in all statuses of one resource.

Together with its metadata, such a resource has fewer fields than a server decodes in one request, so that a resource
that was read can be written back.
"""

MAX_STATUS_SIZE = 64 << 10
"""The maximum length of one status, in characters."""

MAX_ALL_STATUS_SIZE = 1 << 20
"""The maximum length of all statuses of one resource, in characters.

Each change of one status writes them all. With a hundred of the longest ones, a request of a few kilobytes wrote ten
megabytes, and other writers waited a second for it.
"""


def check_statuses(statuses: Mapping[str, pb.Status]) -> None:
    """Refuse too many statuses, and any status that is too large."""
    if len(statuses) > MAX_STATUSES:
        raise InvalidArgument(f"resource.status has {len(statuses)} statuses: it must have at most {MAX_STATUSES}")
    if (count := sum(len(status.conditions) for status in statuses.values())) > MAX_ALL_CONDITIONS:
        raise InvalidArgument(
            f"resource.status has {count} conditions: it must have at most {MAX_ALL_CONDITIONS} in all"
        )
    for key, status in statuses.items():
        check_text("resource.status: key", key)
        check_status(status, f"resource.status[{key!r}]")


def check_status(status: pb.Status, field: str) -> None:
    """Refuse a status with too many conditions or too much text."""
    conditions = status.conditions
    if len(conditions) > MAX_CONDITIONS:
        raise InvalidArgument(f"{field} has {len(conditions)} conditions: it must have at most {MAX_CONDITIONS}")
    check_text(f"{field}.observed_generation", status.observed_generation)
    for index, condition in enumerate(conditions):
        check_text(f"{field}.conditions[{index}].type", condition.type)
        check_text(f"{field}.conditions[{index}].reason", condition.reason)
        if condition.resource is not None:
            check_text(f"{field}.conditions[{index}].resource.section", condition.resource.section)
        if problem := unicode_problem(f"{field}.conditions[{index}].message", condition.message):
            raise InvalidArgument(problem)
    if (size := _size(status)) > MAX_STATUS_SIZE:
        raise InvalidArgument(f"{field} has {size} characters: it must have at most {MAX_STATUS_SIZE} in all")


def room_problem(stored: Mapping[str, pb.Status], key: str, status: pb.Status) -> str | None:
    """Return why this status cannot be added to the stored ones, or None if it can.

    A resource that already exceeds the bounds, from before they existed, may not grow further.
    """
    if len(stored) == 1 and key in stored:
        # There is no other, and the new one has passed its own bounds, which are below those of all.
        return None
    others = [each for other, each in stored.items() if other != key]
    if key not in stored and len(others) >= MAX_STATUSES:
        return f"it has {len(others)} other statuses: it must have at most {MAX_STATUSES} in all"
    count = sum(len(each.conditions) for each in others) + len(status.conditions)
    if count > max(MAX_ALL_CONDITIONS, sum(len(each.conditions) for each in stored.values())):
        return f"it would have {count} conditions: it must have at most {MAX_ALL_CONDITIONS} in all statuses"
    size = sum(map(_size, others)) + _size(status)
    if size > max(MAX_ALL_STATUS_SIZE, sum(map(_size, stored.values()))):
        return f"its statuses would have {size} characters: they must have at most {MAX_ALL_STATUS_SIZE} in all"
    return None


def _size(status: pb.Status) -> int:
    return sum(len(each.type) + len(each.reason) + len(each.message) for each in status.conditions)
