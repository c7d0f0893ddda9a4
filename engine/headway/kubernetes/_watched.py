"""What a watch asks for, and the events that it brings."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

from headway.api import Code, NotBegun
from headway.base import chance
from headway.kubernetes._any_json import parsed
from headway.kubernetes._errors import ApiStatus, Request, refused_by
from headway.kubernetes._http import ApiServer
from headway.kubernetes._objects import PARTITION
from headway.kubernetes._types import METADATA, KubernetesType
from headway.resource import Key, Within

METADATA_LIST = METADATA.format("List")

_LASTS = (300, 600)
"""The seconds after which a server ends a watch, at random, so that not all watches begin anew at once."""


class Watched:
    """What a watch has asked for: a type within a namespace, by names and labels.

    Attributes:
        path: the path of the collection.
        params: the parameters that select a part of it.
    """

    def __init__(self, type: KubernetesType[Any], range: Within) -> None:
        self.type = type
        self.range = range
        self.path = type.path("" if range.namespace == "*" else range.namespace)
        labels = [f"{key}={value}" for key, value in range.metadata]
        self.params: Mapping[str, str] = {"labelSelector": ",".join(labels)} if labels else {}

    def key_of(self, meta: Mapping[str, Any]) -> Key:
        """Return the key of an object."""
        namespace = meta.get("namespace", "")
        return (PARTITION if namespace else "", namespace, meta["name"])

    @asynccontextmanager
    async def opened(
        self, server: ApiServer, after: int | None, seconds: int = 0
    ) -> AsyncIterator[AsyncIterator[tuple[str, dict[str, Any]]]]:
        """Open a watch after a revision, or with a snapshot, and yield its events."""
        begin = (
            {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            if after is None
            else {"resourceVersion": str(after)}
        )
        params = {
            **self.params,
            **begin,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds or int(chance.uniform(*_LASTS))),
        }
        opened = server.watch(self.path, params, accept=self.type.accept())
        async with opened as lines, aclosing(_events(lines, self.path)) as events:
            yield events


async def _events(lines: AsyncIterator[bytes], path: str) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
    """Yield the events of a watch. Raises the error that one of them is."""
    async for line in lines:
        try:
            event = parsed(line)
        except ValueError:
            # Without its text, which may be long or secret.
            raise NotBegun(Code.UNAVAILABLE, f"an event of the watch of {path} is no JSON") from None
        if event["type"] == "ERROR":
            raise refused_by(ApiStatus(event["object"], 500), Request("GET", path, "the API server"))
        yield event["type"], event["object"]
