"""The standard reflection service (grpc.reflection.v1 and v1alpha): tools ask it what can be called, and how."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from grpclib.const import Cardinality, Handler, Status

from headway.resource import decode, field, message
from headway.rpc._services import Services

_VERSIONS = ("v1", "v1alpha")


@message(name="google.protobuf.FileDescriptorSet")
class DescriptorSet:
    """What protoc writes with --descriptor_set_out; each file is kept as its bytes, which are what is asked for."""

    file: list[bytes] = field(1)


@message(name="google.protobuf.DescriptorProto")
class Named:
    """As much of a message's descriptor as has names."""

    name: str = field(1)
    nested_type: list[Named] = field(3)


@message(name="google.protobuf.MethodDescriptorProto")
class Method:
    """Its name: a listed service is no more either."""

    name: str = field(1)


@message(name="google.protobuf.ServiceDescriptorProto")
class Described:
    """As much of a service's descriptor as has names."""

    name: str = field(1)
    method: list[Method] = field(2)


@message(name="google.protobuf.FileDescriptorProto")
class File:
    """As much of a file's descriptor as has names."""

    name: str = field(1)
    package: str = field(2)
    dependency: list[str] = field(3)
    message_type: list[Named] = field(4)
    service: list[Described] = field(6)


@message(name="grpc.reflection.v1.ServerReflectionRequest")
class ReflectionRequest:
    """One question."""

    host: str = field(1)
    file_by_filename: str | None = field(3)
    file_containing_symbol: str | None = field(4)
    list_services: str | None = field(7)


@message(name="grpc.reflection.v1.FileDescriptorResponse")
class Files:
    """A file and all that it imports."""

    file_descriptor_proto: list[bytes] = field(1)


@message(name="grpc.reflection.v1.ListServiceResponse")
class Listed:
    """The services' names."""

    service: list[Method] = field(1)


@message(name="grpc.reflection.v1.ErrorResponse")
class Refused:
    """Why there is no answer."""

    error_code: int = field(1)
    error_message: str = field(2)


@message(name="grpc.reflection.v1.ServerReflectionResponse")
class ReflectionResponse:
    """One answer."""

    valid_host: str = field(1)
    original_request: ReflectionRequest | None = field(2)
    file_descriptor_response: Files | None = field(4)
    list_services_response: Listed | None = field(6)
    error_response: Refused | None = field(7)


class Reflection:
    """Answers for the services of a registry, out of a set of descriptors as protoc writes it."""

    def __init__(self, services: Services, descriptors: bytes) -> None:
        self._services = services
        self._files: dict[str, tuple[bytes, list[str]]] = {}
        self._symbols: dict[str, str] = {}
        for data in decode(DescriptorSet, descriptors).file:
            file = decode(File, data)
            self._files[file.name] = (data, file.dependency)
            for symbol in _symbols(file):
                self._symbols[symbol] = file.name

    def __mapping__(self) -> dict[str, Handler]:
        """The same method under the names of both versions."""
        handler = Handler(self._answer_all, Cardinality.STREAM_STREAM, ReflectionRequest, ReflectionResponse)
        return {f"/grpc.reflection.{each}.ServerReflection/ServerReflectionInfo": handler for each in _VERSIONS}

    async def _answer_all(self, stream: Any) -> None:
        while (request := await stream.recv_message()) is not None:
            await stream.send_message(self._answer(request))

    def _answer(self, request: ReflectionRequest) -> ReflectionResponse:
        answer = ReflectionResponse(valid_host=request.host, original_request=request)
        if request.list_services is not None:
            answer.list_services_response = Listed(service=[Method(name=name) for name in self._services.names])
            return answer
        name = request.file_by_filename
        if request.file_containing_symbol is not None:
            name = self._symbols.get(request.file_containing_symbol)
        if name in self._files:
            answer.file_descriptor_response = Files(file_descriptor_proto=list(self._with_imports(name, set())))
        elif name is None and request.file_containing_symbol is None:
            answer.error_response = Refused(
                error_code=Status.UNIMPLEMENTED.value, error_message="extensions are not described here"
            )
        else:
            asked = request.file_containing_symbol or name
            answer.error_response = Refused(
                error_code=Status.NOT_FOUND.value, error_message=f"{asked} is not described here"
            )
        return answer

    def _with_imports(self, name: str, seen: set[str]) -> Iterator[bytes]:
        if name not in seen and name in self._files:
            seen.add(name)
            data, imports = self._files[name]
            yield data
            for each in imports:
                yield from self._with_imports(each, seen)


def _symbols(file: File) -> Iterator[str]:
    prefix = f"{file.package}." if file.package else ""
    for service in file.service:
        yield prefix + service.name
        yield from (f"{prefix}{service.name}.{method.name}" for method in service.method)
    for each in file.message_type:
        yield from _within(prefix, each)


def _within(prefix: str, each: Named) -> Iterator[str]:
    yield prefix + each.name
    for inner in each.nested_type:
        yield from _within(f"{prefix}{each.name}.", inner)
