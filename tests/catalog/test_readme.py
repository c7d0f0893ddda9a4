"""The examples of the README: each service that they write selects each workload that they register, on a port."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import trio

import headway
from catalog import app
from catalog.registrar import definitions
from catalog.types import SERVICE, SERVICE_ENDPOINTS, WORKLOAD
from headway import manifest
from headway.resource import Registry

README = (Path(__file__).parents[2] / "examples/catalog/README.md").read_text()


def blocks(language: str) -> list[str]:
    """Return the blocks of the README in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def registry() -> Registry:
    """Return the types that the manifest writes."""
    types = Registry()
    for each in (SERVICE, WORKLOAD):
        types.register(each)
    return types


async def hosts(client: headway.Client) -> list[str]:
    """Return the addresses of the endpoints of the service."""
    found = (await client.read(SERVICE_ENDPOINTS, "web")).data
    return [address.host for each in found.endpoints for address in each.addresses]


async def test_examples_of_the_readme_fit_together(tmp_path: Path) -> None:
    written, registered = blocks("yaml")
    [program] = blocks("python")
    (tmp_path / "registrar.yaml").write_text(registered)
    [checked] = definitions.load(tmp_path / "registrar.yaml")
    with trio.fail_after(30):
        async with headway.open_engine(
            "memory:", app, network=headway.Network(["127.0.0.1:0"], insecure=True)
        ) as engine:
            client = engine.client
            for each in manifest.load(written, registry()):
                await client.apply(each)
            await engine.wait_idle()
            assert await hosts(client) == ["10.0.0.1"]
            await client.delete(SERVICE.id("web"))
            await headway.until_gone(client, SERVICE_ENDPOINTS, "web")
            await client.apply(checked.workload)

            [address] = engine.addresses
            names: dict[str, object] = {"__name__": "readme"}
            exec(program.replace("127.0.0.1:7070", str(address)), names)
            await cast("Callable[[], Awaitable[None]]", names["main"])()
            await engine.wait_idle()
            assert await hosts(client) == ["127.0.0.1"]
