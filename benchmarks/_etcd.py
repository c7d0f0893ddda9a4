"""A real etcd of one member for the scenarios that need one: durable, on a folder of its own."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks._harness import NotHere
from tests.helpers.etcd_server import NO_ETCD, find_etcd, single_member

MAX_TXN_OPS = 10_000
"""A store is filled by commits of thousands of operations."""


@contextmanager
def etcd_member() -> Iterator[str]:
    """Its endpoint, for the length of the block. Raises NotHere where there is no etcd."""
    binary = find_etcd()
    if binary is None:
        raise NotHere(NO_ETCD)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        options = [f"--max-txn-ops={MAX_TXN_OPS}"]
        with single_member(binary, Path(folder).resolve(), options, durable=True) as server:
            yield server.endpoint


def new_url(endpoint: str) -> str:
    """A store that nobody has used."""
    return f"etcd://{endpoint}/bench/{uuid.uuid4().hex}?max_txn_ops={MAX_TXN_OPS}"
