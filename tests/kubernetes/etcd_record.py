"""A record of the changes of some types in a cluster, read from its etcd without the API server."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from headway.kubernetes._objects import resource_of
from headway.kubernetes._types import KubernetesType
from headway.resource import Kind, resource_key
from tests.helpers.etcd_server import EtcdMember
from tests.helpers.truth import Commit, Record

GROUP = "test.headway.dev"
"""The group of the custom resources."""

PATIENCE = 30.0


class At(NamedTuple):
    revision: int


class EtcdRecord(Record):
    """The record of custom resources in an etcd, from the moment on when it is made.

    A thread follows etcd. `catch_up` adds the changes that it has read to ``commits``.

    Attributes:
        frozen: True while etcd is replaced by a backup: `catch_up` then does nothing.
    """

    def __init__(self, etcd: EtcdMember, types: Mapping[str, KubernetesType[Any]]) -> None:
        """Begin to follow.

        Args:
            types: the types to follow, by their plural.
        """
        super().__init__()
        self._etcd, self._types = etcd, types
        self._kinds: dict[Kind, KubernetesType[Any]] = {each.kind: each for each in types.values()}
        self.frozen = False
        self._changed = threading.Condition()
        self._read: deque[tuple[int, str, dict[str, Any] | None]] = deque()
        self._upto = 0
        self._follow(self.head())

    @property
    def position(self) -> At:
        """The revision up to which the record is complete."""
        return At(self._upto)

    def head(self) -> int:
        """Return the revision of etcd."""
        host, _, port = self._etcd.endpoint.partition(":")
        asked = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
        try:
            asked.request("POST", "/v3/kv/range", json.dumps({"key": "AA=="}))
            return int(json.loads(asked.getresponse().read())["header"]["revision"])
        finally:
            asked.close()

    def catch_up(self) -> None:
        """Take in everything up to the present revision of etcd."""
        if self.frozen:
            return
        head = self.head()
        with self._changed:
            there = self._changed.wait_for(lambda: self._upto >= head, PATIENCE)
        assert there, f"the watch of etcd is at {self._upto}, and etcd at {head}"
        while self._read:
            self._take(*self._read.popleft())

    def _take(self, revision: int, key: str, object: dict[str, Any] | None) -> None:
        parts = key.split("/")
        type = self._types.get(parts[3]) if len(parts) == 6 and parts[2] == GROUP else None
        if type is None:
            return
        place = (type.kind, ("default", parts[4], parts[5]))
        old, new = self._now.pop(place, None), None
        if object is not None:
            object["metadata"]["resourceVersion"] = str(revision)
            new = self._now[place] = resource_of(type, object, self._type_of)
            assert resource_key(new) == place[1]
        self.commits.append(Commit(revision, *place, old, new, None))

    def _type_of(self, api_version: str, kind: str) -> KubernetesType[Any] | None:
        return self._kinds.get((api_version.rpartition("/")[0], kind))

    def put_back(self, revision: int) -> None:
        """Forget everything after a revision, and follow the etcd that was put back to a backup made after it."""
        self._read.clear()
        self.commits = [each for each in self.commits if each.revision <= revision]
        self._now = {(each.kind, each.key): each.new for each in self.commits if each.new is not None}
        for each in self.commits:
            if each.new is None:
                self._now.pop((each.kind, each.key), None)
            else:
                self._now[each.kind, each.key] = each.new
        self._follow(revision)
        self.frozen = False

    def close(self) -> None:
        """Stop following."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _follow(self, after: int) -> None:
        self._upto = after
        host, _, port = self._etcd.endpoint.partition(":")
        asked = http.client.HTTPConnection(host, int(port))
        asked.connect()
        self._socket = asked.sock
        self._thread = threading.Thread(target=self._watch, args=(asked, after), daemon=True)
        self._thread.start()

    def _watch(self, asked: http.client.HTTPConnection, after: int) -> None:
        request = {"key": "AA==", "range_end": "AA==", "start_revision": after + 1}
        try:
            asked.request("POST", "/v3/watch", json.dumps({"create_request": request}))
            with asked.getresponse() as answer:
                while line := answer.readline():
                    self._note(json.loads(line)["result"])
        except (OSError, http.client.HTTPException, ValueError):
            # The etcd was killed, or the record closed.
            return
        finally:
            asked.close()

    def _note(self, result: dict[str, Any]) -> None:
        with self._changed:
            for event in result.get("events", ()):
                kv = event["kv"]
                revision, key = int(kv["mod_revision"]), base64.b64decode(kv["key"]).decode()
                object = None
                if key.startswith(f"/registry/{GROUP}/") and event.get("type") != "DELETE":
                    object = json.loads(base64.b64decode(kv["value"]))
                self._read.append((revision, key, object))
                self._upto = max(self._upto, revision)
            self._changed.notify_all()
