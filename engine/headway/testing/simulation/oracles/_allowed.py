"""The allowed differences between right runs: those that the scenario declares, and randomness in the program. Pure.

A declaration is one of ``Account``, ``Account ada``, ``Account.login``, ``names(Account)``, ``order(Account.port)``,
``order(Account)``, ``outside``, ``outside.mails`` and ``order(outside.ports)``.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from headway.errors import DeclarationError
from headway.resource import Key, Kind, ResourceType, did_you_mean
from headway.testing.simulation.oracles._oracles import OWN_PARTS

OUTSIDE = "outside"
_FORM = re.compile(r"(?:(names|order)\((.+)\)|(.+))\Z")


@dataclasses.dataclass(frozen=True, slots=True)
class Allowed:
    """The differences that don't count as findings.

    Attributes:
        declared: the declarations of the scenario.
        random: the fields that differ between two runs of the same schedule, as (kind, path).
        drawn: the kinds whose names differ between two runs of the same schedule.
        random_outside: true if the world outside differs between two runs of the same schedule.
    """

    declared: frozenset[str] = frozenset()
    random: frozenset[tuple[Kind, str]] = frozenset()
    drawn: frozenset[Kind] = frozenset()
    random_outside: bool = False

    def resource(self, kind: Kind, name: str) -> bool:
        """Return True if everything about a resource may differ."""
        return kind[1] in self.declared or f"{kind[1]} {name}" in self.declared

    def field(self, kind: Kind, path: str) -> bool:
        """Return True if a field, or a part of the resource that contains it, may differ."""
        return any(f"{kind[1]}.{each}" in self.declared for each in _prefixes(path))

    def order(self, kind: Kind, path: str = "") -> bool:
        """Return True if the values of a field, or else of whole resources, may be given to others."""
        return any(f"order({kind[1]}{'.' + each if each else ''})" in self.declared for each in ("", *_prefixes(path)))

    def any_order(self, kind: Kind) -> bool:
        """Return True if the values of any field of a kind may be given to others."""
        return any(each.startswith((f"order({kind[1]})", f"order({kind[1]}.")) for each in self.declared)

    def names(self, kind: Kind) -> bool:
        """Return True if the names of a kind's resources may differ."""
        return kind in self.drawn or f"names({kind[1]})" in self.declared

    def outside(self, path: str = "") -> bool:
        """Return True if the world outside, or this part of it, may differ."""
        return OUTSIDE in self.declared or any(f"{OUTSIDE}.{each}" in self.declared for each in _prefixes(path))

    def order_outside(self, path: str) -> bool:
        """Return True if the values in a part of the world outside may be given to others."""
        return any(f"order({OUTSIDE}{'.' + each if each else ''})" in self.declared for each in ("", *_prefixes(path)))


def _prefixes(path: str) -> Iterable[str]:
    parts = path.replace("(", "").replace(")", "").split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1) if path]


def check_declared(may_differ: Iterable[str], types: Iterable[ResourceType[Any]], outside: Any) -> None:
    """Check that every declaration names something that the program has. ``outside`` is its state at the end, or None.

    Raises:
        DeclarationError: for the first declaration that is invalid. It lists the valid names.
    """
    kinds = {type.name.kind: type for type in types}
    for each in may_differ:
        found = _FORM.match(each)
        if found is None:
            raise _refused(each, "it is empty", "'Account.login'")
        form, what = found[1] or "", found[2] or found[3]
        # A resource's name may contain dots.
        named, dot, path = (what, "", "") if " " in what else what.partition(".")
        if named == OUTSIDE:
            _check_outside(each, path, outside)
            continue
        kind, space, name = named.partition(" ")
        if kind not in kinds:
            there = [*kinds, *([OUTSIDE] if outside is not None else [])]
            raise _refused(each, f"the program has no type {kind!r}{did_you_mean(kind, there)}", *there)
        if space:
            if form or not name:
                raise _refused(each, "a single resource is declared as a whole", f"{kind} NAME")
        elif dot:
            if form == "names":
                raise _refused(each, "names() expects a type", f"names({kind})")
            _check_path(each, kind, path, kinds[kind].payload)


def check_names(may_differ: Iterable[str], seen: Collection[tuple[Kind, Key]]) -> None:
    """Check that every resource that is declared by its name has existed in some run.

    Raises:
        DeclarationError: for the first one that has not. It lists the resources of its type.
    """
    for each in may_differ:
        kind, _, name = each.partition(" ")
        names = sorted({key[2] for of, key in seen if of[1] == kind})
        if name and name not in names:
            raise _refused(each, f"no {kind} {name!r} existed in any schedule", *(f"{kind} {there}" for there in names))


def _check_outside(declared: str, path: str, outside: Any) -> None:
    if outside is None:
        raise _refused(declared, "no outside= was given", "a type of the program, or outside= as well")
    there = outside
    for part in filter(None, path.split(".")):
        if not isinstance(there, Mapping) or part not in map(str, there):
            parts = [f"{OUTSIDE}.{key}" for key in there] if isinstance(there, Mapping) else [OUTSIDE]
            raise _refused(declared, f"the world outside has no {part!r}", *parts)
        there = next(value for key, value in there.items() if str(key) == part)


def _check_path(declared: str, kind: str, path: str, payload: Any) -> None:
    first, _, rest = path.partition(".")
    here = {field.name: field for field in dataclasses.fields(payload)} if dataclasses.is_dataclass(payload) else {}
    if first in here:
        if rest and isinstance(payload, type):
            inner = _message_of(typing.get_type_hints(payload).get(first))
            if inner is None:
                raise _refused(declared, f"{kind}.{first} is not a message", f"{kind}.{first}")
            _check_path(declared, f"{kind}.{first}", rest, inner)
    elif "." in kind or first not in OWN_PARTS:
        there = [*here, *(() if "." in kind else OWN_PARTS)]
        text = f"{kind} has no field {first!r}{did_you_mean(first, there)}"
        raise _refused(declared, text, *(f"{kind}.{each}" for each in there))


def _message_of(hint: Any) -> Any:
    """Return the message class in a field's annotation, which may be optional."""
    return next((each for each in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(each)), None)


def _refused(declared: str, problem: str, *there: str) -> DeclarationError:
    return DeclarationError(f"may_differ={declared!r}: {problem}: expected {', '.join(there) or 'nothing'}")
