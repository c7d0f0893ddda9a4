"""The migration service: the server that has the store open rewrites it, one page per request."""

from __future__ import annotations

import json
from typing import Any

from grpclib.const import Handler

from headway._gen.headway.migration import v1 as migration_pb
from headway.resource import Key, Registry, VersionChain, pb, quoted
from headway.service._access import Access, Authorizer
from headway.service._admission import admit_within
from headway.service._bounds import check_text
from headway.service._handlers import unary_handlers
from headway.service._migrate import Migrated, migrate_page
from headway.service._refusals import STORE_ERRORS, invalid, refusal
from headway.storage import Backend

MIGRATION_SERVICE = "headway.migration.v1.MigrationService"


class MigrationService:
    """Migrate over a store, for the types of a registry. Its methods are grpclib handlers.

    Hooks are not called: what readers see of a resource stays the same, except for its version.

    Args:
        authorizer: decides what the caller may migrate: types that they may list everywhere, and of these the resources
            that they may read and write. Without one, every caller may migrate everything.
    """

    def __init__(self, backend: Backend, registry: Registry, authorizer: Authorizer | None = None) -> None:
        self._backend = backend
        self._registry = registry
        self._authorizer = authorizer
        self._access = Access(authorizer, registry)

    async def migrate(self, message: migration_pb.MigrateRequest) -> migration_pb.MigrateResponse:
        """Rewrite one page. A repeated request with the same token continues with the rest of the page."""
        chains = list(self._registry.chains)
        place, after = _place(message.page_token, chains)
        done = Migrated(self._backend.position)
        if not chains:
            return migration_pb.MigrateResponse(position=done.position.message())
        chain = chains[place]
        within = admit_within(chain.storage, pb.Tenancy(partition="*", namespace="*"), "", absent_is_any=True)
        self._access.check_list(chain.storage.name, within)
        try:
            after = await migrate_page(self._backend, chain, done, after, self._may)
        except STORE_ERRORS as error:
            raise refusal(error, write=True) from error
        if after is not None:
            token = json.dumps([place, *after])
        else:
            token = json.dumps([place + 1]) if place + 1 < len(chains) else ""
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
        return self._authorizer is None or (self._access.shows(stored) and self._access.may_write(stored))

    def __mapping__(self) -> dict[str, Handler]:
        """Return the handlers by path."""
        return unary_handlers(
            MIGRATION_SERVICE, Migrate=(self.migrate, migration_pb.MigrateRequest, migration_pb.MigrateResponse)
        )


def _place(token: str, chains: list[VersionChain]) -> tuple[int, Key | None]:
    """Return the index of the page's kind, and the key after which the page begins."""
    if not token:
        return 0, None
    check_text("page_token", token)
    try:
        place, *key = json.loads(token)
    except (ValueError, TypeError):
        place, key = None, []
    right: Any = type(place) is int and 0 <= place < len(chains)
    # Names are ASCII, and not every store can look up a lone surrogate.
    if not right or len(key) not in (0, 3) or not all(isinstance(each, str) and each.isascii() for each in key):
        raise invalid(f"page_token {quoted(token)} is not valid for this server: begin without one")
    return place, (key[0], key[1], key[2]) if key else None
