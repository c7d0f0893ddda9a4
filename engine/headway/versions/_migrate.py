"""Migration of a store to the storage version of each kind, page by page, while others write to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from typing_extensions import override

from headway._gen.headway.migration import v1 as migration_pb
from headway.api import Api, Call, ProgramFailed, ProgramFailedLate, method
from headway.base import Steps, give_way, in_slices
from headway.errors import InvalidArgument, PayloadError, PermissionDenied
from headway.resource import (
    Key,
    Kind,
    Position,
    Registry,
    ResourceId,
    pb,
    quoted,
    resource_id,
    resource_key,
    type_name,
)
from headway.service import AccessChecks, PageTokens, Permissions, admit_within
from headway.storage import Backend, Put, VersionConflict, Within, WrongUid, version_of
from headway.versions._chain import BadConversion, VersionChain, chains_in
from headway.versions._storing import in_storage_version

PAGE = 500
"""The number of resources in one read."""

OPERATIONS = 32
"""The number of resources rewritten in one commit. Every store accepts this many."""

ATTEMPTS = 20
"""The number of attempts to rewrite a resource that other writers keep changing."""

LOSES = (
    "its data would not be read back as it is, or has content that this program cannot hold, such as fields that it "
    "does not know or a time of more digits than microseconds"
)
BUSY = f"it was written {ATTEMPTS} times while it was to be rewritten; run the migration again"


@dataclass(slots=True)
class Migrated:
    """The result of a migration.

    Attributes:
        position: the store's position afterwards.
        looked_at: the number of resources of kinds that have converters.
        rewritten: the number of those that were rewritten.
        apart: the number of resources stored as versions that no converter reaches, by version.
        left: the resources that could not be rewritten, and why.
        forbidden: the number of resources that were left because the caller may not read and write them.
    """

    position: Position
    looked_at: int = 0
    rewritten: int = 0
    apart: Counter[str] = field(default_factory=Counter)
    left: list[tuple[ResourceId, str]] = field(default_factory=list)
    forbidden: int = 0


MigrationProgress = Callable[[Kind, int, int], object]
"""A callback called after each page with the kind and the numbers of resources examined and rewritten so far."""


async def migrate(backend: Backend, registry: Registry, *, progress: MigrationProgress = lambda *_: None) -> Migrated:
    """Rewrite every resource of a kind with converters to the kind's storage version.

    Uid, generation, owner, status, metadata and marks stay as they are; the version of the resource is new. A resource
    that changes during the rewrite is read again, so that no other write is lost. A canceled migration can be run again
    and continues with the rest.
    """
    done = Migrated(backend.position)
    for chain in chains_in(registry):
        before, after = (done.looked_at, done.rewritten), None
        while True:
            after = await migrate_page(backend, chain, done, after)
            progress(chain.storage.kind, done.looked_at - before[0], done.rewritten - before[1])
            if after is None:
                break
    done.position = backend.position
    return done


async def migrate_page(
    backend: Backend,
    chain: VersionChain,
    done: Migrated,
    after: Key | None,
    may: Callable[[pb.Resource], bool] = lambda _: True,
    shows: Callable[[pb.Resource], bool] = lambda _: True,
) -> Key | None:
    """Rewrite one page of a kind's resources and return the key where the next one begins, or None after the last.

    Args:
        done: the totals, to which this page is added.
        may: returns True if a stored resource may be rewritten.
        shows: returns True if the caller may read a stored resource, and so learn its key.
    """
    rewriting = _Page(backend, chain, done, may)
    while True:
        page, _ = await backend.list(chain.storage.kind, Within(), after=after, limit=PAGE)
        last = len(page) - 1
        if len(page) == PAGE:
            # The page ends at the last resource that the caller may read. Without one, the next page belongs to it.
            last = next((each for each in range(last, -1, -1) if shows(page[each])), last)
        for start in range(0, last + 1, OPERATIONS):
            # Give other tasks a turn between two commits, even if there is nothing to commit.
            await give_way()
            await rewriting.rewrite(page[start : min(start + OPERATIONS, last + 1)])
        done.looked_at += last + 1
        if len(page) < PAGE:
            return None
        after = resource_key(page[last])
        if shows(page[last]):
            return after


class _Page:
    """The resources of one page."""

    def __init__(
        self, backend: Backend, chain: VersionChain, done: Migrated, may: Callable[[pb.Resource], bool]
    ) -> None:
        self._backend = backend
        self._chain = chain
        self._kind = chain.storage.kind
        self._done = done
        self._may = may

    async def rewrite(self, resources: Sequence[pb.Resource]) -> None:
        puts = [put for resource in resources if (put := await in_slices(self._put(resource))) is not None]
        if puts:
            await self._commit(puts)

    async def _commit(self, puts: Sequence[Put]) -> None:
        try:
            await self._backend.commit(puts)
        except (VersionConflict, WrongUid):
            # Another writer changed one of them, so commit each on its own.
            for put in puts:
                await self._commit_one(put)
        else:
            self._done.rewritten += len(puts)

    async def _commit_one(self, put: Put) -> None:
        again: Put | None = put
        for _ in range(ATTEMPTS):
            if again is None:
                return
            try:
                await self._backend.commit([again])
            except (VersionConflict, WrongUid):
                again = await self._read_again(put.key)
            else:
                self._done.rewritten += 1
                return
        self._done.left.append((resource_id(put.resource.id), BUSY))

    async def _read_again(self, key: Key) -> Put | None:
        stored, _ = await self._backend.read(self._kind, key)
        return None if stored is None else await in_slices(self._put(stored))

    def _put(self, stored: pb.Resource) -> Steps[Put | None]:
        """Return the operation that rewrites a resource, or None if it needs no rewriting or cannot be rewritten."""
        version = version_of(stored)
        if version == self._chain.storage.name.version:
            return None
        if version not in self._chain:
            self._done.apart[str(type_name(stored.id.type))] += 1  # type: ignore[union-attr]  # stored ids are whole
            return None
        if not self._may(stored):
            self._done.forbidden += 1
            return None
        try:
            made = yield from in_storage_version(self._chain, stored)
        except (BadConversion, PayloadError) as error:
            self._done.left.append((resource_id(stored.id), str(error)))
            return None
        if made is None:
            self._done.left.append((resource_id(stored.id), LOSES))
            return None
        made.version = ""
        return Put(self._kind, resource_key(stored), made, stored.version)


MIGRATION_SERVICE = "headway.migration.v1.MigrationService"


class MigrationApi(Api, Protocol, service=MIGRATION_SERVICE):
    """The migration of stored resources to their storage versions."""

    @method("Migrate", migration_pb.MigrateRequest, migration_pb.MigrateResponse, effect=True)
    async def migrate(self, call: Call, request: migration_pb.MigrateRequest, /) -> migration_pb.MigrateResponse:
        """Rewrite a page of resources."""
        ...


class MigrationService(MigrationApi):
    """Migrate over a store, for the types of a registry.

    Hooks are not called: what readers see of a resource stays the same, except for its version.

    Args:
        permissions: what the caller may migrate: types that they may list everywhere, and of these the resources that
            they may read and write. Without them, every caller may migrate everything.
    """

    def __init__(self, backend: Backend, registry: Registry, permissions: Permissions | None = None) -> None:
        self._backend = backend
        self._access = AccessChecks(permissions, registry)

    @override
    async def migrate(self, call: Call, request: migration_pb.MigrateRequest) -> migration_pb.MigrateResponse:
        """Rewrite one page. A repeated request with the same token continues with the rest of the page."""
        # The reply has the position of the store.
        self._access.check_any_known()
        kept = chains_in(self._access.registry)
        kinds = " ".join(str(chain.storage.name) for chain in kept)
        tokens = PageTokens(
            self._backend, f"Migrate {kinds}", "this server has other types: begin again without a page_token"
        )
        # The index of the kind, and the last key of the page before.
        number, *key = tokens.place(request.page_token, 1, 4) or ("0",)
        if not kept:
            return migration_pb.MigrateResponse(position=self._backend.position.message())
        if number not in map(str, range(len(kept))):
            raise InvalidArgument(
                f"page_token {quoted(request.page_token)} is invalid: begin again without a page_token"
            )
        index, after = int(number), (key[0], key[1], key[2]) if key else None
        chain = kept[index]
        # A token of the caller's own that begins at any key would tell how many keys that they may not read follow it.
        if after is not None and not any(self._access.may_show(type.name, after) for type in chain.types):
            raise InvalidArgument(
                "page_token begins at a resource that you may not read: begin again without a page_token"
            )
        if not self._access.knows(chain.storage.name):
            # The caller has not named the type, so a refusal that does would tell them that it exists.
            raise PermissionDenied("permission denied: you may not list every type that has converters")
        within = admit_within(chain.storage, pb.Tenancy(partition="*", namespace="*"), "", absent_is_any=True)
        self._access.check_list(chain.storage.name, within)
        done = Migrated(self._backend.position)
        try:
            # Earlier commits of this page may have been made, so no error says that nothing was written.
            after = await migrate_page(self._backend, chain, done, after, self._may, self._access.shows)
        except ProgramFailed as failed:
            raise ProgramFailedLate(str(failed), failed.cause) from failed.cause
        if after is not None:
            token = tokens.token(number, *after)
        else:
            token = tokens.token(str(index + 1)) if index + 1 < len(kept) else ""
        group, kind = chain.storage.kind
        return migration_pb.MigrateResponse(
            group=group,
            kind=kind,
            looked_at=done.looked_at,
            rewritten=done.rewritten,
            forbidden=done.forbidden,
            apart=dict(done.apart),
            left=[migration_pb.Left(id=id.message(), why=why) for id, why in done.left],
            next_page_token=token,
            position=self._backend.position.message(),
        )

    def _may(self, stored: pb.Resource) -> bool:
        return self._access.shows(stored) and self._access.may_write(stored)
