"""`headway quota`: quotas and their use."""

from __future__ import annotations

import json

import pytest

import headway
from headway.errors import QuotaExceeded
from headway.quotas import QUOTA
from tests.cli.terminal import Terminal
from tests.helpers.declared import NOTE


async def test_quota_is_set_shown_and_deleted(terminal: Terminal) -> None:
    """The table has the use and the limit; JSON has all details; `get`, `apply` and `delete` work as for any type."""
    app = headway.App("staff")
    app.registry.register(NOTE)
    opened = headway.open_engine(
        "memory:", app, network=headway.Network(["127.0.0.1:0"], insecure=True), report=headway.events.ignore
    )
    async with opened as engine:
        server = engine.addresses[0]
        nothing = await terminal("quota", server=server)
        assert (nothing.returncode, nothing.stdout, nothing.stderr) == (0, "", "no quota found\n")
        kind = ".".join(NOTE.kind)
        said = await terminal(
            "quota", "set", "notes", "--type", kind, "--max-resources", "1", "--max-bytes", "2Ki", server=server
        )
        assert said.stdout == "quota notes is set\n"
        await engine.client.write(NOTE.new("a", NOTE.payload()))
        with pytest.raises(QuotaExceeded):
            await engine.client.write(NOTE.new("b", NOTE.payload()))
        head, line = (await terminal("quota", server=server)).stdout.splitlines()
        assert head.split() == ["QUOTA", "PARTITION", "NAMESPACE", "TYPE", "RESOURCES", "BYTES", "REFUSED"]
        name, partition, namespace, type, resources, size, refused = line.split()
        assert (name, partition, namespace, type, resources, refused) == ("notes", "default", "*", kind, "1/1", "1")
        assert size.endswith("/2048")
        [found] = json.loads((await terminal("quota", "-o", "json", server=server)).stdout)
        assert (found["name"], found["resources"], found["max_bytes"]) == ("notes", 1, 2048)
        assert "max_resources: 1" in (await terminal("get", "quota", "notes", "-o", "yaml", server=server)).stdout
        await terminal("delete", "quota", "notes", server=server)
        assert await engine.client.get(QUOTA, "notes") is None
