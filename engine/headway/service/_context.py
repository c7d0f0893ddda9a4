"""The context of the verbs of a resource service."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headway.base import CallerTurns, KeyTurns
from headway.journal import WriteJournal
from headway.resource import pb
from headway.service._access import AccessChecks
from headway.service._encodings import ResourceEncodings
from headway.service._versions import Versions
from headway.storage import Backend


class Context(NamedTuple):
    """The context of the verbs of one resource service.

    Attributes:
        access: the types, and the checks of the caller's rights.
        versions: converts between versions of a kind.
        turns: the turns of the writes without a version that have lost a race, at their resources.
        recreates: a Write that names the uid of a deleted incarnation creates a new one, as in Consul.
        as_listed: returns the form of a stored resource that lists send; None sends resources as stored.
        journal: records the committed writes with their writers; None records nothing.
        encodings: the bytes of resources that lists send to the network, shared with watches; None keeps none.
        reads: limits how many lists and snapshots for the network hold a part of the store decoded at once; None if the
            store shares its resources.
    """

    backend: Backend
    access: AccessChecks
    versions: Versions
    turns: KeyTurns
    recreates: bool = False
    as_listed: Callable[[pb.Resource], pb.Resource] | None = None
    journal: WriteJournal | None = None
    encodings: ResourceEncodings | None = None
    reads: CallerTurns | None = None
