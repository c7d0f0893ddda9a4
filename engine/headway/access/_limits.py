"""Limits on how often callers may call, and the checks of their fields. `_limiter.py` keeps them. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from headway.access._policy import ANY, POLICY_CHECKS, RULE_CHECKS, Check, check_fields
from headway.resource import did_you_mean, name_problem

Category = Literal["read", "write", "watch"]
"""The category of a call. ``watch`` is the opening of a stream; what a stream then sends is not counted."""

CATEGORIES: tuple[Category, ...] = get_args(Category)

PER = ("caller", "partition", "namespace")
"""What may have a token bucket of its own. ``namespace`` means a namespace of a partition."""

MOST = 1_000_000
_LEAST = 0.0001


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit on calls. Raises InvalidArgument with all of its problems.

    Attributes:
        name: its name in refusals, log lines and metrics.
        categories: the categories of calls that it counts, together.
        per: what gets a token bucket of its own, any of PER; empty for a single bucket.
        per_second: the number of calls a second in the long run.
        burst: the number of calls at once, after a pause.
        policies: the policies of the callers whose calls it counts; None to count the calls of all callers.
        partition: the partition of the calls; ``*`` for any or none. A call on all partitions has the partition ``*``.
        namespace: the namespace, in the same way.
    """

    name: str
    categories: Collection[str]
    per: Collection[str]
    per_second: float
    burst: int
    policies: Collection[str] | None = None
    partition: str = ANY
    namespace: str = ANY

    def __post_init__(self) -> None:
        check_fields("limit", self, LIMIT_CHECKS)
        for name in ("categories", "per", "policies"):
            given = getattr(self, name)
            if given is not None:
                # The class is frozen.
                object.__setattr__(self, name, tuple(given))


def _word_problems(field: str, words: Sequence[str], *, may_be_empty: bool) -> Check:
    example = f"such as {list(words[:2])!r}"

    def problems(value: object) -> Iterator[str]:
        if isinstance(value, str) or not isinstance(value, Collection):
            yield f"{field} {value!r} must be a list of words, {example}"
        elif not value and not may_be_empty:
            yield f"{field} is empty: use any of {', '.join(words)}"
        else:
            for word in value:
                if not isinstance(word, str) or word not in words:
                    yield f"{field}: {word!r} is not one of {', '.join(words)}{did_you_mean(str(word), words)}"

    return problems


def _name_problems(value: object) -> Iterator[str]:
    if problem := name_problem("name", value):
        yield problem


def _policies_problems(value: object) -> Iterator[str]:
    if value is None:
        return
    if isinstance(value, str) or not isinstance(value, Collection):
        yield f"policies {value!r} must be a list of names, such as ['operators']"
    elif not value:
        yield "policies is empty: name a policy, or leave policies out to count the calls of every caller"
    else:
        for name in value:
            yield from POLICY_CHECKS["name"](name)


def _number_problems(field: str, least: float, kind: Callable[[object], bool], right: str) -> Check:
    """Return a check of a number from ``least`` to MOST, of a kind that ``right`` describes with an example."""

    def problems(value: object) -> Iterator[str]:
        valid = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and kind(value)
        if not valid or not least <= value <= MOST:  # type: ignore[operator]  # a number by now
            yield f"{field} {value!r} must be {right}"

    return problems


LIMIT_CHECKS: dict[str, Check] = {
    "name": _name_problems,
    "categories": _word_problems("categories", CATEGORIES, may_be_empty=False),
    "per": _word_problems("per", PER, may_be_empty=True),
    "per_second": _number_problems(
        "per_second", _LEAST, lambda _: True, f"a number of calls from {_LEAST} to {MOST}, such as 50 or 0.5"
    ),
    "burst": _number_problems(
        "burst", 1, lambda value: isinstance(value, int), f"a whole number of calls from 1 to {MOST}, such as 100"
    ),
    "policies": _policies_problems,
    "partition": RULE_CHECKS["partition"],
    "namespace": RULE_CHECKS["namespace"],
}
