"""The context variables of a worker: what one reconcile sets is not visible to the next one."""

from __future__ import annotations

import decimal
from contextvars import ContextVar

import structlog
import trio
import trio.testing

import headway
from headway import field

TENANT: ContextVar[object] = ContextVar("tenant", default="nobody")


@headway.message
class Note:
    """A payload."""

    text: str = field(1)


class Incomparable:
    """Like an array of numpy, which has no truth value."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value is ambiguous")

    __hash__ = None  # type: ignore[assignment]


async def test_reconcile_does_not_see_what_the_one_before_has_set(autojump_clock: trio.testing.MockClock) -> None:
    """However it ended: the variables are as they were where the engine was opened."""
    assert autojump_clock.autojump_threshold == 0
    app = headway.App("contexts")
    type = app.type("contexts", "v1", "Note", Note)
    seen: list[tuple[str, object, object, decimal.Decimal]] = []

    async def child() -> None:
        seen.append(("child", TENANT.get(), {}, decimal.Decimal(0)))

    @app.controller(manages=type, deadline=2.0)
    async def notes(_: headway.Runtime, request: headway.Request[Note]) -> None:
        name = request.id.name
        third = decimal.Decimal(1) / decimal.Decimal(3)
        seen.append((name, TENANT.get(), structlog.contextvars.get_contextvars(), third))
        TENANT.set(Incomparable() if name == "array" else name)
        structlog.contextvars.bind_contextvars(tenant=name)
        decimal.setcontext(decimal.Context(prec=2))
        if request.attempt > 1:
            return
        if name == "fails":
            raise ValueError(name)
        if name == "late":
            await trio.sleep_forever()
        if name == "swallows":
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)

    TENANT.set("opener")
    async with headway.open_engine("memory:", app, report=headway.events.ignore) as engine:
        for name in ("plain", "fails", "late", "swallows", "array", "last"):
            await engine.client.create(type.new(name))
            await engine.wait_idle()
    third = decimal.Context().divide(1, 3)
    reconciles = [each for each in seen if each[0] != "child"]
    assert [name for name, *_ in reconciles].count("fails") == 2
    assert {(tenant, len(str(bound)), value) for _, tenant, bound, value in reconciles} == {("opener", 2, third)}
    # The tasks of a reconcile have its variables.
    assert [tenant for name, tenant, *_ in seen if name == "child" and isinstance(tenant, str)] == ["plain", "last"]
