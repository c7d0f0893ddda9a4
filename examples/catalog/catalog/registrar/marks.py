"""The metadata that a registrar writes into its resources, and the name of its lease."""

from __future__ import annotations

LEASES = "registrars/"
"""Registrar ``web-host-1`` holds the lease ``registrars/web-host-1`` while it runs."""

REGISTRAR = "registrar"
"""The metadata entry of a Workload or HealthStatus with the name of its registrar."""
REGISTERED = {"registered": "true"}
"""The metadata entry that a Workload or HealthStatus must also have. A scope selects by it, whatever the registrar."""
TERM = "registrar-term"
"""Their metadata entry with the term of the lease under which they were written."""
CHECKS = "registrar-checks"
"""The metadata entry of a Workload with the number of its HealthStatuses that the registrar writes."""
DEREGISTER_AFTER = "deregister-critical-after"
"""The metadata entry of a Workload with the seconds after which it is deleted, once its registrar is gone."""


def gone_name(workload: str) -> str:
    """Return the name of the HealthStatus that says that the registrar of a workload is gone."""
    return f"{workload}-registrar"
