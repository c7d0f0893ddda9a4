"""gRPC's own client of xDS finds its backend through the server, by the state of the world."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial

import pytest
import trio

from mesh.xds import Snapshot, Snapshots
from tests.mesh.xds.builders import api_listener, cluster, endpoints, route
from tests.mesh.xds.real_envoy import free_port, served

pytest.importorskip("grpc_health", reason="no grpcio-health-checking: run `make setup`")

# The client reads its bootstrap when it is imported, so it is a process of its own. It writes the backend of each call
# that it is told to make.
CLIENT = """
import sys, grpc
channel = grpc.insecure_channel("xds:///shop")
call = channel.unary_unary("/shop.Shop/Where")
for line in sys.stdin:
    try:
        print(call(b"", timeout=20, wait_for_ready=True).decode(), flush=True)
    except grpc.RpcError as error:
        print(error, flush=True)
"""
BACKEND = """
import sys, grpc, threading
from concurrent import futures
def where(request, context):
    return str(port).encode()
server = grpc.server(futures.ThreadPoolExecutor(2))
handlers = {"Where": grpc.unary_unary_rpc_method_handler(where)}
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("shop.Shop", handlers),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(port, flush=True)
sys.stdin.read()
"""


async def line_of(process: trio.Process) -> str:
    assert process.stdout is not None
    held = b""
    with trio.fail_after(40):
        while not held.endswith(b"\n"):
            more = await process.stdout.receive_some(1)
            assert more, "the process has ended"
            held += more
    return held.decode().strip()


async def test_client_of_grpc_follows_route_and_endpoints() -> None:
    """Listener, route, cluster and endpoints are each found by name, and changes are followed."""
    source, control_port = Snapshots(), free_port()
    config = {
        "xds_servers": [
            {
                "server_uri": f"127.0.0.1:{control_port}",
                "channel_creds": [{"type": "insecure"}],
                "server_features": ["xds_v3"],
            }
        ],
        "node": {"id": "client"},
    }
    environment = os.environ | {"GRPC_XDS_BOOTSTRAP_CONFIG": json.dumps(config)}
    run = partial(trio.run_process, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, check=False)
    async with trio.open_nursery() as nursery, served(source, control_port):
        backends = [await nursery.start(run, [sys.executable, "-c", BACKEND]) for _ in range(2)]
        one, two = [int(await line_of(each)) for each in backends]
        client = await nursery.start(run, [sys.executable, "-c", CLIENT])

        async def ask() -> str:
            await client.stdin.send_all(b"\n")
            return await line_of(client)

        async def until(port: int) -> None:
            with trio.fail_after(20):
                while (got := await ask()) != str(port):
                    assert got in (str(one), str(two))

        rest = [api_listener("shop", "r"), cluster("a")]
        source["client"] = Snapshot([*rest, endpoints("a", one), route("r", {"a": 1})])
        await until(one)
        source["client"] = Snapshot([*rest, endpoints("a", two), route("r", {"a": 1})])
        await until(two)
        moved = [cluster("b"), endpoints("b", one), route("r", {"b": 1})]
        source["client"] = Snapshot([*rest, endpoints("a", two), *moved])
        await until(one)
        assert source.rejections == {}
        nursery.cancel_scope.cancel()
