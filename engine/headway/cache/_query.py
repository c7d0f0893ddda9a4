"""Queries: named functions that read a controller's cache and declare their needs. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from headway._functions import plain_problem
from headway._keywords import check_keywords
from headway.cache._cached_type import CachedType
from headway.cache._indexes import Index
from headway.cache._projection import Projection
from headway.errors import DeclarationError
from headway.resource import ResourceType

if TYPE_CHECKING:
    from headway.cache._reader import CacheReader

A = ParamSpec("A")
R_co = TypeVar("R_co", covariant=True)

_FORM = "@headway.query(TEAM, ACCOUNTS_BY_TEAM)"


class Query(Generic[A, R_co]):
    """A named query. Created by `query` and called with ``rt.cache.query(members_of, ...)``.

    Attributes:
        name: the function's name.
        needs: the types and indexes that a controller with this query must have.
    """

    __slots__ = ("function", "name", "needs")

    def __init__(
        self,
        function: Callable[Concatenate[CacheReader, A], R_co],
        needs: tuple[CachedType[Any] | Index[Any, Any], ...],
    ) -> None:
        self.name: str = getattr(function, "__name__", repr(function))
        self.function = function
        self.needs = needs

    def __repr__(self) -> str:
        return f"<Query {self.name}>"


@check_keywords
def query(
    *needs: CachedType[Any] | Index[Any, Any],
) -> Callable[[Callable[Concatenate[CacheReader, A], R_co]], Query[A, R_co]]:
    """``@headway.query(TEAM, ACCOUNTS_BY_TEAM)`` makes a query of ``def members_of(cache, team: str) -> ...``.

    The function receives a cache to read (or a view, if the view is queried) and the caller's arguments. A controller
    declares it with ``queries=[members_of]``, and must manage, watch or index what the query needs. Raises
    DeclarationError.
    """
    for need in needs:
        if not isinstance(need, ResourceType | Projection | Index):
            raise DeclarationError(f"a query needs types and indexes, not {need!r}: {_FORM}")

    def declare(function: Callable[Concatenate[CacheReader, A], R_co]) -> Query[A, R_co]:
        problem = plain_problem(function, 1, "a cache first", why="a query must not wait", may_yield=True, more=True)
        if problem:
            raise DeclarationError(f"the function of a query {problem}: {_FORM}")
        return Query(function, needs)

    return declare
