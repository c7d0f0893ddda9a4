"""Subscriptions as an extension of an engine."""

from __future__ import annotations

from headway.engine import Extension, Host
from headway.subscribing._admission import SubscribePermissions
from headway.subscribing._service import SUBSCRIBE, OpenSubscriptions, SubscribeService
from headway.subscribing._wire import SubscribeEncoder


def subscribing_extension(host: Host) -> Extension:
    """Return the extension of an engine that sends subscriptions."""
    streams = OpenSubscriptions()
    host.ending.callback(streams.end)

    def service(_: Host, permissions: SubscribePermissions | None) -> SubscribeService:
        return SubscribeService(
            host.backend, host.registry, host.topics, permissions, forms=host.forms, streams=streams
        )

    return Extension(services=[service], encoders=[lambda encodings: {SUBSCRIBE: SubscribeEncoder(encodings)}])
