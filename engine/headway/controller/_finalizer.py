"""A block guarded by a finalizer: its work is undone before its resource is deleted."""

from __future__ import annotations

from types import TracebackType
from typing import Generic, TypeVar

from headway.client import Client
from headway.errors import Conflict, NotFound
from headway.protobuf import Payload
from headway.resource import Resource

T = TypeVar("T", bound=Payload)

_ATTEMPTS = 5


class Finalizer(Generic[T]):
    """A finalizer on a resource. Created by `Runtime.finalizer`.

    Attributes:
        resource: the last stored state. In the block it has the finalizer, unless both other attributes are false.
        alive: True if the resource is not being deleted and the finalizer is in place. Do the work that has to be
            undone.
        cleaning_up: True if the resource is being deleted and waits for this finalizer. Undo the work. When the block
            ends
            normally, the finalizer is removed, and the resource is deleted unless it has other finalizers.

    Both are false if the clean-up is done and another finalizer still holds the resource.
    """

    def __init__(self, client: Client, resource: Resource[T], name: str) -> None:
        self._client = client
        self._name = name
        self.resource = resource
        self.alive = False
        self.cleaning_up = False

    async def __aenter__(self) -> Finalizer[T]:
        for _ in range(_ATTEMPTS):
            resource = self.resource
            if resource.is_deleting:
                self.cleaning_up = self._name in resource.finalizers
                if not resource.finalizers:
                    # The writer that removed the last finalizer was stopped before it could delete the resource.
                    # Nothing else will.
                    await self._client.delete(resource)
                return self
            if self._name in resource.finalizers:
                self.alive = True
                return self
            try:
                self.resource = await self._client.write(self._with(resource, added=True))
            except Conflict:
                self.resource = await self._again()
        raise Conflict(f"{self.resource.id} was changed repeatedly while finalizer {self._name!r} was being added")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None or not self.cleaning_up:
            return
        for _ in range(_ATTEMPTS):
            try:
                if self._name in self.resource.finalizers:
                    self.resource = await self._client.write(self._with(self.resource, added=False))
                # This delete has no effect while another finalizer holds the resource.
                await self._client.delete(self.resource)
            except Conflict:
                try:
                    self.resource = await self._again()
                except NotFound:
                    return
            else:
                return
        raise Conflict(f"{self.resource.id} was changed repeatedly while finalizer {self._name!r} was being removed")

    def _with(self, resource: Resource[T], *, added: bool) -> Resource[T]:
        """Return the stored resource with the finalizer added or removed. Its version protects the other finalizers."""
        wanted = resource.original()
        name = {self._name}
        wanted.finalizers = wanted.finalizers | name if added else wanted.finalizers - name
        return wanted

    async def _again(self) -> Resource[T]:
        """Read this incarnation again. Raises NotFound if it no longer exists."""
        return await self._client.read(self.resource.type, self.resource.id)
