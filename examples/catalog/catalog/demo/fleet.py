"""The processes of the demonstration: the server, the registrar, the DNS server, and three services."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

import headway
from catalog import app
from catalog.demo.processes import Process
from catalog.messages import Protocol, Service, ServicePort, WorkloadSelector
from catalog.types import SERVICE

INTERVAL, TIMEOUT, DEREGISTER_AFTER = 0.3, 0.5, 600.0
"""The seconds of the checks."""
TTL = 2.0
"""The seconds after which a registrar that is gone is noticed."""
STALE_LIMIT = 1.0
"""The seconds for which the DNS server answers without the server."""

_SERVICES = 3
_LISTENING = "listening on "
_WORKLOAD = """
type: catalog.v2beta1.Workload
name: {name}
data:
  addresses: [{{host: {host}}}]
  ports: {{http: {{port: {port}, protocol: PROTOCOL_HTTP}}}}
---
type: catalog.v2beta1.HealthChecks
name: {name}
data:
  workloads: {{names: [{name}]}}
  health_checks:
  - name: alive
    http: {{url: "http://{host}:{port}/"}}
    interval: {interval}s
    timeout: {timeout}s
    deregister_critical_after: {after}s
"""


class Fleet:
    """The processes.

    Attributes:
        services: the services by their addresses.
        dns_port: the port of the DNS server.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._address = f"unix:{folder}/catalog.sock"
        self._registrar_file = folder / "registrar.yaml"
        store = f"sqlite:{folder}/catalog.db"
        self.server = Process(
            "server",
            folder,
            _LISTENING,
            "-m",
            "headway.cli",
            "serve",
            "catalog:app",
            "--store",
            store,
            "--listen",
            self._address,
        )
        self.registrar = Process(
            "registrar",
            folder,
            "registering in term ",
            "-m",
            "catalog.registrar",
            str(self._registrar_file),
            "--server",
            self._address,
            "--name",
            "demo",
            "--ttl",
            str(TTL),
        )
        self._dns = Process(
            "dns",
            folder,
            _LISTENING,
            "-m",
            "catalog.dns",
            "--server",
            self._address,
            "--listen",
            "127.0.0.1:0",
            "--stale-limit",
            str(STALE_LIMIT),
        )
        self.services: dict[str, Process] = {}
        self.dns_port = 0

    async def start(self) -> None:
        """Start everything, and declare the service ``web``."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.server.start)
            nursery.start_soon(self._start_dns)
            for number in range(1, _SERVICES + 1):
                nursery.start_soon(self._start_service, f"127.0.1.{number}", f"web-{number}")
        async with headway.connect(self._address, app) as client:
            ports = [ServicePort(target_port="http", protocol=Protocol.PROTOCOL_HTTP)]
            await client.apply(SERVICE.new("web", Service(workloads=WorkloadSelector(prefixes=["web-"]), ports=ports)))
        await self.registrar.start()

    async def _start_dns(self) -> None:
        self.dns_port = int((await self._dns.start()).rpartition(":")[2])

    async def _start_service(self, host: str, name: str) -> None:
        """Start a service on a free port, which it has again when it is started again."""
        first = Process(name, self._folder, _LISTENING, "-m", "catalog.demo.service", host, "0", name)
        port = (await first.start()).rpartition(":")[2]
        first.command = (*first.command[:-2], port, name)
        self.services[host] = first
        document = _WORKLOAD.format(
            name=name, host=host, port=port, interval=INTERVAL, timeout=TIMEOUT, after=DEREGISTER_AFTER
        )
        with self._registrar_file.open("a") as file:
            file.write(f"---{document}")

    async def stop(self) -> None:
        """Stop everything."""
        async with trio.open_nursery() as nursery:
            for each in (self._dns, self.registrar, self.server, *self.services.values()):
                nursery.start_soon(each.stop)


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Fleet]:
    """Run a fleet in an empty folder."""
    fleet = Fleet(folder)
    try:
        await fleet.start()
        yield fleet
    finally:
        with trio.CancelScope(shield=True):
            await fleet.stop()
