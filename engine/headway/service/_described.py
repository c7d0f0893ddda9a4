"""The files that describe payloads, for each set of types that a caller may know of."""

from __future__ import annotations

from collections.abc import Callable

from headway.resource import Registry, TypeName, describe, payload_files
from headway.rpc import DescribedFiles

_KEPT = 32
"""Sets of types whose files are kept. There are as many as there are sets of policies with different rights."""


class DescribedPayloads:
    """The files of the payloads of a registry, with those of the services beneath them."""

    def __init__(self, registry: Registry, services: DescribedFiles) -> None:
        self._registry = registry
        self._services = services
        self._files: dict[frozenset[TypeName], DescribedFiles] = {}

    def files(self, may_know: Callable[[TypeName], bool] | None = None) -> DescribedFiles:
        """Return the files of the types that a caller may know of. Without ``may_know`` these are all types."""
        types = [type for type in self._registry if may_know is None or may_know(type.name)]
        names = frozenset(type.name for type in types)
        files = self._files.pop(names, None)
        if files is None:
            made = payload_files(describe(types), self._services.symbols)
            files = DescribedFiles(made, self._services)
            if len(self._files) >= _KEPT:
                # What was asked for longest ago.
                del self._files[next(iter(self._files))]
        self._files[names] = files
        return files
