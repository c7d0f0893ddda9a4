"""The statuses that a resource shows: a dict that refuses assignments, since no write would store them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from headway._gen.headway.resource import v1 as pb


class Statuses(dict[str, pb.Status]):
    """The statuses of a resource by the name of their writer. Read-only; a copy of it is a plain dict."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("the statuses of a resource are read-only: use rt.conditions(...) or client.write_status(...)")

    if not TYPE_CHECKING:
        # Callers are told that it is a Mapping, which has none of these.
        __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)
