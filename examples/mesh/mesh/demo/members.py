"""A workload with its service, its proxy, and the agent that reports its health."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import NamedTuple

import httpx
import trio

import headway
from catalog.demo.processes import Process
from catalog.messages import (
    Health,
    HTTPCheck,
    Node,
    NodeAddress,
    NodeHealthStatus,
    Protocol,
    TCPCheck,
    Workload,
    WorkloadAddress,
    WorkloadPort,
)
from catalog.registrar.checks import run
from catalog.registrar.definitions import Check
from catalog.types import NODE, NODE_HEALTH_STATUS, WORKLOAD
from mesh.demo.envoy import sidecar

MESH_PORT, ADMIN_PORT = 20_000, 19_000
_INTERVAL, _TIMEOUT = 0.1, 1.0
_PATIENCE = 5.0
"""The seconds that the agent waits for the control plane to store a health."""


class Place(NamedTuple):
    """What all processes of one run share. Outgoing connections have no ports as low as these.

    Attributes:
        folder: the folder of their files and logs.
        run: a random number below 1,000, by which runs have addresses and ports of their own.
        tokens: the tokens by the names of the operator and of the identities.
    """

    folder: Path
    run: int
    tokens: dict[str, str]

    @property
    def control(self) -> str:
        """The address of the control plane."""
        return f"127.{self.run // 250 + 1}.{self.run % 250 + 1}.1:7070"

    def host(self, number: int) -> str:
        """Return the address of a host."""
        return f"127.{self.run // 250 + 1}.{self.run % 250 + 1}.{number + 2}"

    def port(self, number: int) -> int:
        """Return the port of the service on a host, which its proxy reaches at 127.0.0.1."""
        return 10_000 + 20 * self.run + number


class Member:
    """One workload on a host of its own.

    Args:
        name: the name of the workload, of its proxy and of its host.
        service: its service, and its identity.
        number: the number of its host.
        place: where it runs.
        client: declares what changes.
    """

    def __init__(self, *, name: str, service: str, number: int, place: Place, client: headway.Client) -> None:
        self.name = name
        self._service = service
        self._host = host = place.host(number)
        self._port = place.port(number)
        self._admin = f"{host}:{ADMIN_PORT}"
        self._client = client
        command = ("-m", "catalog.demo.service", "127.0.0.1", str(self._port), name)
        self.app = Process(name, place.folder, "listening on ", *command)
        self.proxy = sidecar(name, place.folder, control=place.control, token=place.tokens[service], admin=self._admin)
        probes = (HTTPCheck(url=f"http://127.0.0.1:{self._port}/"), TCPCheck(address=f"{host}:{MESH_PORT}"))
        self._checks = [Check("", each, _INTERVAL, _TIMEOUT, 0) for each in probes]

    async def start(self) -> None:
        """Start the service, declare the workload, and start its proxy.

        The host is not declared, and a workload without its host is critical. So nothing is sent to it before the
        agent has found that it answers.
        """
        await self.app.start()
        workload = Workload(
            addresses=[WorkloadAddress(host=self._host)],
            ports={
                "http": WorkloadPort(port=self._port, protocol=Protocol.PROTOCOL_HTTP),
                "mesh": WorkloadPort(port=MESH_PORT, protocol=Protocol.PROTOCOL_MESH),
            },
            node_name=self.name,
            identity=self._service,
        )
        await self._client.apply(WORKLOAD.new(self.name, workload))
        await self.proxy.start()

    async def report(self) -> None:
        """Report the health of the workload's host when it is first good, and whenever it changes."""
        known: Health | None = None
        while True:
            found = [(await run(each)).health for each in self._checks]
            health = max(found, default=Health.HEALTH_CRITICAL)
            is_news = health != known and (known is not None or health == Health.HEALTH_PASSING)
            if is_news and await self._is_stored(health):
                known = health
            await trio.sleep(_INTERVAL)

    async def _is_stored(self, health: Health) -> bool:
        """Store the health, and return True unless the control plane is away."""
        with trio.move_on_after(_PATIENCE):
            try:
                await self._report(health)
            except headway.HeadwayError:
                return False
            return True
        return False

    async def _report(self, health: Health) -> None:
        node = await self._client.apply(NODE.new(self.name, Node(addresses=[NodeAddress(host=self._host)])))
        status = NodeHealthStatus(type="agent", status=health)
        await self._client.apply(NODE_HEALTH_STATUS.new(self.name, status, owner=node))

    async def certificates(self) -> tuple[set[str], datetime.datetime]:
        """Return the serial numbers of the roots that the proxy trusts, and the earliest end of a leaf."""
        async with httpx.AsyncClient(trust_env=False) as client:
            found = (await client.get(f"http://{self._admin}/certs")).raise_for_status().json()["certificates"]
        roots = {root["serial_number"] for each in found for root in each["ca_cert"]}
        ends = [
            datetime.datetime.fromisoformat(leaf["expiration_time"]) for each in found for leaf in each["cert_chain"]
        ]
        return roots, min(ends)

    async def stop(self) -> None:
        """Stop the proxy and the service."""
        await self.proxy.stop()
        await self.app.stop()
