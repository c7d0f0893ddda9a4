"""The names of identities: SPIFFE ids."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from catalog.types import WORKLOAD_IDENTITY
from mesh.proxies.names import Mesh

_TRUST_DOMAIN: Final = re.compile(r"[a-z0-9._-]{1,255}")


class IdentityKey(NamedTuple):
    """The key of a workload identity."""

    partition: str
    namespace: str
    name: str


def spiffe_id(mesh: Mesh, identity: IdentityKey) -> str:
    """Return the SPIFFE id of an identity, such as ``spiffe://cluster.local/ap/default/ns/default/identity/web``.

    Raises:
        InvalidArgument: a part of the key is not a valid name, so that the id could be that of another identity.
    """
    partition, namespace, name = identity
    return mesh.identity(WORKLOAD_IDENTITY.id(name, partition=partition, namespace=namespace), name)


def check_trust_domain(mesh: Mesh) -> None:
    """Raise ValueError unless the trust domain of a mesh may be part of a SPIFFE id."""
    if not _TRUST_DOMAIN.fullmatch(mesh.trust_domain):
        raise ValueError(
            f"the trust_domain is {mesh.trust_domain[:100]!r}: it must have 1 to 255 lower-case letters, digits, "
            "'.', '_' and '-', such as 'cluster.local'"
        )
