"""The exported services controller: EX-1 to EX-9 of Consul's, with W-14, W-16 and W-17 done better."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headway
from catalog.controllers.exported_services import KEY
from catalog.messages import ExportedServicesConsumer, NamespaceExportedServices, Service, WorkloadSelector
from catalog.types import (
    COMPUTED_EXPORTED_SERVICES,
    EXPORTED_SERVICES,
    NAMESPACE_EXPORTED_SERVICES,
    SERVICE,
)
from headway.testing import one_shot
from tests.catalog.exports import from_namespace, from_partition, listed, of_services
from tests.catalog.policies import alone, conditions, settled

APP, NAME = alone("exported-services"), "exported-services"
GLOBAL = COMPUTED_EXPORTED_SERVICES.id("global")
DONE = ("ExportedServicesComputed", "TRUE", "", "Exported services have been computed")
TENANCIES: list[headway.Resource[Any]] = [headway.NAMESPACE.new("app"), headway.PARTITION.new("lab")]


async def test_ex1_every_change_reconciles_the_global_exports_of_its_partition() -> None:
    async with one_shot(APP, NAME) as shot:
        await shot.given(*TENANCIES)
        lab = COMPUTED_EXPORTED_SERVICES.id("global", partition="lab")
        new: list[headway.Resource[Any]] = [
            of_services("one", "api", namespace="app"),
            from_namespace("one", namespace="app"),
            from_partition("one"),
            SERVICE.new("api", namespace="app"),
        ]
        for one in new:
            assert await shot.mapped(one.type, new=one) == [GLOBAL]
        assert await shot.mapped(SERVICE, new=SERVICE.new("api", partition="lab")) == [lab]


async def test_w16_only_the_existence_of_a_service_matters() -> None:
    """A status or new data reconciles nothing. In Consul, each lists the whole partition four times."""
    async with one_shot(APP, NAME) as shot:
        api, _ = await shot.given(SERVICE.new("api"), from_partition("one"))
        await shot.requests()
        for number in range(20):
            await shot.client.write_status(api, "other", [headway.Condition(type=f"Seen{number}")])
        await shot.given(SERVICE.new("api", Service(workloads=WorkloadSelector(prefixes=["api-"]))))
        assert await shot.requests() == []
        await shot.client.delete(SERVICE.id("api"))
        assert [each.id for each in await shot.requests()] == [GLOBAL]


async def test_ex2_without_exports_the_computed_ones_are_deleted() -> None:
    async with one_shot(APP, NAME) as shot:
        await shot.given(SERVICE.new("api"), of_services("one", "api", peers=["east"]))
        await settled(shot, GLOBAL)
        made = await shot.client.read(COMPUTED_EXPORTED_SERVICES, "global")
        assert made.owner is None
        await shot.client.delete(EXPORTED_SERVICES.id("one"))
        (deleted,) = await settled(shot, GLOBAL)
        assert (deleted.what, deleted.request.version) == ("delete", made.version)  # W-14
        assert await settled(shot, GLOBAL) == ()


async def test_ex3_each_kind_exports_the_services_of_its_scope() -> None:
    """Services are selected by name if they exist, by namespace, or by partition. EX-4 is their list in Consul."""
    async with one_shot(APP, NAME) as shot:
        await shot.given(*TENANCIES, *(SERVICE.new(name) for name in ("api", "web")))
        await shot.given(SERVICE.new("api", namespace="app"), SERVICE.new("api", partition="lab"))
        for one, services in (
            (of_services("one", "web", "missing", "Not A Name", peers=["east"]), ["default/web"]),
            (from_namespace("one", namespace="app", peers=["east"]), ["app/api", "default/web"]),
            (from_partition("one", peers=["east"]), ["app/api", "default/api", "default/web"]),
        ):
            await shot.given(one)
            await settled(shot, GLOBAL)
            found = await shot.client.read(COMPUTED_EXPORTED_SERVICES, "global")
            assert list(listed(found.data)) == services


async def test_ex5_a_service_has_the_consumers_of_all_its_exports_sorted() -> None:
    async with one_shot(APP, NAME) as shot:
        await shot.given(SERVICE.new("api"), SERVICE.new("web"), from_partition("one", peers=["west", "east"]))
        await shot.given(from_namespace("one", peers=["north", "east"]), of_services("one", "api", peers=["alps"]))
        await settled(shot, GLOBAL)
        found = await shot.client.read(COMPUTED_EXPORTED_SERVICES, "global")
        some = ["east", "north", "west"]
        assert listed(found.data) == {"default/api": ["alps", *some], "default/web": some}


async def test_ex6_services_are_in_the_order_of_their_texts_even_without_a_consumer() -> None:
    """A text is partition.namespace/name, and a hyphen sorts before the slash."""
    async with one_shot(APP, NAME) as shot:
        await shot.given(headway.NAMESPACE.new("app"), headway.NAMESPACE.new("app-b"))
        for name, namespace in (("a", "default"), ("a-b", "default"), ("z", "app"), ("z", "app-b")):
            await shot.given(SERVICE.new(name, namespace=namespace))
        await shot.given(from_partition("one"))
        await settled(shot, GLOBAL)
        found = await shot.client.read(COMPUTED_EXPORTED_SERVICES, "global")
        assert list(listed(found.data).items()) == [
            ("app-b/z", []),
            ("app/z", []),
            ("default/a", []),
            ("default/a-b", []),
        ]


async def test_ex7_without_a_matching_service_nothing_is_written_and_old_exports_are_deleted() -> None:
    async with one_shot(APP, NAME) as shot:
        await shot.given(of_services("one", "api", peers=["east"]))
        assert await settled(shot, GLOBAL) == ()
        await shot.given(SERVICE.new("api"))
        await settled(shot, GLOBAL)
        await shot.client.delete(SERVICE.id("api"))
        assert [each.what for each in await settled(shot, GLOBAL)] == ["delete"]


async def test_ex8_ex9_writes_only_what_differs_and_the_status_after_it() -> None:
    async with one_shot(APP, NAME) as shot:
        await shot.given(SERVICE.new("api"), of_services("one", "api", peers=["east"]))
        assert [each.what for each in await settled(shot, GLOBAL)] == ["write", "status"]
        made = await shot.client.read(COMPUTED_EXPORTED_SERVICES, "global")
        assert conditions(made, KEY) == [DONE]
        await shot.given(from_namespace("two", peers=["east"]))
        assert await settled(shot, GLOBAL) == ()
        await shot.client.write_status(made, KEY, [])
        assert [each.what for each in await settled(shot, GLOBAL)] == ["status"]


BAD = [
    (
        ExportedServicesConsumer(),
        ("UnsupportedConsumers", "TRUE", "UnsupportedConsumers", "Some consumers are not peers : 1"),
    ),
    (
        ExportedServicesConsumer(partition="lab"),
        ("UnsupportedConsumers", "TRUE", "UnsupportedConsumers", "Some consumers are not peers : 1"),
    ),
    (
        ExportedServicesConsumer(sameness_group="pals"),
        ("MissingSamenessGroups", "TRUE", "MissingSamenessGroups", "Some SamenessGroups cannot be resolved : pals"),
    ),
]


@pytest.mark.parametrize(("consumer", "told"), BAD)
async def test_w17_consumer_that_is_no_peer_is_skipped_and_reported(
    consumer: ExportedServicesConsumer, told: tuple[str, str, str, str], tmp_path: Path
) -> None:
    """Validation refuses it now, so it was stored before. In Consul it stops all exports of the partition."""
    store = f"sqlite:{tmp_path / 'catalog.db'}"
    before = headway.App("catalog")
    unchecked = before.type("multicluster", "v2", "NamespaceExportedServices", NamespaceExportedServices)
    async with headway.open_engine(store, before) as engine:
        consumers = [ExportedServicesConsumer(peer="east"), consumer]
        await engine.client.apply(unchecked.new("bad", NamespaceExportedServices(consumers=consumers)))

    async with one_shot(APP, NAME, store=store) as shot:
        await shot.given(SERVICE.new("api"), of_services("good", "api", peers=["west"]))
        await settled(shot, GLOBAL)
        found = await shot.client.read(COMPUTED_EXPORTED_SERVICES, "global")
        assert listed(found.data) == {"default/api": ["east", "west"]}
        assert conditions(found, KEY) == [DONE, *([told] if consumer.sameness_group else [])]
        assert conditions(await shot.client.read(NAMESPACE_EXPORTED_SERVICES, "bad"), KEY) == [told]
        assert KEY not in (await shot.client.read(EXPORTED_SERVICES, "good")).status

        await shot.given(from_namespace("bad", peers=["east"]))
        await settled(shot, GLOBAL)
        assert conditions(await shot.client.read(NAMESPACE_EXPORTED_SERVICES, "bad"), KEY) == []
        assert conditions(await shot.client.read(COMPUTED_EXPORTED_SERVICES, "global"), KEY) == [DONE]
