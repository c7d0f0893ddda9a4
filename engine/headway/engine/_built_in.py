"""The extensions that every engine has, and workers. Nothing else in this package knows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from headway.builtin import builtin_app
from headway.engine._extension import Extension, Host
from headway.resource import ResourceType
from headway.rpc import StreamDecoder
from headway.service import WATCH_LIST, WatchDecoder, unregistered
from headway.subscription import Topic

if TYPE_CHECKING:
    from headway.peering import PeerLinks
    from headway.versions import Comparison


def built_in(peer_links: PeerLinks | None = None) -> Sequence[Callable[[Host], Extension]]:
    """Return functions that make the extensions of an engine. A test may give the links to its peers."""
    # Imported here, because a program that only connects to engines needs none of it.
    from headway.pauses import pauses_extension
    from headway.peering import peering_extension
    from headway.quotas import quotas_extension
    from headway.subscribing import subscribing_extension
    from headway.versions import versions_extension
    from headway.why import why_extension

    return [
        versions_extension,
        _owners_of_fields,
        _controllers,
        subscribing_extension,
        pauses_extension,
        quotas_extension,
        partial(peering_extension, links=peer_links),
        why_extension,
    ]


def stream_decoders() -> Mapping[str, Callable[[], StreamDecoder]]:
    """Return the decoders of streams of every engine, by path."""
    from headway.subscribing import SUBSCRIBE, SubscribeDecoder

    return {WATCH_LIST: WatchDecoder, SUBSCRIBE: SubscribeDecoder}


def _controllers(host: Host) -> Extension:
    """Return Headway's own controllers."""
    return Extension(apps=[builtin_app(host.registry, partial(unregistered, host.backend, host.registry))])


def _owners_of_fields(host: Host) -> Extension:
    """Return the extension that keeps the owners of fields, if a type has any."""
    if not any(type.owned_fields for type in host.registry):
        return Extension()
    from headway.fields import fields_extension

    return fields_extension(host)


def of_workers(
    *, attend: bool
) -> tuple[Sequence[Callable[[Host], Extension]], Mapping[str, Callable[[], StreamDecoder]]]:
    """Return functions that make the extensions of workers, and decoders of the streams that these open, by path.

    Args:
        attend: answer the questions of the server.
    """
    from headway.pauses import pauses_extension
    from headway.why import ATTEND, QuestionDecoder, answering_extension

    return [pauses_extension, partial(answering_extension, attends=attend)], {ATTEND: QuestionDecoder}


def comparison_of(types: Iterable[ResourceType[Any]], topics: Iterable[Topic[Any]] = ()) -> Comparison:
    """Return the comparison of a program's types and topics with those of the servers of a channel."""
    # A client lists and deletes resources of these types, too, whether or not its program imports them.
    from headway.versions import Comparison

    return Comparison(types, topics)
