"""The standard services of a server that listens: health and reflection."""

from __future__ import annotations

from functools import partial
from importlib.resources import files

from headway.access import Authorizer, Caller, Guarded
from headway.resource import Registry
from headway.rpc import DescribedFiles, Health, OpenStreams, Reflection, Services
from headway.service import DescribedPayloads


def add_standard_services(services: Services, registry: Registry, access: Authorizer | None) -> Health:
    """Add health and reflection to the services of a server, and return its health.

    Every caller sees the same health. Reflection describes a payload only to a caller with some right to its type.
    """
    described = DescribedFiles.of_set((files("headway._gen") / "descriptors.bin").read_bytes())
    payloads = DescribedPayloads(registry, described)
    streams = OpenStreams()
    health = Health(streams=streams)

    def reflection(caller: Caller) -> Reflection:
        return Reflection(services, described, partial(payloads.files, caller.may_know), streams)

    services.add(health)
    if access is None:
        services.add(Reflection(services, described, payloads.files, streams))
    else:
        services.add(Guarded(reflection, access, registry))
    health.add(services.names)
    return health
