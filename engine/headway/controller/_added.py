"""The definition of a controller in one process, with the watches that its runs add (`Runtime.watch`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import Any

from headway.base import repr_text
from headway.cache import CachedType, stored_type
from headway.controller._checks import forms_problems, needs_problem
from headway.controller._definition import Definition
from headway.errors import DeclarationError, NotDeclared
from headway.mapper import Watch, changed_captures, same_watch
from headway.resource import Kind, Registry, ResourceType

MOST_ADDED = 100
"""The number of watches that the runs of one controller may add. Each addition ends a run."""

_FORM = "await rt.watch(headway.watch(ACCOUNT, headway.mappers.owner()))"


class GrowingDefinition:
    """A controller's definition and the watches added to it. They are kept as long as the process runs the controller.

    Attributes:
        current: the definition with all watches added so far.
    """

    def __init__(self, declared: Definition, registry: Registry) -> None:
        self.current = self._declared = declared
        self._registry = registry

    @property
    def added(self) -> tuple[Watch[Any], ...]:
        """The added watches, in order."""
        return tuple(watch for type, watch in self.current.watches.items() if type not in self._declared.watches)

    def lacking(self, given: Sequence[object]) -> list[Watch[Any]]:
        """Return the given watches that `current` lacks.

        Raises DeclarationError if they cannot be added, and NotDeclared if the controller declares ``reads`` that lack
        their types.
        """
        lacking = self._new(given)
        if lacking:
            self._check_number(lacking)
            self._with(lacking)
        return lacking

    def may_have(self, type: CachedType[Any]) -> bool:
        """Return True unless another form of the type is managed or watched by now."""
        return all(each is type or each.name != type.name for each in self.current.types)

    def add(self, watches: Sequence[Watch[Any]]) -> None:
        """Add watches that `lacking` has returned."""
        self.current = self._with(watches)

    def _new(self, given: Sequence[object]) -> list[Watch[Any]]:
        if not given:
            raise DeclarationError(f"rt.watch expects a watch, but got none: {_FORM}")
        watches = dict(self.current.watches)
        lacking: list[Watch[Any]] = []
        for each in given:
            if not isinstance(each, Watch):
                raise DeclarationError(f"rt.watch expects headway.watch(TYPE, mapper), not {repr_text(each)}: {_FORM}")
            known = watches.get(each.type)
            if known is None:
                watches[each.type] = each
                lacking.append(each)
            elif not same_watch(known, each):
                names = ", ".join(map(repr, changed_captures(known, each)))
                captures = f", which captures another value of {names}" if names else ""
                raise self._refuse(
                    f"it already watches {known}, and the watch given now is another one, {each}{captures}. Pass an "
                    "equal watch each time: one whose functions capture nothing that differs between calls. To map "
                    "one type in two ways, combine the mappers with headway.mappers.union"
                )
        return lacking

    def _check_number(self, lacking: Sequence[Watch[Any]]) -> None:
        number = len(self.added) + len(lacking)
        if number > MOST_ADDED:
            raise self._refuse(
                f"its runs would have added {number} watches, and may add {MOST_ADDED}: declare them, "
                "@app.controller(..., watches=[...])"
            )

    def _with(self, watches: Sequence[Watch[Any]]) -> Definition:
        reads = self._declared.reads
        for each in watches:
            type = stored_type(each.type)
            if type.name not in self._registry or self._registry.resolve(type.name) is not type:
                raise self._refuse(
                    f"{type.name} is not a type of this program's apps: declare it with app.type(...) before "
                    "open_engine or open_workers"
                )
            if reads is not None and type.kind not in self._kinds(reads):
                raise NotDeclared(
                    f"rt.watch: controller {self._declared.name} doesn't declare that it reads {type.name}: add the "
                    f"type, @app.controller(..., reads=[..., {type.name.kind.upper()}])"
                )
        more = {each.type: each for each in watches}
        made = dataclasses.replace(self.current, watches=MappingProxyType({**self.current.watches, **more}))
        for problem in (*forms_problems(made), needs_problem(made)):
            if problem:
                raise self._refuse(problem)
        return made

    def _kinds(self, reads: Iterable[ResourceType[Any]]) -> set[Kind]:
        """Return the kinds that the controller declares that it uses."""
        used = [*reads, *map(stored_type, self._declared.types), *(self._declared.writes or ())]
        return {type.kind for type in used}

    def _refuse(self, problem: str) -> DeclarationError:
        return DeclarationError(f"rt.watch: controller {self._declared.name!r}: {problem}")
