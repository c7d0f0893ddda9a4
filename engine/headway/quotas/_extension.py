"""Quotas as an extension of an engine."""

from __future__ import annotations

from headway.engine import Extension, Host
from headway.quotas._checks import QuotaRules
from headway.quotas._keeping import rule_of
from headway.quotas._service import QuotaService
from headway.service import Permissions


def quotas_extension(host: Host) -> Extension:
    """Return the extension of an engine whose store keeps quotas."""
    rule_of(host.backend)

    def service(_: Host, permissions: Permissions | None) -> QuotaService:
        elsewhere = None if host.observer is None else host.observer.refused_elsewhere
        return QuotaService(host.backend, host.registry, permissions, elsewhere)

    return Extension(rules=[QuotaRules(host.backend)], services=[service])
