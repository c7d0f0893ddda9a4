"""The overview of the controllers and types, as JSON, reduced to what one caller may observe."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, get_args

from headway._gen.headway.observe.v1 import ControllerNow, Failing, Ref, StuckList
from headway.base import bounded, by_turns, in_turn, wall_time
from headway.graphs import Edge, Graph, Sizes, placed
from headway.observe import state_text
from headway.page._host import PageHost, Seen
from headway.page._others import Other, name_of
from headway.resource import ResourceType, TypeName, is_builtin
from headway.run import Phase

FAILING = 20
"""The number of failing resources that the overview lists."""
MOST_FAILING = 40
"""The number of failing resources of a controller of another process that are looked at."""
STUCK = 50
"""The number of stuck items that the overview lists."""
DRAWN = 100
"""The number of controllers that the graph has only because other processes run them."""
_LONGEST = 500
_SIZES = Sizes(width=lambda _: 216, height=68, row=46, gap=64, margin=8)
"""Each box of the graph has room for a name and two lines of numbers."""


class Visible(NamedTuple):
    """The rights of a caller: visible controllers, known types, and the types whose numbers they may see.

    Attributes:
        whole: True if they may see the numbers of all types that there are. A caller does not know of every type.
        reads_lease: returns True if they may see who holds the lease of this name.
    """

    controllers: frozenset[str]
    known: frozenset[TypeName]
    observed: frozenset[TypeName]
    whole: bool = False
    reads_lease: Callable[[str], bool] = lambda _: True


def overview(host: PageHost, visible: Visible, types: Iterable[ResourceType[Any]]) -> dict[str, Any]:
    """Return the state of the controllers at the last look, of the types, and the resources that fail."""
    seen = {name: each for name, each in host.seen.items() if name in visible.controllers}
    return {
        "at": host.at,
        "stale": host.stale_since,
        "controllers": [_own(host, name, each, visible) for name, each in seen.items()],
        "types": [
            _type(host, each, seen.values(), visible)
            for each in types
            if each.name in visible.known and each.name.group != "internal"
        ],
        "failing": failing(host, seen, visible),
        "elsewhere": [_elsewhere(each, type, visible) for each, type in _others(host, visible)],
        # The number would show other callers that there are controllers which they may not see.
        "elsewhereMore": host.others.more if visible.whole else 0,
        "absent": [
            {"name": each.controller, "since": each.since}
            for each in host.observe.absent
            if each.manages.unversioned in {type.unversioned for type in visible.observed}
        ],
        "stuck": stuck(host.others.stuck, visible),
        "refused": [each._asdict() for each in host.refused()] if visible.whole else [],
    }


def stuck(found: StuckList, visible: Visible) -> dict[str, Any]:
    """Return the work that has been pending for long, the oldest first, of the types that a caller may observe."""
    observed = {str(each) for each in visible.observed}
    items = [each for each in found.items if each.resource is not None and each.resource.type in observed]
    unseen = found.more if visible.whole else 0
    return {
        "items": [
            _fields(each, "controller process resource state since attempt error line") for each in items[:STUCK]
        ],
        "more": len(items[STUCK:]) + unseen,
        "unreachable": [bounded(each, _LONGEST) for each in found.unreachable[:STUCK]],
    }


def _others(host: PageHost, visible: Visible) -> list[tuple[Other, TypeName]]:
    """Return the controllers of other processes that a caller may observe, with the types that they manage."""
    observed = {each.unversioned: each for each in visible.observed}
    return [(each, observed[each.of.kind]) for each in host.others.seen if each.of.kind in observed]


def _controller(
    now: ControllerNow, manages: str, rate: float | None, failures: float | None, visible: Visible
) -> dict[str, Any]:
    """Return the numbers of a controller in any process."""
    numbers = "queued running resting scheduled not_done unmapped mapping_failed lag restarts"
    return _fields(now, f"name process phase ready writes_held {numbers}") | {
        "manages": manages,
        "leader": bounded(now.leader, _LONGEST) if visible.reads_lease(now.name) else "",
        "seconds": round(now.seconds, 1),
        "state": state_text(now),
        "paused": bounded(now.pause_reason, _LONGEST) if now.paused else None,
        "problem": bounded(now.cause, _LONGEST),
        "rate": rate,
        "failures": failures,
        "oldest": round(now.oldest, 1),
    }


def _elsewhere(other: Other, type: TypeName, visible: Visible) -> dict[str, Any]:
    """Return a controller of another process."""
    of, now = other.of, other.of.now or ControllerNow()
    now = dataclasses.replace(
        now, name=of.name, process=of.process, phase=now.phase if now.phase in get_args(Phase) else ""
    )
    made = _controller(now, str(type), other.rate, other.failures, visible)
    if of.gone:
        made["state"] = "gone"
    elif of.now is None:
        made["state"] = "does not answer"
    return made | {"own": False, "gone": of.gone or None, "answers": of.now is not None, "priming": []}


def _own(host: PageHost, name: str, seen: Seen, visible: Visible) -> dict[str, Any]:
    """Return a controller of the server's process."""
    status, definition = seen.status, seen.supervisor.definition
    now = dataclasses.replace(seen.now, process=seen.supervisor.process)
    manages = "" if definition is None else str(definition.manages.name)
    made = _controller(now, manages, seen.rate, seen.failures, visible) | {
        # Headway's own controllers are not in the graph of the apps.
        "own": name not in host.graph.controllers,
        "pausedSeconds": round(status.paused_seconds, 1),
        "priming": [each for each in seen.priming if TypeName(*each["type"].rsplit(".", 2)) in visible.observed],
    }
    if all(each.type in visible.observed for each in status.types):
        # The text of a problem names types.
        made["problem"] = bounded(status.problem, _LONGEST)
    return made


