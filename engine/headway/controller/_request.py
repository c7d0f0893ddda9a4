"""What a reconciler is asked, and what it may answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple

from typing_extensions import TypeVar

from headway.errors import InvalidArgument
from headway.resource import Key, Payload, ResourceId, TypeName

P = TypeVar("P", bound=Payload, default=Any)


class Reason(NamedTuple):
    """One thing that made a key be reconciled.

    Attributes:
        what: ``changed``, ``started``, ``owed``, ``retry``, ``requeue`` or ``source NAME``.
        type: the type that changed, if one did.
        key: the resource of it.
        revision: of the change.
    """

    what: str
    type: TypeName | None = None
    key: Key | None = None
    revision: int = 0

    def __str__(self) -> str:
        if self.type is None or self.key is None:
            return self.what
        return f"{self.type.kind} {self.key[2]} {self.what} at {self.revision}"


class Request(NamedTuple, Generic[P]):
    """One call of a reconciler: a resource of the managed type, which need not exist (any more).

    ``Request[Team]`` is one of a controller that manages teams; `Runtime.resource` gives the team.

    Attributes:
        id: type, tenancy and name, without a uid: whatever bears the name now.
        reasons: why; the first few and the last few when there were many.
        attempt: 1, or how often in a row it has been tried.
    """

    id: ResourceId
    reasons: tuple[Reason, ...]
    attempt: int


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """A reconciler's answer: done, and look again after ``seconds``."""

    seconds: float

    def __post_init__(self) -> None:
        given: object = self.seconds
        if not (isinstance(given, int | float) and math.isfinite(given) and given >= 0):
            raise InvalidArgument(f"requeue_after takes a number of seconds from 0 on, not {given!r}")


Result = RequeueAfter | None
"""What a reconciler returns: nothing, or when to look again. A failure is raised."""


def requeue_after(seconds: float) -> RequeueAfter:
    """``return headway.requeue_after(30)``: this went well; reconcile the key again after so many seconds."""
    return RequeueAfter(seconds)


def requeue_now() -> RequeueAfter:
    """This went well; reconcile the key again at once, behind what is waiting."""
    return RequeueAfter(0.0)
