"""A shop with orders, invoices and parcels, for the tests of the page and the pictures of its guide."""

from __future__ import annotations

import headway
from headway import field, mappers
from headway.resource import Scope, resource_key
from headway.storage import Backend, Put


@headway.message(name="shop.Order")
class Order:
    customer: str = field(1)
    items: list[str] = field(2)


@headway.message(name="shop.Invoice")
class Invoice:
    order: str = field(1)
    cents: int = field(2)


@headway.message(name="shop.Parcel")
class Parcel:
    order: str = field(1)
    depot: str = field(2)


@headway.message(name="shop.Depot")
class Depot:
    city: str = field(1)
    open: bool = field(2)


app = headway.App("shop")
ORDER = app.type("shop", "v1", "Order", Order, columns={"CUSTOMER": "customer", "ITEMS": "items"})
INVOICE = app.type("shop", "v1", "Invoice", Invoice, columns={"CENTS": "cents"})
PARCEL = app.type("shop", "v1", "Parcel", Parcel)
DEPOT = app.type("shop", "v1", "Depot", Depot, scope=Scope.CLUSTER)

# A failure is retried after minutes, so that a test sees it as it was.
PATIENT = headway.Backoff(base=120, maximum=300)


@app.controller(manages=ORDER, watches=[headway.watch(INVOICE, mappers.owner())], backoff=PATIENT)
async def billing(rt: headway.Runtime, request: headway.Request[Order]) -> None:
    """Keep an invoice for each order."""
    order = rt.resource(request)
    if order is None:
        return
    async with rt.conditions(order, failure="Billed") as conditions, rt.outputs(INVOICE, owner=order) as wanted:
        if not order.data.customer:
            raise ValueError(f"order {order.name} has no customer to send an invoice to")
        await wanted.apply(order.name, Invoice(order=order.name, cents=900 * len(order.data.items)))
        conditions.set("Billed", True)


@app.controller(
    manages=PARCEL,
    watches=[headway.watch(ORDER, mappers.same_name())],
    reads=[DEPOT],
    writes=[PARCEL],
    backoff=PATIENT,
)
async def shipping(rt: headway.Runtime, request: headway.Request[Parcel]) -> None:
    """Keep a parcel for each order."""
    order = rt.cache.get(ORDER, request.id.name)
    if order is not None and order.data.customer and rt.resource(request) is None:
        await rt.client.apply(PARCEL.new(order.name, Parcel(order=order.name, depot="north"), owner=order))


@app.controller(
    manages=DEPOT, reads=[PARCEL], watches=[headway.watch(PARCEL, mappers.reference(lambda parcel: parcel.data.depot))]
)
async def depots(rt: headway.Runtime, request: headway.Request[Depot]) -> None:
    """Count the parcels of a depot."""


async def store_depots(backend: Backend, count: int) -> None:
    """Store depots without an engine, as one commit for each thousand."""
    made = [DEPOT.new(f"depot-{number:06}", Depot(city="Oslo")).message() for number in range(count)]
    for number, each in enumerate(made):
        assert each.id is not None
        each.id.uid = each.generation = f"{number:026}"
    for begin in range(0, count, 1000):
        puts = [Put(DEPOT.kind, resource_key(each), each, "") for each in made[begin : begin + 1000]]
        await backend.commit(puts)