def charted(host: PageHost, visible: Visible) -> dict[Hashable, str]:
    """Return the names in the ring of the controllers that a caller may observe, and their names on the page."""
    own: dict[Hashable, str] = {name: name for name in visible.controllers}
    return own | {name_of(each.of): f"{each.of.name} {each.of.process}" for each, _ in _others(host, visible)}


def drawn_elsewhere(host: PageHost, visible: Visible) -> dict[str, str]:
    """Return the controllers that only other processes run, with the types that they manage."""
    names = {
        each.of.name: str(type) for each, type in _others(host, visible) if each.of.name not in host.graph.controllers
    }
    return dict(sorted(names.items())[:DRAWN])


def _type(host: PageHost, type: ResourceType[Any], seen: Iterable[Seen], visible: Visible) -> dict[str, Any]:
    made: dict[str, Any] = {"type": str(type.name), "kind": type.name.kind, "scope": type.scope.name.lower()}
    # The apps' types come before Headway's own.
    made["own"] = is_builtin(type)
    if type.name not in visible.observed:
        return made
    statuses = [each for one in seen for each in one.status.types if each.type.unversioned == type.name.unversioned]
    # A part of a type says nothing about the whole.
    whole = [each for each in statuses if not each.scope and each.primed]
    # A count of the store is a little older than a cache.
    counted = None if host.counts is None else host.counts.get(type.kind, 0)
    return made | {
        "resources": max((each.resources for each in whole), default=counted),
        "undecodable": max((len(each.undecodable) for each in statuses), default=0),
        "cutOff": next((each.cut_off for each in statuses if each.cut_off), ""),
    }


def failing(host: PageHost, seen: Mapping[str, Seen], visible: Visible) -> list[dict[str, Any]]:
    """Return what fails in all processes, the newest first, of the types that the caller may observe.

    If there is too much, each process and each of its controllers has a fair share.
    """
    observed, now = {str(each) for each in visible.observed}, wall_time()

    def newest_of(every: Iterable[tuple[str, str, Failing]]) -> Iterator[tuple[str, str, Failing]]:
        found = [entry for entry in every if (of := entry[2].resource) is not None and of.type in observed]
        # Each controller has its turn, too: a thousand failures of one must not hide those of another.
        return by_turns(sorted(found, key=lambda entry: -min(entry[2].at, now)), lambda entry: entry[0])

    processes: dict[tuple[str, str], list[tuple[str, str, Failing]]] = {}
    for other, _ in _others(host, visible):
        if other.of.now is not None and not other.of.gone:
            said = processes.setdefault((other.of.caller, other.of.process), [])
            said += [(other.of.name, other.of.process, each) for each in other.of.now.failing[:MOST_FAILING]]
    own = [(name, "", each) for name, one in seen.items() for each in one.now.failing]
    # The processes take turns, and the server's own process comes first.
    first = islice(in_turn(map(newest_of, [own, *processes.values()])), FAILING)
    # The clock of a process may be wrong: what it says to have failed in the future has failed now.
    shown = [(name, process, dataclasses.replace(each, at=min(each.at, now))) for name, process, each in first]
    return [
        _fields(each, "resource outcome error attempts at")
        | {
            "controller": name,
            # Empty for the server's own process, which alone can be asked to retry.
            "process": bounded(process, _LONGEST),
            "until": each.until or None,
            # 0 if the work waits for a change, or if the process runs an earlier version, which does not send the time.
            "pendingSince": min(each.pending_since, now) or None,
        }
        for name, process, each in sorted(shown, key=lambda entry: entry[2].at, reverse=True)
    ]


def _fields(of: Any, names: str) -> dict[str, Any]:
    """Return these fields of a message under the page's names: ``not_done`` as ``notDone``.

    Their texts are cut, because another process may send any.
    """
    return {re.sub("_(.)", lambda found: found[1].upper(), name): _shown(getattr(of, name)) for name in names.split()}


def _shown(value: Any) -> Any:
    if isinstance(value, Ref):
        return _fields(value, "type partition namespace name")
    return bounded(value, _LONGEST) if isinstance(value, str) else value


def picture(graph: Graph, visible: Visible, elsewhere: Mapping[str, str]) -> dict[str, Any]:
    """Return the graph in pixels, without what the caller may not see.

    Args:
        elsewhere: the controllers that only other processes run, with the types that they manage.
    """
    known = {str(each) for each in visible.known}
    edges = [each for each in graph.edges if each.controller in visible.controllers and each.type in known]
    edges += [Edge(name, "manages", type) for name, type in elsewhere.items()]
    used = {each.type for each in edges}
    controllers = {name: each for name, each in graph.controllers.items() if name in visible.controllers}
    shown = dataclasses.replace(
        graph,
        types=tuple(sorted(used)),
        controllers=controllers | dict.fromkeys(elsewhere, ("controller", ())),
        edges=tuple(edges),
    )
    image = placed(shown.types, shown.controllers, shown.arrows(), _SIZES)
    return {
        "width": image.width,
        "height": image.height,
        "boxes": [
            {"name": name, "type": name in shown.types, "x": box.x, "y": box.y - _SIZES.height / 2, "width": box.width}
            for name, box in image.boxes.items()
        ],
        "boxHeight": _SIZES.height,
        "arrows": [each._asdict() for each in image.arrows],
    }
