"""The category of each method, and the tenancy of each request, as limits count them."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import headway
from headway._gen.headway.subscribe import v1 as subscribe_pb
from headway.access import Guarded
from headway.access._counted import CATEGORIES_OF, category_of, places_of
from headway.api import Method
from headway.page._search import Search
from headway.resource import Scope, pb
from tests.helpers.plain_types import Team

RESOURCES = ("headway.resource.v1.ResourceService", "hashicorp.consul.resource.ResourceService")


app = headway.App("staff")
TEAM = app.type("staff", "v1", "Team", Team)
SITE = app.type("staff", "v1", "Site", Team, scope=Scope.CLUSTER)
REGION = app.type("staff", "v1", "Region", Team, scope=Scope.PARTITION)


@pytest.mark.parametrize("service", RESOURCES)
def test_h13_methods_of_resources_have_the_categories_of_consul(service: str) -> None:
    """Consul counts a watch as a read. Here it has a category of its own."""
    assert {method: category_of(f"/{service}/{method}") for method in CATEGORIES_OF[service]} == {
        "Read": "read",
        "List": "read",
        "ListByOwner": "read",
        "MutateAndValidate": "read",
        "WatchList": "watch",
        "Write": "write",
        "WriteStatus": "write",
        "Delete": "write",
    }


async def test_every_method_behind_a_guard_has_a_category_or_is_never_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new method must be given a category. Otherwise a limit on reads might take a lease from its holder."""
    seen: set[str] = set()
    guarded = Guarded._guarded

    def noted(self: Guarded, path: str, handler: Method) -> Any:
        seen.add(path)
        return guarded(self, path, handler)

    monkeypatch.setattr(Guarded, "_guarded", noted)
    access = headway.access.Authorizer(headway.access.Access())
    async with headway.open_engine(
        "memory:", app, network=headway.Network(["127.0.0.1:0"], http="127.0.0.1:0", access=access)
    ):
        await trio.lowlevel.checkpoint()
    listed = {f"/{service}/{method}" for service, methods in CATEGORIES_OF.items() for method in methods}
    assert seen == listed


def test_n7_leases_and_what_processes_tell_each_other_are_never_limited() -> None:
    never = {path for path in map("/{}".format, _paths()) if category_of(path) is None}
    lease = {f"/headway.lease.v1.LeaseService/{name}" for name in _LEASE}
    assert lease <= never
    assert never - lease == {
        "/headway.store.v1.StoreService/Position",
        "/headway.observe.v1.ObserveService/Attend",
        "/headway.observe.v1.ObserveService/Answer",
    }


_LEASE = ("Acquire", "KeepAlive", "Release", "List", "Raise", "RecordSettled")


def _paths() -> list[str]:
    return [f"{service}/{method}" for service, methods in CATEGORIES_OF.items() for method in methods]


def tenancy(partition: str, namespace: str = "") -> pb.Tenancy:
    return pb.Tenancy(partition=partition, namespace=namespace)


def id(type: Any, given: pb.Tenancy | None) -> pb.Id:
    return pb.Id(name="core", type=type.name.message(), tenancy=given)


ALL = ("*", "*")
HOME = ("default", "default")


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (pb.ReadRequest(id=id(TEAM, tenancy("sales", "east"))), ("sales", "east")),
        (pb.ReadRequest(id=id(TEAM, None)), HOME),
        (pb.DeleteRequest(id=id(REGION, tenancy("sales", ""))), ("sales", "")),
        (pb.WriteStatusRequest(id=id(SITE, None)), ("", "")),
        (pb.WriteRequest(resource=pb.Resource(id=id(TEAM, tenancy("sales")))), ("sales", "default")),
        (pb.MutateAndValidateRequest(resource=pb.Resource(id=id(TEAM, None))), HOME),
        (pb.WriteRequest(resource=pb.Resource(id=id(TEAM, None), owner=id(TEAM, tenancy("a", "b")))), HOME),
        (pb.ListByOwnerRequest(owner=id(TEAM, tenancy("sales", "east"))), ("sales", "east")),
        (pb.ListRequest(type=TEAM.name.message(), tenancy=tenancy("*", "*")), ALL),
        (pb.ListRequest(type=TEAM.name.message()), HOME),
        (pb.WatchListRequest(type=TEAM.name.message()), ALL),
        (pb.WatchListRequest(type=TEAM.name.message(), tenancy=tenancy("", "")), HOME),
        (pb.WatchListRequest(type=SITE.name.message()), ("", "")),
        (pb.ReadRequest(), ("", "")),
        (pb.WriteRequest(), ("", "")),
        (None, ("", "")),
        (pb.ReadRequest(id=pb.Id(name="core", tenancy=tenancy("sales", "east"))), ("", "")),
        (pb.ReadRequest(id=pb.Id(type=pb.Type(kind="X"), tenancy=tenancy("y" * 99, "z"))), ("y" * 64, "z")),
    ],
    ids=str,
)
def test_tenancy_is_what_the_service_takes_the_request_to_mean(request_: Any, expected: tuple[str, str]) -> None:
    """An invalid request has one too, of bounded length: the caller may send anything."""
    assert places_of(request_, app.registry) == (expected,)


def subject(part: Any = None, type: Any = TEAM) -> Any:
    return subscribe_pb.Subject(type=type.name.message(), **(part or {"everything": subscribe_pb.Everything()}))


@pytest.mark.parametrize(
    ("subjects", "expected"),
    [
        ([subject()], (ALL,)),
        ([subject(type=SITE)], (("", ""),)),
        ([subject({"within": subscribe_pb.Within()})], (ALL,)),
        ([subject({"within": subscribe_pb.Within(tenancy=tenancy("sales"))})], (("sales", "default"),)),
        ([subject({"named": subscribe_pb.Named(name="core")})], (HOME,)),
        ([subscribe_pb.Subject(topic="rates", named=subscribe_pb.Named(name="EUR"))], (("", ""),)),
        (
            [
                subject({"named": subscribe_pb.Named(name="core", tenancy=tenancy("sales", "east"))}),
                subject(),
                subject({"within": subscribe_pb.Within(tenancy=tenancy("sales", "east"))}),
            ],
            (("sales", "east"), ALL),
        ),
    ],
    ids=str,
)
def test_subscription_is_about_each_place_of_its_subjects(subjects: Any, expected: Any) -> None:
    assert places_of(subscribe_pb.SubscribeRequest(subjects=subjects), app.registry) == expected


def test_search_of_the_page_is_about_what_it_looks_through() -> None:
    searched = Search(TEAM.name.message(), "sales", "", "core", "", "", "", 10)
    assert places_of(searched, app.registry) == (("sales", "*"),)
