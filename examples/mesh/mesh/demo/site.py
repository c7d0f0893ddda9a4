"""The control plane, the members of the mesh, and what is declared."""

from __future__ import annotations

import datetime
import os
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

import catalog
import headway
import mesh
from catalog.demo.processes import Process
from catalog.messages import (
    Action,
    FailoverConfig,
    FailoverDestination,
    FailoverPolicy,
    Permission,
    Protocol,
    Service,
    ServicePort,
    Source,
    TrafficPermissions,
    WorkloadSelector,
)
from catalog.messages import Destination as Receiver
from catalog.types import FAILOVER_POLICY, SERVICE, TRAFFIC_PERMISSIONS, WORKLOAD_IDENTITY
from mesh.certificates.messages import CertificateAuthority
from mesh.certificates.types import CERTIFICATE_AUTHORITY
from mesh.certificates.types import NAME as AUTHORITY
from mesh.controllers.sidecar_proxy import KEY
from mesh.demo import rights
from mesh.demo.load import Load
from mesh.demo.members import Member, Place
from mesh.messages import (
    BackendReference,
    Destination,
    Destinations,
    HTTPBackendRef,
    HTTPRoute,
    HTTPRouteRetries,
    HTTPRouteRule,
    IPPortAddress,
    ParentReference,
    UInt32Value,
)
from mesh.types import DESTINATIONS, HTTP_ROUTE, PROXY_STATE_TEMPLATE

CALLER = "web"
SERVICES = ("shop", "canary", "backup", CALLER)
_SHOP_PORT = 10_000
_SHORT = datetime.timedelta(seconds=6)
"""The lifetime of leaves during a rotation, and the time after which the old root goes."""
_AUTHORITY = headway.App("operator")
_AUTHORITY.add_type(CERTIFICATE_AUTHORITY)


def _service(name: str) -> headway.Reference:
    return SERVICE.id(name).reference()


