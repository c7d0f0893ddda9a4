"""The context of the verbs of a resource service."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headway.base import CallerTurns, KeyTurns
from headway.journal import WriteJournal
from headway.resource import Registry, pb
from headway.service._access import AccessChecks, Permissions, WriteRules
from headway.service._encodings import ResourceEncodings
from headway.service._forms import Forms
from headway.storage import Backend


class Context:
    """What the verbs of a resource service work on. Each verb is a function of a context, a `Call` and a request.

    Args:
        permissions: what each caller may do; without them, every caller may do everything.
        forms: how the resources of each type are stored and shown; shared by all services over a store.
        privileged: True for Headway's own controllers. Rules of extensions may refuse to others what these write.
        rules: the rules of extensions for writes.
        journal: records the committed writes with their writers; None records nothing.
        encodings: the bytes of resources that lists send to the network, shared with watches; None keeps none.
        reads: limits how many lists and snapshots for the network hold a part of the store decoded at once, and is
            shared by all services over a store; None if the store shares its resources.
        turns: the turns of the writes without a version that have lost a race, at their resources; shared, too.

    Attributes:
        access: the types, and the checks of the caller's rights.
        recreates: True if a Write that names the uid of a deleted incarnation creates a new one, as in Consul.
        as_listed: returns the form of a stored resource that lists send; None sends resources as stored.
    """

    recreates = False
    as_listed: Callable[[pb.Resource], pb.Resource] | None = None

    def __init__(
        self,
        backend: Backend,
        registry: Registry,
        permissions: Permissions | None = None,
        *,
        forms: Forms | None = None,
        privileged: bool = False,
        rules: Sequence[WriteRules] = (),
        journal: WriteJournal | None = None,
        encodings: ResourceEncodings | None = None,
        reads: CallerTurns | None = None,
        turns: KeyTurns | None = None,
    ) -> None:
        self.backend = backend
        self.access = AccessChecks(permissions, registry, privileged=privileged, rules=rules)
        self.forms = forms or Forms()
        self.turns = turns or KeyTurns()
        self.journal, self.encodings, self.reads = journal, encodings, reads
