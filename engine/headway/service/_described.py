"""Descriptor files of payloads, for each set of types that a caller may know."""

from __future__ import annotations

from collections.abc import Callable

from headway.protobuf import payload_files
from headway.resource import Registry, TypeName, describe
from headway.rpc import DescribedFiles

_KEPT = 32
"""The number of type sets whose files are cached. There are as many sets as combinations of policies with different
rights.
"""


class DescribedPayloads:
    """The descriptor files of a registry's payloads. They build on the files of the services."""

    def __init__(self, registry: Registry, services: DescribedFiles) -> None:
        self._registry = registry
        self._services = services
        self._files: dict[frozenset[TypeName], DescribedFiles] = {}

    def files(self, may_know: Callable[[TypeName], bool] | None = None) -> DescribedFiles:
        """Return the files of all types, or with ``may_know`` of those types that the caller may know."""
        types = [type for type in self._registry if may_know is None or may_know(type.name)]
        names = frozenset(type.name for type in types)
        files = self._files.pop(names, None)
        if files is None:
            made = payload_files(describe(types), self._services.symbols)
            files = DescribedFiles(made, self._services)
            if len(self._files) >= _KEPT:
                # Evict the least recently used set.
                del self._files[next(iter(self._files))]
        self._files[names] = files
        return files
