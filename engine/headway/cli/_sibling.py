"""One process of `headway serve --processes`: its number, name and sockets, and its end together with its supervisor.

The supervisor starts it with its own command line, and passes the rest in an environment variable.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

_VARIABLE = "HEADWAY_SIBLING"


class Sibling(NamedTuple):
    """One of the processes of a server.

    Attributes:
        number: its number, from 1 on.
        name: the common part of the names of all processes.
        processes: the number of processes.
        listen: the addresses, with their actual ports.
        folder: a directory of the user's own, with a socket for each process.
        alive: the descriptor of a pipe that is open at its other end for as long as the supervisor lives.
        serves: the descriptor of a pipe that the process writes to when it serves, and closes when it begins to end.
    """

    number: int
    name: str
    processes: int
    listen: Sequence[str]
    folder: str
    alive: int
    serves: int

    @property
    def process(self) -> str:
        """The name of the process."""
        return process_name(self.name, self.number)

    @property
    def own(self) -> str:
        """The path of its socket."""
        return socket_path(self.folder, self.number)

    @property
    def others(self) -> dict[str, str]:
        """The paths of the sockets of the others, by their names."""
        numbers = range(1, self.processes + 1)
        return {
            process_name(self.name, each): socket_path(self.folder, each) for each in numbers if each != self.number
        }

    def variables(self) -> dict[str, str]:
        """Return the variables for the environment of the process."""
        return {_VARIABLE: json.dumps(self._asdict())}

    def journal(self, path: str | None) -> str | None:
        """Return the path of its journal: ``journal.jsonl`` becomes ``journal.1.jsonl``."""
        if path is None:
            return None
        whole = Path(path)
        return str(whole.with_name(f"{whole.stem}.{self.number}{whole.suffix}"))

    def end_with_supervisor(self) -> None:
        """Have the system kill this process when its supervisor ends, however that ends.

        The system sends SIGKILL when the other end of the pipe is closed. It does so even if this process is stopped or
        never yields. `PR_SET_PDEATHSIG` would not do: it takes effect when the thread that started the process ends.
        """
        for each in (self.alive, self.serves):
            # Programs that the app starts must not get them.
            os.set_inheritable(each, False)
        fcntl.fcntl(self.alive, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(self.alive, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(self.alive, fcntl.F_SETFL, fcntl.fcntl(self.alive, fcntl.F_GETFL) | os.O_ASYNC)
        if select.select([self.alive], [], [], 0)[0]:
            # It has ended already.
            os.kill(os.getpid(), signal.SIGKILL)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Report to the supervisor that this process serves, and at the end of the block that it no longer does."""
        os.write(self.serves, b".")
        try:
            yield
        finally:
            os.close(self.serves)


def process_name(name: str, number: int) -> str:
    """Return the name of a process."""
    return f"{name}-{number}"


def socket_path(folder: str, number: int) -> str:
    """Return the path of the socket of a process."""
    return os.path.join(folder, str(number))


def sibling_of(environment: dict[str, str] | os._Environ[str]) -> Sibling | None:
    """Take the description of this process from its environment. Return None if it has no supervisor."""
    said = environment.pop(_VARIABLE, None)
    if said is None:
        return None
    fields: Mapping[str, object] = json.loads(said)
    sibling = Sibling(**fields)  # type: ignore[arg-type]  # as `variables` has written it
    sibling.end_with_supervisor()
    return sibling
