"""Joins the lists of what is stuck in several processes. Each process has a fair share of what is kept. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from headway._gen.headway.observe.v1 import StuckItem, StuckList
from headway.base import by_turns, in_turn
from headway.resource import Kind

STUCK = 1000
"""The number of items in an answer about what is stuck."""


def shortened(items: Sequence[StuckItem]) -> list[StuckItem]:
    """Return the oldest items of each controller and type, in the order of their age."""
    return joined([items])


def joined(lists: Iterable[Sequence[StuckItem]]) -> list[StuckItem]:
    """Return the oldest items of each process, controller and type, in the order of their age.

    A viewer may see only some of the types, and a process may send anything. So a long list of one type or of one
    process must not crowd out the others.
    """
    kept = islice(in_turn(_by_turns(each) for each in lists), STUCK)
    return sorted(kept, key=lambda item: item.since)


def _by_turns(items: Sequence[StuckItem]) -> Iterator[StuckItem]:
    return by_turns(sorted(items, key=lambda item: item.since), lambda item: (item.controller, _type_of(item)))


def said_by(process: str, controllers: Mapping[str, Kind], said: StuckList, types: Collection[str] | None) -> StuckList:
    """Return the part of a process's list that is about its own controllers, and about ``types`` unless that is None.

    A standby counts once for each controller, and only for the type that the process has said the controller manages.
    """
    items = [replace(each, process=process) for each in said.items if each.controller in controllers]
    standbys = {
        each.controller: replace(each, process=process)
        for each in said.standbys
        if _kind(each.manages) == controllers.get(each.controller) and (types is None or each.manages in types)
    }
    said = replace(said, items=items, standbys=list(standbys.values()))
    if types is not None and any(_type_of(item) not in types for item in items):
        # A process of an earlier version answers for all types, so its count of further items is useless here.
        said = replace(said, items=[each for each in items if _type_of(each) in types], more=0)
    return said


def _type_of(item: StuckItem) -> str:
    return "" if item.resource is None else item.resource.type


def _kind(type: str) -> Kind:
    group, _, rest = type.partition(".")
    return group, rest.rpartition(".")[2]
