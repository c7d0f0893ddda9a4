"""The standard reflection service (grpc.reflection.v1 and v1alpha). Tools use it to discover a server's methods.

The service answers from descriptors of .proto files, indexed by file name and by the full names that the files define.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ClassVar

import trio
from grpclib.const import Status

from headway.api import Api, Call, Cardinality, Duplex, Method
from headway.protobuf import FileProto, FileSet, MessageProto, decode, field, message
from headway.rpc._limits import OpenStreams, bound_request
from headway.rpc._services import Services

_VERSIONS = ("v1", "v1alpha")
IDLE = 60.0
"""A stream ends after this many seconds without a request. Tools open a new one automatically."""


class DescribedFiles:
    """A set of described files, which may import each other and the files of ``beneath``.

    Attributes:
        symbols: the name of the file that defines each full name, without those in ``beneath``.
    """

    def __init__(self, files: Iterable[bytes], beneath: DescribedFiles | None = None) -> None:
        self._beneath = beneath
        self._files: dict[str, tuple[bytes, list[str]]] = {}
        self.symbols: dict[str, str] = {}
        # A cache: for each file name, the file and everything that it imports.
        self._answers: dict[str, list[bytes]] = {}
        for data in files:
            file = decode(FileProto, data)
            self._files[file.name] = (data, file.dependencies)
            for symbol in _symbols(file):
                self.symbols[symbol] = file.name

    @classmethod
    def of_set(cls, descriptors: bytes) -> DescribedFiles:
        """Return the files of a descriptor set, as protoc writes it."""
        return cls(decode(FileSet, descriptors).files)

    def file(self, name: str) -> list[bytes] | None:
        """Return a file and everything that it imports, or None if no file has this name."""
        if self._file(name) is None:
            return None
        answer = self._answers.get(name)
        if answer is None:
            answer = self._answers[name] = list(self._with_imports(name))
        return answer

    def containing(self, symbol: str) -> list[bytes] | None:
        """Return the file that defines a full name, and everything that it imports, or None if none defines it."""
        name = self.symbols.get(symbol)
        if name is not None:
            return self.file(name)
        return None if self._beneath is None else self._beneath.containing(symbol)

    def _file(self, name: str) -> tuple[bytes, list[str]] | None:
        found = self._files.get(name)
        return found if found is not None or self._beneath is None else self._beneath._file(name)

    def _with_imports(self, name: str) -> Iterator[bytes]:
        waiting, seen = [name], {name}
        while waiting:
            found = self._file(waiting.pop())
            if found is not None:
                data, imports = found
                yield data
                new = [each for each in dict.fromkeys(imports) if each not in seen]
                seen.update(new)
                waiting += reversed(new)


def _symbols(file: FileProto) -> Iterator[str]:
    prefix = f"{file.package}." if file.package else ""
    for service in file.services:
        yield prefix + service.name
        yield from (f"{prefix}{service.name}.{method.name}" for method in service.methods)
    yield from (prefix + each.name for each in file.enums)
    for each in file.messages:
        yield from _within(prefix, each)


def _within(prefix: str, each: MessageProto) -> Iterator[str]:
    yield prefix + each.name
    yield from (f"{prefix}{each.name}.{enum.name}" for enum in each.enums)
    for inner in each.nested:
        yield from _within(f"{prefix}{each.name}.", inner)


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


@message(name="grpc.reflection.v1.ServiceResponse")
class ListedService:
    """A service in a list of services."""

    name: str = field(1)


@message(name="grpc.reflection.v1.ListServiceResponse")
class Listed:
    """The names of the services."""

    service: list[ListedService] = field(1)


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


class Reflection(Api):
    """The reflection service for the services of a registry.

    Args:
        services: the services to list.
        files: the descriptors of the services.
        payloads: returns ``files`` and the descriptors of the payloads that the caller may see. It is called once per
            stream. By default only ``files`` are used.
        streams: limits the number of streams.
    """

    methods: ClassVar[Mapping[str, Method]] = {
        f"/grpc.reflection.{each}.ServerReflection/ServerReflectionInfo": Method(
            "answer_all", Cardinality.STREAM_STREAM, ServerReflectionRequest, ServerReflectionResponse
        )
        for each in _VERSIONS
    }

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

    async def answer_all(self, call: Call, stream: Duplex) -> None:
        """Answer the requests of a client, until it ends its side or is idle for too long."""
        bound_request(call)
        with self._streams.one(call):
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
            answer.list_services_response = Listed(service=[ListedService(name=name) for name in self._services.names])
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
