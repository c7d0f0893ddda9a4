"""The failures of one type's resources, by key, for the lists of its resources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headway.base import bounded, give_way
from headway.page._host import PageHost
from headway.resource import Key, Kind

SHOWN = 20
"""The number of failures of one resource that are shown. Each is of another controller or process."""
_LONGEST = 160
_TURN = 200
"""The number of failures to look at between two turns: some two milliseconds."""


async def failing_of(host: PageHost, kind: Kind) -> Mapping[Key, list[dict[str, Any]]]:
    """Return the last failures of a type's resources, the latest failure of each resource first.

    The page doesn't know every failure. It has the first 1,000 failing keys of each controller in the server's process,
    and 10 changes that its mappers could not map. For a controller of another process, it has the 40 failures of its
    last answer. There may be hundreds of controllers, so this gives turns to other tasks.
    """
    found: dict[Key, list[tuple[float, dict[str, Any]]]] = {}
    for number, (key, at, shown) in enumerate(_every(host, kind), 1):
        found.setdefault(key, []).append((at, shown))
        if number % _TURN == 0:
            await give_way()
    newest = {}
    for number, (key, each) in enumerate(found.items(), 1):
        each.sort(key=lambda entry: entry[0], reverse=True)
        newest[key] = [shown for _, shown in each[:SHOWN]]
        if number % _TURN == 0:
            await give_way()
    return newest


def _every(host: PageHost, kind: Kind) -> Iterator[tuple[Key, float, dict[str, Any]]]:
    said = []
    for name, seen in host.seen.items():
        for failed in seen.status.not_done:
            if failed.id.type.unversioned == kind:
                yield failed.id.key, failed.at, _shown(name, failed.outcome, failed.error, failed.attempts)
        said += [(name, each) for each in seen.now.failing if each.outcome == "unmapped"]
    for other in host.others.seen:
        if other.of.now is not None and not other.of.gone:
            said += [(other.of.name, each) for each in other.of.now.failing]
    for name, each in said:
        ref = each.resource
        # Another process may send anything as a type.
        group, _, rest = ("" if ref is None else ref.type).partition(".")
        if ref is not None and (group, rest.rpartition(".")[2]) == kind:
            yield (
                (ref.partition, ref.namespace, ref.name),
                each.at,
                _shown(name, each.outcome, each.error, each.attempts),
            )


def _shown(controller: str, outcome: str, error: str, attempts: int) -> dict[str, Any]:
    texts = {"controller": controller, "outcome": outcome, "error": error}
    return {name: bounded(text, _LONGEST) for name, text in texts.items()} | {"attempts": attempts}
