"""Topics in commands: their names, and the text of their events."""

from __future__ import annotations

import base64
from typing import Any

from headway.base import plain
from headway.cli._connection import Connection
from headway.cli._names import find_listed
from headway.cli._output import Output, json_text
from headway.cli._running import Usage
from headway.client import Subject
from headway.protobuf import redacted
from headway.resource import DescribedTopic
from headway.subscribing import Published
from headway.subscription import Topic


def find_subject(written: str, partition: str, namespace: str, prefix: str, connection: Connection) -> Subject:
    """Return a type in a tenancy, a topic such as ``rates``, or one of its subjects, such as ``rates/EUR``.

    A type comes before a topic of the same name. Raises Usage.
    """
    name, slash, subject = written.partition("/")
    topics = [topic for topic in connection.topics if topic.name == name]
    try:
        type = find_listed(written, partition, namespace, prefix, connection.registry)
    except Usage:
        if not topics:
            raise
    else:
        return Subject(type, partition=partition, namespace=namespace, name_prefix=prefix)
    if (partition, namespace, prefix) != ("*", "*", ""):
        raise Usage(f"{written} is a topic, which has no --partition, --namespace or --prefix: leave them out")
    if slash and not subject:
        raise Usage(f"{written} has no subject: give one, such as {name}/EUR, or leave out the slash")
    if not subject and not topics[0].wildcard:
        raise Usage(f"topic {name} has no wildcard: name one of its subjects, such as {name}/EUR")
    return Subject(_declared(topics[0]), subject)


def _declared(topic: DescribedTopic) -> Topic[Any]:
    # The snapshot is the server's.
    return Topic(topic.name, topic.payload, lambda _: {}, wildcard=topic.wildcard)


def event_text(happened: str, event: Published, output: Output) -> str:
    """Return an event of a topic as the output of `headway watch`."""
    # Imported here, because it is slow to import.
    from headway.manifest import as_object, as_yaml

    data = event.data
    value = base64.b64encode(data).decode() if isinstance(data, bytes) else as_object(redacted(data))
    shown = {"event": happened, "topic": event.topic.name, "subject": event.subject, "data": value}
    if output == "json":
        return json_text(shown)
    if output == "yaml":
        del shown["event"]
        return f"--- # {happened}\n{as_yaml(shown)}".rstrip("\n")
    return f"{event.topic.name:16} {happened:8} {plain(event.subject):32} {json_text(value)}"
