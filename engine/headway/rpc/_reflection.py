"""The standard reflection service (grpc.reflection.v1 and v1alpha). Tools use it to discover a server's methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio
from grpclib.const import Cardinality, Handler, Status

from headway.protobuf import field, message
from headway.rpc._described import DescribedFiles, Method
from headway.rpc._open_streams import OpenStreams
from headway.rpc._services import Services

_VERSIONS = ("v1", "v1alpha")
IDLE = 60.0
"""A stream ends after this many seconds without a request. Tools open a new one automatically."""


@message(name="grpc.reflection.v1.ServerReflectionRequest")
class ServerReflectionRequest:
    """A request. One of the optional fields is set."""

    host: str = field(1)
    file_by_filename: str | None = field(3)
    file_containing_symbol: str | None = field(4)
    list_services: str | None = field(7)


@message(name="grpc.reflection.v1.FileDescriptorResponse")
class Files:
    """A file and everything that it imports."""

    file_descriptor_proto: list[bytes] = field(1)


@message(name="grpc.reflection.v1.ListServiceResponse")
class Listed:
    """The names of the services."""

    service: list[Method] = field(1)


@message(name="grpc.reflection.v1.ErrorResponse")
class Refused:
    """The error of a request that cannot be answered."""

    error_code: int = field(1)
    error_message: str = field(2)


@message(name="grpc.reflection.v1.ServerReflectionResponse")
class ServerReflectionResponse:
    """A response. One of the optional responses is set."""

    valid_host: str = field(1)
    original_request: ServerReflectionRequest | None = field(2)
    file_descriptor_response: Files | None = field(4)
    list_services_response: Listed | None = field(6)
    error_response: Refused | None = field(7)


class Reflection:
    """The reflection service for the services of a registry.

    Args:
        services: the services to list.
        files: the descriptors of the services.
        payloads: returns ``files`` and the descriptors of the payloads that the caller may see. It is called once per
            stream. By default only ``files`` are used.
        streams: limits the number of streams.
    """

    def __init__(
        self,
        services: Services,
        files: DescribedFiles,
        payloads: Callable[[], DescribedFiles] | None = None,
        streams: OpenStreams | None = None,
    ) -> None:
        self._services = services
        self._files = files
        self._payloads = payloads
        self._streams = streams or OpenStreams()

    def __mapping__(self) -> dict[str, Handler]:
        """Return the handler of the method, under the names of both versions."""
        handler = Handler(
            self._answer_all, Cardinality.STREAM_STREAM, ServerReflectionRequest, ServerReflectionResponse
        )
        return {f"/grpc.reflection.{each}.ServerReflection/ServerReflectionInfo": handler for each in _VERSIONS}

    async def _answer_all(self, stream: Any) -> None:
        with self._streams.one(stream):
            files: DescribedFiles | None = None
            while True:
                request: ServerReflectionRequest | None = None
                with trio.move_on_after(IDLE):
                    request = await stream.recv_message()
                if request is None:
                    # The client has ended its side or was idle for too long. Every request has been answered.
                    return
                if files is None:
                    files = self._files if self._payloads is None else self._payloads()
                await stream.send_message(self._answer(request, files))

    def _answer(self, request: ServerReflectionRequest, files: DescribedFiles) -> ServerReflectionResponse:
        answer = ServerReflectionResponse(valid_host=request.host, original_request=request)
        if request.list_services is not None:
            answer.list_services_response = Listed(service=[Method(name=name) for name in self._services.names])
            return answer
        asked, found = request.file_containing_symbol, None
        if asked is not None:
            found = files.containing(asked)
        elif (asked := request.file_by_filename) is not None:
            found = files.file(asked)
        if asked is None:
            answer.error_response = Refused(
                error_code=Status.UNIMPLEMENTED.value, error_message="extensions are not supported"
            )
        elif found is None:
            answer.error_response = Refused(error_code=Status.NOT_FOUND.value, error_message=f"{asked} not found")
        else:
            answer.file_descriptor_response = Files(file_descriptor_proto=found)
        return answer
