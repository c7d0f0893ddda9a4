"""Owned fields as an extension of an engine."""

from __future__ import annotations

from headway.engine import Extension, Host
from headway.fields._forms import with_owners


def fields_extension(_: Host) -> Extension:
    """Return the extension of an engine that keeps the owners of fields."""
    return Extension(openings=[_keep_owners])


async def _keep_owners(host: Host) -> None:
    host.forms = with_owners(host.forms, host.registry)
