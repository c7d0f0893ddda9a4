"""WS-1 to WS-4: the workloads that a selector chooses, and the services that choose a workload."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

import catalog
import headway.testing
from catalog.messages import WorkloadSelector
from catalog.selecting import selected_paths, selected_workloads, selects
from catalog.types import SERVICE, WORKLOAD
from tests.helpers.catalogs import service, workload

HERE = SERVICE.id("any")


@pytest.fixture
async def shot() -> AsyncIterator[headway.testing.OneShot]:
    async with headway.testing.one_shot(catalog.app, "endpoint-manager") as shot:
        yield shot


def chosen(
    shot: headway.testing.OneShot, prefixes: Sequence[str] = (), names: Sequence[str] = (), filter: str = ""
) -> list[str]:
    selector = WorkloadSelector(prefixes=list(prefixes), names=list(names), filter=filter)
    found = shot.runtime.cache.query(selected_workloads, HERE, selector)
    return [each.name for each in found]


async def test_ws1_union_of_names_and_prefixes_each_once_by_name(shot: headway.testing.OneShot) -> None:
    names = ["web", "api-10", "api-1", "api-2", "api", "apix", "db"]
    await shot.given(*(workload(name) for name in names))
    assert chosen(shot) == []
    assert chosen(shot, ["api-"]) == ["api-1", "api-10", "api-2"]
    assert chosen(shot, ["api-1", "api-"], ["web", "api-2", "nobody", "web"]) == ["api-1", "api-10", "api-2", "web"]
    assert chosen(shot, [], ["api-1"]) == ["api-1"]
    assert chosen(shot, ["API"], ["API-1"]) == []


async def test_ws1_empty_prefix_chooses_every_workload_of_the_tenancy(shot: headway.testing.OneShot) -> None:
    await shot.given(headway.NAMESPACE.new("app"), headway.PARTITION.new("west"))
    await shot.given(workload("a"), workload("b", namespace="app"), workload("c", partition="west"))
    assert chosen(shot, ["", "a", ""], ["b", "c"]) == ["a"]
    there = SERVICE.id("any", namespace="app")
    found = shot.runtime.cache.query(selected_workloads, there, WorkloadSelector(prefixes=[""]))
    assert [each.id for each in found] == [WORKLOAD.id("b", namespace="app", uid=found[0].uid)]


async def test_ws1_filter_applies_to_names_and_prefixes(shot: headway.testing.OneShot) -> None:
    await shot.given(
        workload("api-1", metadata={"color": "red"}),
        workload("api-2", metadata={"color": "blue"}),
        workload("web", metadata={"color": "red"}),
        workload("db"),
    )
    assert chosen(shot, ["api-"], ["web", "db"], "metadata.color == red") == ["api-1", "web"]
    assert chosen(shot, ["api-"], ["web", "db"], "metadata.color != red") == ["api-2", "db"]
    # W-24: a workload without the entry does not match.
    assert chosen(shot, [""], [], 'metadata.color matches ""') == ["api-1", "api-2", "web"]
    assert chosen(shot, [], [], "metadata.color == red") == []


async def test_ws4_invalid_filter_raises(shot: headway.testing.OneShot) -> None:
    await shot.given(workload("api"))
    with pytest.raises(ValueError, match="a filter reads only metadata"):
        chosen(shot, ["api"], filter="name == api")


def test_ws2_one_path_for_each_name_and_prefix() -> None:
    id = SERVICE.id("any", partition="west", namespace="app")
    assert selected_paths(id, WorkloadSelector(prefixes=["api-", ""], names=["web"])) == {
        "west/app/api-",
        "west/app/",
        "west/app/web/",
    }
    for nothing in (None, WorkloadSelector(), WorkloadSelector(filter="metadata is empty")):
        assert selected_paths(id, nothing) == set()
        assert not selects(nothing)


async def test_ws3_services_that_may_choose_a_workload(shot: headway.testing.OneShot) -> None:
    await shot.given(headway.NAMESPACE.new("app"))
    await shot.given(
        service("by-name", names=["api-1"]),
        service("by-longer-name", names=["api-10"]),
        service("by-shorter-name", names=["api"]),
        service("by-prefix", prefixes=["api"]),
        service("by-whole-name", prefixes=["api-1"]),
        service("all", prefixes=[""]),
        service("filtered", prefixes=["api"], filter="metadata.color == red"),
        service("other", prefixes=["web"]),
        service("elsewhere", prefixes=[""], namespace="app"),
        service("none"),
    )
    (api,) = await shot.given(workload("api-1"))
    found = [id.name for id in await shot.mapped(WORKLOAD, new=api)]
    assert sorted(found) == ["all", "by-name", "by-prefix", "by-whole-name", "filtered"]
    assert await shot.mapped(WORKLOAD, old=api) == await shot.mapped(WORKLOAD, old=api, new=api)
