"""Checks of a program's values against annotations, which say what is allowed. No I/O."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, cast, get_args, get_origin

from headway.base._text import repr_text

_HIGHEST = 2**62
"""A bound above this is one of its representation, and not worth a mention."""


class Range(NamedTuple):
    """The allowed numbers of an argument: ``Annotated[int, Range(1)]``.

    Attributes:
        least, most: the bounds. Without ``most`` the number must be finite; `math.inf` also allows infinity.
        unit: what the number counts, such as "seconds".
        above, below: exclude the bound itself.
    """

    least: float = -math.inf
    most: float | None = None
    unit: str = ""
    above: bool = False
    below: bool = False

    def has(self, given: float) -> bool:
        """Return True if a number is allowed."""
        is_low = given <= self.least if self.above else given < self.least
        is_high = given >= math.inf if self.most is None else given >= self.most if self.below else given > self.most
        return not (is_low or is_high or given != given)

    def words(self, number: str) -> str:
        """Return the words for the allowed numbers: ``a whole number from 1 to 5``."""
        of = f"{number} of {self.unit}" if self.unit else number
        if self.most is not None and self.most < _HIGHEST:
            return f"{of} from {self.least:g} to {'below ' * self.below}{self.most:.15g}"
        finite = of.replace("a number", "a finite number") if self.most is None else of
        if self.least == -math.inf:
            return finite
        return f"{finite} {'above' if self.above else '>='} {self.least:g}"


Fraction = Annotated[float, Range(0, 1, below=True)]
Count = Annotated[int, Range(0)]
Positive = Annotated[int, Range(1)]
Endless = Annotated[float, Range(0, math.inf)]
"""A number that may be infinite."""
Seconds = Annotated[float, Range(0, unit="seconds")]
Delay = Annotated[float, Range(0, unit="seconds", above=True)]
"""A number of seconds that may not be 0."""

_NUMBERS = {int: "a whole number", float: "a number"}
_LISTS = (list, Sequence, Collection, Iterable, Set)
_OPEN = (type, object, Any, Callable)
_WORDS = {
    "NoneType": "None",
    "str": "a string",
    "bool": "True or False",
    "Mapping": "a mapping",
    "Hashable": "hashable",
    "PathLike": "a path",
    "ResourceType": "a resource type from app.type(...)",
    "CachedType": "a type from app.type(...)",
    # A scope and a projection are forms of a type, and of a resource.
    "ScopedType": "",
    "Projection": "",
    "Projected": "",
    "Resource": "a resource",
    "ResourceId": "an id",
    "Index": "an index from headway.indexes.by(...)",
}
"""The words for classes, by their names. Others are shown by their names."""


def mismatch(wanted: Any, given: object) -> tuple[str, Any, object] | None:
    """Return the first part of a value that an annotation does not allow, or None.

    The result is the path to the part, such as ``[2]``, the annotation of the part, and the part. Functions, type
    variables, protocols, classes of classes and the items of iterators are not checked.
    """
    if type(given) is wanted:
        return None
    kind, of = get_origin(wanted) or wanted, get_args(wanted)
    if kind is Annotated:
        bounds = [each for each in of[1:] if isinstance(each, Range)]
        is_right = mismatch(of[0], given) is None and all(each.has(cast("float", given)) for each in bounds)
        return None if is_right else ("", wanted, given)
    if kind in (Union, UnionType):
        if any(mismatch(each, given) is None for each in of):
            return None
        # A member of a list says more than the list.
        return next((found for each in of if (found := mismatch(each, given)) and found[0]), ("", wanted, given))
    if kind is Literal:
        return None if any(given == each and type(given) is type(each) for each in of) else ("", wanted, given)
    if kind in (None, NoneType):
        return None if given is None else ("", NoneType, given)
    if kind in _NUMBERS:
        numbers = int | float if kind is float else int
        return None if isinstance(given, numbers) and not isinstance(given, bool) else ("", wanted, given)
    if not isinstance(kind, type) or kind in _OPEN or _is_structural(kind):
        return None
    if not isinstance(given, kind) or (kind in _LISTS and isinstance(given, str | bytes | Mapping)):
        return "", wanted, given
    if kind in _LISTS and isinstance(given, Collection):
        return _first((f"[{number}]", of[0], each) for number, each in enumerate(given)) if of else None
    if issubclass(kind, Mapping) and isinstance(given, Mapping) and of:
        keys = ((f" key {repr_text(key)}", of[0], key) for key in given)
        return _first(keys) or _first((f"[{key!r}]", of[1], each) for key, each in given.items())
    return None


def _is_structural(kind: type) -> bool:
    return getattr(kind, "_is_protocol", False) and not getattr(kind, "_is_runtime_protocol", False)


def _first(parts: Iterable[tuple[str, Any, object]]) -> tuple[str, Any, object] | None:
    for path, wanted, given in parts:
        if found := mismatch(wanted, given):
            return path + found[0], found[1], found[2]
    return None


def words(wanted: Any) -> str:
    """Return the words for what an annotation allows: ``a string``."""
    kind, of = get_origin(wanted) or wanted, get_args(wanted)
    if kind is Annotated:
        ranges = [each for each in of[1:] if isinstance(each, Range)]
        return ranges[-1].words(_NUMBERS[of[0]]) if ranges else words(of[0])
    if kind in (Union, UnionType):
        return " or ".join(text for each in of if each is not NoneType and (text := words(each)))
    if kind is Literal:
        return " or ".join(map(repr, of))
    if kind in _NUMBERS:
        return _NUMBERS[kind]
    if kind in _LISTS:
        return "a list of strings" if of == (str,) else "a list"
    name = kind.__name__
    return _WORDS.get(name, f"{'an' if name[0] in 'AEIOU' else 'a'} {name}")


def value_problem(name: str, wanted: Any, given: object, example: str = "") -> str | None:
    """Return the problem of a value that its annotation does not allow, or None."""
    found = mismatch(wanted, given)
    if found is None:
        return None
    path, wanted, given = found
    right = example and f", {'as in' if path else 'such as'} {example}"
    return f"{name}{path} must be {words(wanted)}{right}, not {repr_text(given)}"
