"""The live page of a process that works on a cluster, and has no store of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from typing_extensions import override

from headway.api import Call, LeaseApi, ResourceApi, StoreApi, Wrapper
from headway.base import block_nursery
from headway.controller import App
from headway.engine import Engine, Network
from headway.errors import InvalidArgument
from headway.http import host_and_port
from headway.kubernetes import Manifest
from headway.page._host import PageHost
from headway.page._parts import CalledParts
from headway.page._serving import served
from headway.resource import ResourceType, is_builtin, pb
from headway.rpc import Services, is_loopback
from headway.why import ObserveService, observer_of


@asynccontextmanager
async def open_page(engine: Engine, *apps: App, http: str, http_writes: bool = False) -> AsyncIterator[str]:
    """``async with page.open_page(engine, app, http="127.0.0.1:8080") as address: ...``

    Serve the live page of a process that works on a cluster while the block runs, and yield its address.

    The page shows this process and the resources of the apps' types, as far as the program may read them itself. It has
    no JSON API, and no lists of events and quotas.

    Args:
        engine: the engine of the process, from `headway.kubernetes.open_cluster`.
        apps: the apps whose controllers it runs.
        http: a loopback address. Whoever can connect sees all of this.
        http_writes: let the page also change things, with the rights of the program.

    Raises:
        InvalidArgument: the address is not a loopback address.
        DeclarationError: the libraries are not installed.
        OSError: the address cannot be bound.
    """
    check_own_page(http)
    network = Network(http=http, http_writes=http_writes, insecure=True)
    observe, channel = observer_of(engine), engine.client._channel
    api = ResourceApi.over(channel)
    registry = engine._registry.of_known(lambda name: not is_builtin(engine._registry.resolve(name)))
    page = PageHost(
        apps,
        observe,
        registry,
        CalledParts(api),
        writes=http_writes,
        lacks=["events", "quotas", *(str(each.name) for each in registry if not _has_editor(each))],
        report=engine._report,
    )
    observing = ObserveService(observe, registry)
    services = Services(_Resources(api), LeaseApi.over(channel), StoreApi.over(channel), observing)
    async with (
        block_nursery() as nursery,
        served(page, network, engine._report, services, nursery, json_api=False) as (address, _),
    ):
        yield address


def check_own_page(http: str) -> None:
    """Raise InvalidArgument unless this machine alone can reach an address: a cluster's page has no access control."""
    host, _ = host_and_port(http)
    if not is_loopback(host):
        raise InvalidArgument(
            f"{http}: others can reach this address, and see what the program may read. Use 127.0.0.1, which "
            "`kubectl port-forward` reaches"
        )


def _has_editor(type: ResourceType[Any]) -> bool:
    """Return False for manifests, because no schema of theirs is known here, and for Secrets, which are not shown."""
    return not issubclass(type.payload, Manifest) and type.kind != ("core", "Secret")


class _Resources(Wrapper):
    """The resources of a cluster. Of what an object owns, a page shows the names, as far as the program may list it."""

    @override
    async def unary(self, path: str, answer: Callable[[Call, Any], Awaitable[Any]], call: Call, request: Any) -> Any:
        is_view = isinstance(request, pb.ListByOwnerRequest)
        return await answer(Call({"view": "relatives"}) if is_view else call, request)