class Site:
    """The processes, and the resources that say what they should do.

    Attributes:
        control: the control plane.
        client: declares what should be.
        members: the workloads by their names.
        load: the calls to the service ``shop``, by the proxy of the workload ``web-1``.
    """

    def __init__(self, place: Place, control: Process, client: headway.Client, nursery: trio.Nursery) -> None:
        self._place = place
        self.control = control
        self.client = client
        self._nursery = nursery
        self.members: dict[str, Member] = {}
        self.load = Load(f"http://{place.host(SERVICES.index(CALLER))}:{_SHOP_PORT}/")

    async def declare(self) -> None:
        """Declare the authority, the services, their routing, and who may call whom."""
        await self.rotate("", short=False)
        for name in SERVICES:
            await self.client.apply(WORKLOAD_IDENTITY.new(name))
            ports = [
                ServicePort(target_port="http", protocol=Protocol.PROTOCOL_HTTP),
                ServicePort(target_port="mesh", protocol=Protocol.PROTOCOL_MESH),
            ]
            selected = WorkloadSelector(prefixes=[f"{name}-"])
            await self.client.apply(SERVICE.new(name, Service(workloads=selected, ports=ports)))
            await self.permit(name, CALLER)
        await self.split(shop=100)
        standing_in = FailoverConfig(destinations=[FailoverDestination(ref=_service("backup"))])
        await self.client.apply(FAILOVER_POLICY.new("shop", FailoverPolicy(config=standing_in)))
        await self.reach("shop", _SHOP_PORT)

    async def reach(self, service: str, port: int) -> None:
        """Let the caller reach a service at a port of its own host."""
        address = IPPortAddress(ip=self._place.host(SERVICES.index(CALLER)), port=port)
        reached = Destination(destination_ref=_service(service), destination_port="http", ip_port=address)
        data = Destinations(workloads=WorkloadSelector(prefixes=[f"{CALLER}-"]), destinations=[reached])
        await self.client.apply(DESTINATIONS.new(f"{CALLER}-{service}", data))

    async def unreach(self, service: str) -> None:
        """Take this back."""
        await self.client.delete(DESTINATIONS.id(f"{CALLER}-{service}"))

    async def missing(self, reason: str) -> None:
        """Wait until the status of the caller's template says for this reason whether something is missing in it."""
        async with self.client.watch(PROXY_STATE_TEMPLATE, name_prefix=f"{CALLER}-1") as events:
            async for event in events:
                if isinstance(event, headway.client.Upserted):
                    status = event.resource.status.get(KEY)
                    if status is not None and [each.reason for each in status.conditions] == [reason]:
                        return

    async def permit(self, receiver: str, sender: str) -> None:
        """Let one identity call another, and no one else."""
        source = Source(identity_name=sender, namespace="default")
        data = TrafficPermissions(
            destination=Receiver(identity_name=receiver),
            action=Action.ACTION_ALLOW,
            permissions=[Permission(sources=[source])],
        )
        await self.client.apply(TRAFFIC_PERMISSIONS.new(receiver, data))

    async def split(self, **weights: int) -> None:
        """Divide the calls to ``shop`` among services. A call that cannot be delivered is tried again elsewhere."""
        backends = [
            HTTPBackendRef(backend_ref=BackendReference(ref=_service(name)), weight=weight)
            for name, weight in weights.items()
        ]
        retries = HTTPRouteRetries(number=UInt32Value(value=3), on_connect_failure=True, on_conditions=["reset"])
        rule = HTTPRouteRule(backend_refs=backends, retries=retries)
        route = HTTPRoute(parent_refs=[ParentReference(ref=_service("shop"))], rules=[rule])
        await self.client.apply(HTTP_ROUTE.new("shop", route))

    async def add(self, *names: str) -> None:
        """Start workloads, such as ``shop-1`` of ``shop``, and report their health from then on."""
        async with trio.open_nursery() as starting:
            for number, name in enumerate(names, len(self.members)):
                service = name.rpartition("-")[0]
                member = Member(name=name, service=service, number=number, place=self._place, client=self.client)
                self.members[name] = member
                starting.start_soon(self._start, member)

    async def _start(self, member: Member) -> None:
        await member.start()
        self._nursery.start_soon(member.report)

    async def rotate(self, rotation: str, *, short: bool) -> None:
        """Ask for a rotation of the root, with leaves of some seconds or of three days."""
        data = CertificateAuthority(rotation=rotation)
        if short:
            data.leaf_lifetime = data.removed_after = _SHORT
        await self.client.apply(CERTIFICATE_AUTHORITY.new(AUTHORITY, data))

    async def certificates(self) -> tuple[set[str], datetime.datetime]:
        """Return the serial numbers of the roots that proxies trust, and the earliest end of a proxy's leaf."""
        found = [await each.certificates() for each in self.members.values()]
        return {root for roots, _ in found for root in roots}, min(ends for _, ends in found)

    async def why(self, name: str) -> str:
        """Return what ``headway why`` answers about the template of a proxy."""
        command = [sys.executable, "-m", "headway.cli", "--server", self._place.control]
        env = {**os.environ, "HEADWAY_TOKEN": self._place.tokens[rights.OPERATOR]}
        done = await trio.run_process([*command, "why", "proxystatetemplate", name], capture_stdout=True, env=env)
        return done.stdout.decode()

    async def stop(self) -> None:
        """Stop all processes."""
        async with trio.open_nursery() as nursery:
            for each in self.members.values():
                nursery.start_soon(each.stop)
            nursery.start_soon(self.control.stop)


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Site]:
    """Run a mesh whose client calls, in an empty folder."""
    access, key = folder / "access.yaml", folder / "key"
    place = Place(folder, random.randrange(1_000), rights.write(access, SERVICES))
    await trio.run_process([sys.executable, "-m", "mesh.certificates", str(key)])
    files = ("--access", str(access), "--key-file", str(key))
    options = ("--store", f"sqlite:{folder}/mesh.db", "--listen", place.control, *files)
    control = Process("control-plane", folder, "listening on ", "-m", "mesh.server", *options)
    token = place.tokens[rights.OPERATOR]
    async with (
        trio.open_nursery() as nursery,
        headway.connect(place.control, catalog.app, mesh.app, _AUTHORITY, token=token) as client,
    ):
        site = Site(place, control, client, nursery)
        try:
            await control.start()
            await site.declare()
            await site.add(*(f"{each}-1" for each in SERVICES))
            yield site
        finally:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await site.stop()
