"""Versions as an extension of an engine."""

from __future__ import annotations

from headway.engine import Extension, Host
from headway.service import Permissions
from headway.versions._chain import chains_in
from headway.versions._forms import Versions
from headway.versions._migrate import MigrationService
from headway.versions._records import record_schemas


def versions_extension(_: Host) -> Extension:
    """Return the extension of an engine that converts between versions, and refuses schemas that misread its store."""
    return Extension(services=[_migration], openings=[_compare_schemas])


async def _compare_schemas(host: Host) -> None:
    replaced = await record_schemas(host.backend, host.registry)
    if replaced or chains_in(host.registry):
        host.forms = Versions(host.registry, host.report, replaced=replaced)


def _migration(host: Host, permissions: Permissions | None) -> MigrationService:
    return MigrationService(host.backend, host.registry, permissions)
