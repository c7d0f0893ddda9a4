"""An owner that a mutate hook assigns: it is completed, checked and resolved as one that the writer gives."""

from __future__ import annotations

import pytest

import headway
from headway import field


@headway.message
class Site:
    region: str = field(1)


@headway.message
class Page:
    text: str = field(1)


app = headway.App("web")
SITE = app.type("web", "v1", "Site", Site)


def owned_by_its_site(page: headway.Resource[Page]) -> None:
    """Give a page without an owner the site of its name."""
    if page.owner is None:
        page.owner = SITE.id(page.name, partition=page.id.partition, namespace=page.id.namespace)


PAGE = app.type("web", "v1", "Page", Page, hooks=headway.Hooks(mutate=owned_by_its_site))


async def test_assigned_owner_is_the_incarnation_that_exists_and_takes_the_resource_with_it() -> None:
    async with headway.open_engine("memory:", app) as engine:
        site = await engine.client.write(SITE.new("home"))
        page = await engine.client.write(PAGE.new("home"))
        assert page.owner == site.id
        again = await engine.client.write(PAGE.new("home", Page(text="b")))
        assert again.owner == site.id
        await engine.client.delete(site)
        await engine.wait_idle()
        assert await engine.client.list(PAGE) == []


async def test_assigned_owner_must_exist_and_a_given_one_stays() -> None:
    async with headway.open_engine("memory:", app) as engine:
        with pytest.raises(headway.errors.InvalidArgument, match=r"resource\.owner: Site home not found"):
            await engine.client.write(PAGE.new("home"))
        other = await engine.client.write(SITE.new("other"))
        assert (await engine.client.write(PAGE.new("home", owner=other))).owner == other.id


def test_owner_can_be_assigned_and_is_no_part_of_the_original() -> None:
    page, site = PAGE.new("home"), SITE.id("home")
    page.owner = site
    assert page.owner == site
    assert page.copy().owner == site
    assert page.original().owner is None
    with pytest.raises(headway.errors.InvalidArgument, match="owner must be a resource or its id, such as owner=team"):
        page.owner = "home"  # type: ignore[assignment]


READER = headway.access.Rule(verbs=["read", "write"], type="web.v1.Page", partition="*", namespace="*")


async def test_writer_must_be_able_to_read_the_owner_that_a_hook_assigns() -> None:
    """Otherwise the answer would reveal whether it exists."""
    text, token = headway.access.new_token(["pages"])
    policies = [headway.access.Policy("pages", [READER])]
    access = headway.access.Authorizer(headway.access.Access(policies, [token]))
    async with (
        headway.open_engine("memory:", app, network=headway.Network(["127.0.0.1:0"], access=access)) as engine,
        headway.connect(engine.addresses[0], app, token=text) as client,
    ):
        for _ in range(2):
            with pytest.raises(headway.errors.PermissionDenied, match=r"web\.v1\.Site"):
                await client.write(PAGE.new("home"))
            await engine.client.apply(SITE.new("home"))
