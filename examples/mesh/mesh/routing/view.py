"""The resources that the routing of a service depends on, wherever they come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import headway
from catalog.checks.references import service_id
from catalog.messages import ComputedFailoverPolicy, Service
from mesh.checks.routes import Route
from mesh.messages import DestinationPolicy


class View(Protocol):
    """A way to find resources. An id may have a name that no resource can have; it finds nothing."""

    def service(self, id: headway.ResourceId) -> Service | None:
        """Return the service with an id."""
        ...

    def failover(self, service: headway.ResourceId) -> headway.Resource[ComputedFailoverPolicy] | None:
        """Return the computed failover policy of a service."""
        ...

    def policy(self, service: headway.ResourceId) -> headway.Resource[DestinationPolicy] | None:
        """Return the destination policy of a service."""
        ...

    def routes(self, parent: headway.ResourceId) -> Sequence[headway.Resource[Any]]:
        """Return the routes of all kinds that have a service as a parent."""
        ...


def parents(route: headway.Resource[Any]) -> list[headway.ResourceId]:
    """Return the services whose traffic a route routes, each once and in order."""
    data: Route = route.data
    return list(dict.fromkeys(service_id(each.ref, route.id) for each in data.parent_refs if each.ref is not None))
