"""A server of many small resources, in a process of its own: ``python -m tests.client.large_store COUNT SOCKET``."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import trio

from headway.resource import resource_key
from headway.rpc import Services, open_server
from headway.service import ResourceService, watch_encoders
from headway.storage import MemoryBackend, Put
from tests.helpers.declared import NOTE, a_note, an_id, registry

_AT_ONCE = 1000


def _puts(first: int, count: int) -> Iterator[Put]:
    for number in range(first, first + count):
        resource = a_note(f"n{number}")
        resource.id = an_id(f"n{number}", partition="default", namespace="default", uid=f"uid-{number}")
        yield Put(NOTE.kind, resource_key(resource), resource, "")


async def main(count: int, socket: str) -> None:
    """Store the resources, and serve them until the process is killed."""
    backend = MemoryBackend()
    for first in range(0, count, _AT_ONCE):
        await backend.commit(list(_puts(first, min(_AT_ONCE, count - first))))
    services = Services(ResourceService(backend, registry()), encoders=watch_encoders())
    async with open_server(services, [f"unix:{socket}"]):
        print("ready", flush=True)
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]), sys.argv[2])
