"""The token buckets of limits on calls. Pure: the time is an argument, in seconds.

A limit applies to calls by their category, by the policies of the caller and by tenancy. It has one token bucket for
all of these calls, or one for each caller, each partition or each namespace. A call takes a token from every limit that
applies to it. If one of them has none, the call takes no token at all and is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from headway.access._limits import PER, Category, Limit
from headway.access._policy import ANY
from headway.base import Buckets


class Counted(NamedTuple):
    """A call, as limits see it.

    Attributes:
        caller: the accessor of its token, or without one the host that it calls from.
        anonymous: True if the caller has no token.
        policies: the names of the caller's policies.
        partition: the partition that the call is about; empty if it is about none.
        namespace: the namespace, in the same way.
    """

    category: Category
    caller: str
    anonymous: bool
    policies: Collection[str]
    partition: str = ""
    namespace: str = ""


class Exceeded(NamedTuple):
    """The limit that refuses a call, and the seconds until it would accept it."""

    limit: Limit
    seconds: float

    def message(self) -> str:
        """Return the sentence that the caller gets."""
        of = self.limit
        share = f"each {' and '.join(of.per)} has" if of.per else "all together have"
        return (
            f"too many calls: limit {of.name} allows {of.per_second:g} {'/'.join(of.categories)} calls a second with a "
            f"burst of {of.burst}, which {share}; nothing was done: repeat the call after {self.seconds:.3g} s"
        )


class Refused(NamedTuple):
    """The calls that a limit has refused since it applies: their number, and the caller of the last one."""

    limit: str
    calls: int
    caller: str


class Limiter:
    """The limits of one server, with their buckets.

    Callers without a token have buckets apart from the others, so that a flood of them takes no memory from callers
    with a token.
    """

    def __init__(self, limits: Iterable[Limit] = ()) -> None:
        self._kept: list[_Kept] = []
        self.replace(limits)

    def replace(self, limits: Iterable[Limit]) -> None:
        """Replace the limits. A limit that stays the same keeps its buckets; any other one begins full."""
        before = {each.limit: each for each in self._kept}
        self._kept = [before.get(each) or _Kept(each) for each in limits]

    @property
    def limits(self) -> Sequence[Limit]:
        """The limits that apply now."""
        return tuple(each.limit for each in self._kept)

    def refused(self) -> list[Refused]:
        """Return what each limit has refused, if it has refused anything."""
        return [Refused(each.limit.name, each.count, each.caller) for each in self._kept if each.count]

    def __bool__(self) -> bool:
        return bool(self._kept)

    def refuses(self, call: Counted, now: float) -> Exceeded | None:
        """Return the limit that refuses the call whatever its tenancy is, or None. Nothing is spent.

        A server asks this before it receives the request.
        """
        return _longest(now, [(each, call) for each in self._kept if not each.by_tenancy and each.applies(call)])

    def spend(self, calls: Sequence[Counted], now: float) -> Exceeded | None:
        """Take a token from each limit that applies to a call, or return the limit that refuses it.

        Args:
            calls: the call, once for each place that it is about. It takes one token from each bucket of these places.
        """
        applying = [(each, call) for each in self._kept for call in calls if each.applies(call)]
        exceeded = _longest(now, applying)
        if exceeded is None:
            spent = {(id(each), each.key(call)): (each, call) for each, call in applying}
            for each, call in spent.values():
                buckets, key = each.buckets(call), each.key(call)
                # Two places may share a bucket without a token for each. One token is enough then.
                if not buckets.wait(key, now):
                    buckets.spend(key, now)
        return exceeded


class _Kept:
    """A limit with its buckets."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.by_tenancy = (limit.partition, limit.namespace) != (ANY, ANY) or bool({*limit.per} - {"caller"})
        # A caller may name any number of places. Those without a bucket share one of this caller, which comes first.
        group = _caller if "caller" in limit.per and len(limit.per) > 1 else None
        self._anonymous: Buckets[tuple[str, ...]] = Buckets(limit.per_second, limit.burst, group=group)
        self._others: Buckets[tuple[str, ...]] = Buckets(limit.per_second, limit.burst, group=group)
        # The calls that it has refused, and the caller of the last one.
        self.count, self.caller = 0, ""
        self._units = tuple(name for name in PER if name in limit.per)

    def applies(self, call: Counted) -> bool:
        limit = self.limit
        return (
            call.category in limit.categories
            and (limit.policies is None or any(name in limit.policies for name in call.policies))
            and limit.partition in (ANY, call.partition)
            and limit.namespace in (ANY, call.namespace)
        )

    def buckets(self, call: Counted) -> Buckets[tuple[str, ...]]:
        # Without `caller`, a bucket is shared by callers of both kinds.
        return self._anonymous if call.anonymous and "caller" in self._units else self._others

    def key(self, call: Counted) -> tuple[str, ...]:
        parts: list[str] = []
        for unit in self._units:
            # Two partitions may have namespaces of the same name.
            parts += (call.partition, call.namespace) if unit == "namespace" else (getattr(call, unit),)
        return tuple(parts)


def _caller(key: tuple[str, ...]) -> str:
    return key[0]


def _longest(now: float, applying: Iterable[tuple[_Kept, Counted]]) -> Exceeded | None:
    """Return the limit with the longest wait, which refuses the call; None if none has to be waited for."""
    waits = ((each.buckets(call).wait(each.key(call), now), each, call) for each, call in applying)
    seconds, longest, call = max(waits, key=lambda each: each[0], default=(0.0, None, None))
    if longest is None or call is None or not seconds:
        return None
    longest.count, longest.caller = longest.count + 1, call.caller
    return Exceeded(longest.limit, seconds)
