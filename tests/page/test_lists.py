"""The lists of the page: columns and ages of resources, events and quotas, each by the rights of its caller."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import headway
from headway import field
from headway.base import wall_time
from headway.page import _happened
from headway.quotas import QUOTA, Quota
from headway.resource import NAMESPACE
from tests.page.kit import EVERYTHING, PATIENCE, Shop, Visitor, open_shop, rule


@headway.message(name="page.lists.Site")
class Site:
    host: str = field(1)
    hits: int = field(2)
    key: str = field(3, secret=True)


def sites_app() -> tuple[headway.App, headway.ResourceType[Site]]:
    """Return an app whose controller records events of each site."""
    app = headway.App("web")
    site = app.type("web", "v1", "Site", Site, columns={"HOST": "host", "HITS": "hits", "KEY": "key"})

    @app.controller(manages=site)
    async def sites(rt: headway.Runtime, request: headway.Request[Site]) -> None:
        resource = rt.resource(request)
        if resource is not None:
            rt.event(resource, "Deployed", f"on {resource.data.host}")
            if not resource.data.hits:
                rt.event(resource, "Idle", "no hits", warning=True)

    return app, site


async def until_found(visitor: Visitor, path: str, count: int) -> dict[str, Any]:
    """Return the events once there are this many."""
    with trio.fail_after(PATIENCE):
        while True:
            found: dict[str, Any] = (await visitor.http.get(path)).json()
            if len(found["events"]) == count:
                return found
            await trio.sleep(0.02)


async def test_resources_are_listed_with_the_columns_of_their_type_and_their_age() -> None:
    """As a table of the command line has them: without secrets, and with a mark for what does not decode."""
    app, site = sites_app()
    async with open_shop(app=app) as running, running.visitor() as visitor:
        began = wall_time()
        await running.client.apply(site.new("a", Site(host="north", hits=2**60, key="canary-19f3")))
        answer = await visitor.http.get("/page/search?type=web.v1.Site")
        assert "canary" not in answer.text
        found = answer.json()
        assert found["columns"] == ["HOST", "HITS", "KEY"]
        [row] = found["rows"]
        assert row["columns"] == ["north", str(2**60), "(redacted)"]
        assert began - 1 <= row["created"] <= wall_time() + 1


async def test_events_of_all_resources_are_listed_the_newest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """By resource and by warnings, in steps, with as many as are shown and the number of the others."""
    app, site = sites_app()
    async with open_shop(app=app) as running, running.visitor() as visitor:
        for name, hits in (("a", 1), ("b", 0), ("c", 1)):
            await running.client.apply(site.new(name, Site(host=name, hits=hits)))
        found = await until_found(visitor, "/page/events", 4)
        assert [each["last"] for each in found["events"]] == sorted(
            (each["last"] for each in found["events"]), reverse=True
        )
        assert (found["dropped"], found.get("cursor")) == (0, None)
        [idle] = (await visitor.http.get("/page/events?warnings=yes")).json()["events"]
        assert (idle["resource"]["name"], idle["reason"], idle["text"]) == ("b", "Idle", "no hits")
        assert (idle["controller"], idle["warning"], idle["count"]) == ("web/sites", True, 1)
        assert idle["last"] == pytest.approx(wall_time(), abs=PATIENCE)
        assert len((await visitor.http.get("/page/events?q=SITE+b")).json()["events"]) == 2
        assert (await visitor.http.get("/page/events?namespace=other")).json()["events"] == []
        for wrong in ("warnings=no", "other=x", "cursor=x"):
            assert (await visitor.http.get(f"/page/events?{wrong}")).status_code == 400, wrong
        monkeypatch.setattr(_happened, "SHOWN", 1)
        cut = (await visitor.http.get("/page/events")).json()
        assert (cut["events"], cut["dropped"]) == (found["events"][:1], 3)


async def quotas_of(running: Shop, name: str) -> tuple[int, list[dict[str, Any]]]:
    """Return the status and the quotas that a visitor sees."""
    async with running.visitor(name) as visitor:
        answer = await visitor.http.get("/page/quotas")
        return answer.status_code, answer.json().get("quotas", [])


async def test_events_and_quotas_are_shown_by_rights() -> None:
    """A caller without the right to list them gets none. Of events, each needs the right to read it."""
    app, site = sites_app()
    event = "event.v1.Event"
    blue = [rule("list", type=event), rule("read", type=event, namespace="blue")]
    rules = {"all": [EVERYTHING], "blue": blue, "none": [rule("view", "observe", type="web.v1.Site")]}
    async with open_shop(app=app, rules=rules) as running:
        await running.client.apply(QUOTA.new("small", Quota(partition="default", max_resources=4, max_bytes=10**6)))
        await running.client.apply(QUOTA.new("open", Quota(partition="default", max_resources=1000)))
        await running.client.apply(NAMESPACE.new("blue"))
        for namespace in ("default", "blue"):
            await running.client.apply(site.new(namespace, Site(hits=1), namespace=namespace))
        async with running.visitor("all") as visitor:
            await until_found(visitor, "/page/events", 2)
        async with running.visitor("blue") as visitor:
            found = (await visitor.http.get("/page/events")).json()
            assert found["dropped"] == 0
            assert [each["resource"]["name"] for each in found["events"]] == ["blue"]
        async with running.visitor("none") as visitor:
            assert (await visitor.http.get("/page/events")).status_code == 403
        assert (await quotas_of(running, "none"))[0] == 403
        status, quotas = await quotas_of(running, "all")
        assert status == 200
        [small, open_] = quotas
        assert (small["name"], small["maxResources"], small["maxBytes"]) == ("small", 4, 10**6)
        assert small["used"] == small["resources"] / 4 > open_["used"]
        assert (open_["maxBytes"], open_["type"], open_["refused"]) == (None, "", 0)
