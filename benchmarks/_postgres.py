"""A real PostgreSQL, durable, in a directory of its own, for the scenarios that need one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks._harness import NotHere
from tests.helpers.postgres_server import NO_POSTGRES, PostgresServer, find_postgres, postgres_server


@contextmanager
def postgres() -> Iterator[PostgresServer]:
    """Run a server for the length of the block. Raise NotHere if none is installed."""
    if find_postgres() is None:
        raise NotHere(NO_POSTGRES)
    with tempfile.TemporaryDirectory(prefix="headway-postgres-") as folder:
        Path(folder).chmod(0o755)
        place = Path(folder) / "server"
        place.mkdir()
        with postgres_server(place) as server:
            yield server
