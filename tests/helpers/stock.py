"""A resource service and its client on unmodified grpclib, asyncio and betterproto2, without Headway's code."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from betterproto2.grpclib import ServiceBase, ServiceStub
from grpclib.const import Cardinality, Handler

from headway.resource import pb

_SERVICE = "/headway.resource.v1.ResourceService"


class StockClient(ServiceStub):
    """The client that betterproto2 generates, with two methods."""

    async def read(self, message: pb.ReadRequest) -> pb.ReadResponse:
        return await self._unary_unary(f"{_SERVICE}/Read", message, pb.ReadResponse)

    async def watch_list(self, message: pb.WatchListRequest) -> AsyncIterator[pb.WatchEvent]:
        async for response in self._unary_stream(f"{_SERVICE}/WatchList", message, pb.WatchEvent):
            yield response


class StockServer(ServiceBase):
    """The server that betterproto2 generates, with WatchList only."""

    def watch_list(self, message: pb.WatchListRequest) -> AsyncIterator[pb.WatchEvent]:
        raise NotImplementedError

    async def _serve(self, stream: Any) -> None:
        await self._call_rpc_handler_server_stream(self.watch_list, stream, await stream.recv_message())

    def __mapping__(self) -> dict[str, Handler]:
        return {
            f"{_SERVICE}/WatchList": Handler(self._serve, Cardinality.UNARY_STREAM, pb.WatchListRequest, pb.WatchEvent)
        }
