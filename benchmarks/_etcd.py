"""A real etcd with one durable member, in a directory of its own, for the scenarios that need one."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks._harness import NotHere
from tests.helpers.etcd_server import NO_ETCD, find_etcd, single_member

MAX_TXN_OPS = 10_000
"""The limit on operations per transaction. The commits that fill a store have thousands."""


@contextmanager
def etcd_member() -> Iterator[str]:
    """Run a member for the length of the block, and yield its endpoint. Raise NotHere if no etcd is installed."""
    binary = find_etcd()
    if binary is None:
        raise NotHere(NO_ETCD)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        options = [f"--max-txn-ops={MAX_TXN_OPS}"]
        with single_member(binary, Path(folder).resolve(), options, durable=True) as server:
            yield server.endpoint


def new_url(endpoint: str) -> str:
    """Return the url of a new store."""
    return f"etcd://{endpoint}/bench/{uuid.uuid4().hex}?max_txn_ops={MAX_TXN_OPS}"
