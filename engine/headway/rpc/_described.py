"""Descriptors of .proto files, indexed by file name and by the full names that the files define."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headway.protobuf import decode, field, message


@message(name="google.protobuf.FileDescriptorSet")
class DescriptorSet:
    """The output of protoc's --descriptor_set_out. Each file stays encoded, because reflection sends bytes."""

    file: list[bytes] = field(1)


@message(name="google.protobuf.EnumDescriptorProto")
class Enumeration:
    """The name of an enum."""

    name: str = field(1)


@message(name="google.protobuf.DescriptorProto")
class Named:
    """The names in a message's descriptor."""

    name: str = field(1)
    nested_type: list[Named] = field(3)
    enum_type: list[Enumeration] = field(4)


@message(name="google.protobuf.MethodDescriptorProto")
class Method:
    """The name of a method. The same message, with only a name, stands for a service in a list of services."""

    name: str = field(1)


@message(name="google.protobuf.ServiceDescriptorProto")
class Described:
    """The names in a service's descriptor."""

    name: str = field(1)
    method: list[Method] = field(2)


@message(name="google.protobuf.FileDescriptorProto")
class File:
    """The names in a file's descriptor."""

    name: str = field(1)
    package: str = field(2)
    dependency: list[str] = field(3)
    message_type: list[Named] = field(4)
    enum_type: list[Enumeration] = field(5)
    service: list[Described] = field(6)


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
            file = decode(File, data)
            self._files[file.name] = (data, file.dependency)
            for symbol in _symbols(file):
                self.symbols[symbol] = file.name

    @classmethod
    def of_set(cls, descriptors: bytes) -> DescribedFiles:
        """Return the files of a descriptor set, as protoc writes it."""
        return cls(decode(DescriptorSet, descriptors).file)

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


def _symbols(file: File) -> Iterator[str]:
    prefix = f"{file.package}." if file.package else ""
    for service in file.service:
        yield prefix + service.name
        yield from (f"{prefix}{service.name}.{method.name}" for method in service.method)
    yield from (prefix + each.name for each in file.enum_type)
    for each in file.message_type:
        yield from _within(prefix, each)


def _within(prefix: str, each: Named) -> Iterator[str]:
    yield prefix + each.name
    yield from (f"{prefix}{each.name}.{enum.name}" for enum in each.enum_type)
    for inner in each.nested_type:
        yield from _within(f"{prefix}{each.name}.", inner)
