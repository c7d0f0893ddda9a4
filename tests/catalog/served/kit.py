"""A catalog served by a process of its own, and the writers of the scenarios: Headway's client, and one in Go."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import trio

import catalog
import headway
from headway import Resource, ResourceId, ResourceType
from tests.helpers.go_programs import need_go_program

ROOT = Path(__file__).parents[3]
PATIENCE = 40.0
KINDS = [f"{store}-{writer}" for store in ("memory", "sqlite") for writer in ("headway", "go")]
"""The stores and the writers of the scenarios."""

Holds = Callable[[Resource[Any] | None], bool]
"""A function that is true for the state of a resource, or for None if it does not exist, that a test waits for."""


class Writer(Protocol):
    """A program that writes to the catalog."""

    async def write(self, resource: Resource[Any]) -> ResourceId:
        """Write a resource without a version. Return its id, with its uid."""
        ...

    async def delete(self, id: ResourceId) -> None:
        """Delete a resource."""
        ...


class ByHeadway:
    """Headway's own client."""

    def __init__(self, client: headway.Client) -> None:
        self._client = client

    async def write(self, resource: Resource[Any]) -> ResourceId:
        return (await self._client.write(resource)).id

    async def delete(self, id: ResourceId) -> None:
        await self._client.delete(id)


class Answered(NamedTuple):
    """The answer to a client in Go: a resource as JSON, and the status."""

    resource: dict[str, Any]
    code: str
    message: str


class ByGo:
    """The client of tests/go/client/catalog, a process of its own."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._received = b""

    async def ask(self, **request: Any) -> Answered:
        """Send a request, and return its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        await self._process.stdin.send_all(json.dumps(request).encode() + b"\n")
        with trio.fail_after(PATIENCE):
            while b"\n" not in self._received:
                more = await self._process.stdout.receive_some()
                assert more, "the client in Go has ended"
                self._received += more
        line, _, self._received = self._received.partition(b"\n")
        answer = json.loads(line)
        return Answered(answer.get("resource", {}), answer["code"], answer.get("message", ""))

    async def write(self, resource: Resource[Any]) -> ResourceId:
        answer = await self.ask(verb="write", resource=in_json(resource))
        assert answer.code == "OK", answer
        return resource.id._replace(uid=answer.resource["id"]["uid"])

    async def delete(self, id: ResourceId) -> None:
        answer = await self.ask(verb="delete", id=id_in_json(id))
        assert answer.code == "OK", answer


def in_json(resource: Resource[Any]) -> dict[str, Any]:
    """Return a resource in protobuf's JSON form."""
    made = {
        "id": id_in_json(resource.id),
        "metadata": resource.metadata,
        "data": {"@type": resource.type.type_url, **resource.data.to_dict()},
    }
    return made if resource.owner is None else {**made, "owner": id_in_json(resource.owner)}


def id_in_json(id: ResourceId) -> dict[str, Any]:
    """Return an id in protobuf's JSON form."""
    made: dict[str, Any] = id.message().to_dict()
    return made


class Served(NamedTuple):
    """A running catalog.

    Attributes:
        writer: writes.
        client: reads.
    """

    writer: Writer
    client: headway.Client


@asynccontextmanager
async def served(store: str, folder: Path, writer: str) -> AsyncIterator[Served]:
    """Run `headway serve catalog:app` on a store, ``memory`` or ``sqlite``, for a writer, ``headway`` or ``go``."""
    program = need_go_program("catalog-client") if writer == "go" else None
    url = {"memory": "memory:", "sqlite": f"sqlite:{folder}/catalog.db"}[store]
    command = [sys.executable, "-m", "headway.cli", "serve", "catalog:app", "--store", url, "--listen", "127.0.0.1:0"]
    paths = os.pathsep.join([str(ROOT / "engine"), str(ROOT / "examples/catalog")])
    environment = os.environ | {"PYTHONPATH": paths}
    async with process(command, env=environment, cwd=folder, stderr=subprocess.STDOUT) as server:
        address = await _address(server)
        async with trio.open_nursery() as nursery, headway.connect(address, catalog.app) as client:
            # A pipe that nobody reads would stop the server once it is full.
            nursery.start_soon(_read_on, server)
            if program is None:
                yield Served(ByHeadway(client), client)
            else:
                async with process([str(program), f"-address={address}"], stdin=subprocess.PIPE) as go:
                    yield Served(ByGo(go), client)
            server.send_signal(signal.SIGTERM)
            with trio.fail_after(PATIENCE):
                assert await server.wait() == 0
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def process(command: list[str], **options: Any) -> AsyncIterator[trio.Process]:
    """Start a process, and kill it at the end if it is still there."""
    started = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, **options)
    try:
        yield started
    finally:
        started.kill()
        with trio.CancelScope(shield=True):
            await started.wait()
            for pipe in (started.stdin, started.stdout):
                if pipe is not None:
                    await pipe.aclose()


async def _address(server: trio.Process) -> str:
    assert server.stdout is not None
    said = b""
    with trio.fail_after(PATIENCE):
        while not (found := re.search(rb"listening on (\S+)\n", said)):
            more = await server.stdout.receive_some()
            assert more, said.decode()
            said += more
    return found[1].decode()


async def _read_on(server: trio.Process) -> None:
    assert server.stdout is not None
    while await server.stdout.receive_some():
        pass


async def publish(writer: Writer, resources: list[Resource[Any]], order: random.Random) -> None:
    """Write resources in a random order, in rounds: an owned one in the round after its owner."""
    uids: dict[ResourceId, str] = {}
    waiting = list(resources)
    while waiting:
        ready = [each for each in waiting if each.owner is None or each.owner.without_uid() in uids]
        assert ready, "an owner is missing"
        order.shuffle(ready)
        round_uids: dict[ResourceId, str] = {}
        for each in ready:
            if each.owner is not None:
                each.owner = each.owner._replace(uid=uids[each.owner.without_uid()])
            round_uids[each.id.without_uid()] = (await writer.write(each)).uid
        uids |= round_uids
        waiting = [each for each in waiting if each not in ready]


async def until(client: headway.Client, type: ResourceType[Any], name: str, holds: Holds) -> Resource[Any] | None:
    """Wait until ``holds`` is true for a resource, and return it. Fail with the state that it has."""
    last: list[Resource[Any] | None] = [None]

    def noted(found: Resource[Any] | None) -> bool:
        last[0] = found
        return holds(found)

    try:
        with trio.fail_after(PATIENCE):
            return await headway.until(client, type, name, noted)
    except trio.TooSlowError:
        raise AssertionError(f"{name} stays as {last[0] and (last[0].data, last[0].status)}") from None


def condition_of(
    key: str, type: str, reason: str, message: str | None = None
) -> Callable[[Resource[Any] | None], bool]:
    """Return a function that is true for a resource whose current generation has this condition."""

    def holds(found: Resource[Any] | None) -> bool:
        status = None if found is None else found.status.get(key)
        if found is None or status is None or status.observed_generation != found.generation:
            return False
        return any(
            each.type == type and each.reason == reason and message in (None, each.message)
            for each in status.conditions
        )

    return holds
