"""A block guarded by a finalizer: what is done in it is undone before its resource is gone."""

from __future__ import annotations

from types import TracebackType
from typing import Generic, TypeVar

from headway.client import Client
from headway.errors import Conflict, NotFound
from headway.resource import Payload, Resource

T = TypeVar("T", bound=Payload)

_ATTEMPTS = 5


class Finalizer(Generic[T]):
    """One finalizer of one resource. Made by `Runtime.finalizer`.

    Attributes:
        resource: as it was stored last; in the block it has the finalizer, unless neither of the others is true.
        alive: the resource is not being deleted, and the finalizer is in place: do what has to be undone.
        cleaning_up: the resource is being deleted, and waits for this finalizer: undo it. When the block ends normally,
            the finalizer is removed, and the resource deleted if no other one holds it.

    Neither is true when the clean-up is done and another finalizer holds the resource.
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
                    # Who removed the last one was stopped before it could delete the resource, and nobody else will.
                    await self._client.delete(resource)
                return self
            if self._name in resource.finalizers:
                self.alive = True
                return self
            try:
                self.resource = await self._client.write(self._with(resource, added=True))
            except Conflict:
                self.resource = await self._again()
        raise Conflict(f"{self.resource.id} kept being changed by others while finalizer {self._name!r} was added")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None or not self.cleaning_up:
            return
        for _ in range(_ATTEMPTS):
            try:
                if self._name in self.resource.finalizers:
                    self.resource = await self._client.write(self._with(self.resource, added=False))
                # What another finalizer holds is left as it is by this.
                await self._client.delete(self.resource)
            except Conflict:
                try:
                    self.resource = await self._again()
                except NotFound:
                    return
            else:
                return
        raise Conflict(f"{self.resource.id} kept being changed by others while finalizer {self._name!r} was removed")

    def _with(self, resource: Resource[T], *, added: bool) -> Resource[T]:
        """The resource as it is stored, with the finalizer added or removed; the others stay, by its version."""
        wanted = resource.original()
        name = {self._name}
        wanted.finalizers = wanted.finalizers | name if added else wanted.finalizers - name
        return wanted

    async def _again(self) -> Resource[T]:
        """This incarnation as the store has it. Raises NotFound when it is gone."""
        return await self._client.read(self.resource.type, self.resource.id)
