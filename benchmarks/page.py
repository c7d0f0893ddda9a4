"""`page`: the live page of an engine with 100,000 resources, against a plain loop over the same resources.

Measured: one overview for a reader (the look at all controllers, and its JSON), and a search through all resources for
a text that only the last one's name contains, in as many requests as the bound of each makes necessary. Every request
passes the guard of an access file, and its rows are checked for what their reader may read.

Against: a plain loop that looks for the same text in the names of the same resources, in the order of their keys.

Both are per resource. The search in pieces reads the store piece by piece, and lets other tasks run in between.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import trio

import headway
from benchmarks._harness import Row, Scenario
from benchmarks._primed import filled, one_type
from headway.access import Access, Audit, Authorizer, Guarded, Policy, Rule, TokenSet, new_token
from headway.events import ignore
from headway.http._bounds import HeldReply
from headway.http._call import Caller, unary
from headway.page import PageHost, PageService, StoreParts
from headway.page._overview import Visible, overview
from headway.page._search import ROWS, Search
from headway.page._service import SEARCH
from headway.resource import pb, resource_key
from headway.rpc import TOKEN_HEADER, Budget, Services
from headway.storage import MemoryBackend, Within
from headway.why import observer_of

BOUND = 8.0
"""The ratio depends on the processor. Where all names fit into its cache, the plain loop takes 46 ns a resource, and
the search 250 ns; where they don't, they take 380 and 1,000 ns.
"""


def measure(size: int, rounds: int) -> Row:
    """Show and search ``size`` resources."""
    ours, against = trio.run(_measured, size, rounds)
    return Row("page", ours / size * 1e6, against / size * 1e6, "us", BOUND)


async def _measured(size: int, rounds: int) -> tuple[float, float]:
    app, type = one_type()
    backend = MemoryBackend()
    await filled(backend, type, size)
    wanted = f"{size - 1:06}"
    async with headway.open_engine(backend, app, report=ignore) as engine:
        await engine.wait_idle()
        host = PageHost([app], observer_of(engine), app.registry, StoreParts(backend))
        ask = _reader(host, app)
        resources, _ = await backend.list(type.kind, Within())
        pairs = [
            (await _ours(host, ask, type, wanted), _plain(sorted(resources, key=resource_key), wanted))
            for _ in range(rounds)
        ]
    return statistics.median(pair[0] for pair in pairs), statistics.median(pair[1] for pair in pairs)


def _reader(host: PageHost, app: headway.App) -> Any:
    """Return a function that sends a search to the page with a token."""
    text, token = new_token(["reader"])
    policy = Policy("reader", [Rule(verbs=["view", "observe"], type="*", partition="*", namespace="*")])
    access = Authorizer(Access([policy], TokenSet([token])))
    service = Guarded(lambda caller: PageService(host, app.registry, caller), access, app.registry, Audit(ignore))
    services, caller = Services(service), Caller({TOKEN_HEADER: text}, None)

    def failed(_: str, error: BaseException) -> None:
        raise error

    async def ask(search: Search) -> Any:
        async def requested() -> Search:
            return search

        reply = HeldReply(Budget(1 << 30))
        return await unary(services, SEARCH, caller, requested, failed, timeout=600, reply=reply)

    return ask


async def _ours(host: PageHost, ask: Any, type: Any, wanted: str) -> float:
    begin = time.perf_counter()
    await host.look()
    names = frozenset(each.name for each in host.registry)
    shown = overview(host, Visible(frozenset(host.seen), names, names), list(host.registry))
    assert json.dumps(shown)
    cursor, rows = "", []
    while True:
        answer = await ask(Search(type.name.message(), "", "", wanted, "", "", cursor, ROWS))
        rows += answer["rows"]
        if not (cursor := answer.get("cursor", "")):
            break
    seconds = time.perf_counter() - begin
    assert [each["name"] for each in rows] == [f"note-{wanted}"]
    return seconds


def _plain(resources: list[pb.Resource], wanted: str) -> float:
    begin = time.perf_counter()
    found = [each for each in resources if wanted in each.id.name]  # type: ignore[union-attr]  # stored ids are whole
    seconds = time.perf_counter() - begin
    assert len(found) == 1
    return seconds


SCENARIO = Scenario("page", BOUND, measure, size=100_000, rounds=9, quick=20_000)
