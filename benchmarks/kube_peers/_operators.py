"""The operators that are compared: how each is started, what its process costs, and how many lines it has."""

from __future__ import annotations

import io
import os
import re
import sys
import tokenize
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.helpers.etcd_server import free_ports
from tests.helpers.server_process import ServerProcess

ROOT = Path(__file__).parents[2]
_OURS = ROOT / "benchmarks/kube_peers"
_GO = ROOT / "benchmarks/peers/controller_runtime/websites"


class Side(NamedTuple):
    """An operator.

    Attributes:
        name: its name in the tables.
        files: its own files.
        command: how it is started.
        alone: more arguments for a process without others.
        counting: more arguments for a process whose reconciles are counted.
    """

    name: str
    files: Sequence[Path]
    command: Sequence[str]
    alone: Sequence[str] = ()
    counting: Sequence[str] = ()

    @property
    def is_kopf(self) -> bool:
        """True for kopf, which has no metrics and no leases."""
        return self.name == "kopf"


def sides(go_program: Path, kopf_python: Path) -> list[Side]:
    """Return the operators: Headway, controller-runtime in two ways, and kopf."""
    ours = [sys.executable, "-m", "headway.cli", "run", "benchmarks.kube_peers.websites:app", "--kubernetes"]
    kopf = _OURS / "with_kopf/websites.py"
    common = [_GO / "main.go", _GO / "types.go"]
    return [
        Side("Headway", [_OURS / "websites.py"], ours),
        Side("controller-runtime", [*common, _GO / "apply.go"], [str(go_program)]),
        Side("`CreateOrUpdate`", [*common, _GO / "update.go"], [str(go_program), "-update"]),
        Side(
            "kopf",
            [kopf],
            [str(kopf_python), "-m", "kopf", "run", "--all-namespaces", str(kopf)],
            ["--standalone"],
            ["--verbose"],
        ),
    ]


class Operator(ServerProcess):
    """An operator's process."""

    def __init__(self, side: Side, folder: Path, config: Path, *more: str) -> None:
        """Prepare it without starting it.

        Args:
            config: its kubeconfig.
            more: more arguments.
        """
        folder.mkdir(parents=True, exist_ok=True)
        (self._port,) = free_ports(1)
        self.side, self.name, self.log = side, side.name, folder / f"{re.sub('[^a-zA-Z]', '', side.name)}.log"
        # The programs in Go take it with two hyphens, too.
        metrics = [] if side.is_kopf else ["--metrics", f"127.0.0.1:{self._port}"]
        self._set_command(["env", f"KUBECONFIG={config}", f"PYTHONPATH={ROOT}", *side.command, *metrics, *more])

    def healthy(self, timeout: float = 1.0) -> bool:  # noqa: ARG002  # it has no other sign
        """Return True while it runs."""
        return self.running

    def processor(self) -> float:
        """Return the seconds of processor time that it has used."""
        stat = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> tuple[float, float]:
        """Return its resident and its proportional memory, in MB."""
        found = dict(re.findall(r"^(Rss|Pss): +(\d+) kB", Path(f"/proc/{self.process}/smaps_rollup").read_text(), re.M))
        return int(found["Rss"]) / 1e3, int(found["Pss"]) / 1e3

    def reconciles(self) -> int:
        """Return how many reconciles have ended, or how many handlers kopf has called."""
        if self.side.is_kopf:
            return self.log.read_text().count(" is invoked.")
        text = httpx.get(f"http://127.0.0.1:{self._port}/metrics").text
        return round(sum(map(float, re.findall(r"^controller_runtime_reconcile_total\{[^}]*\} (\S+)$", text, re.M))))


def lines_of(files: Sequence[Path]) -> int:
    """Return how many lines there are in the files, without blank lines, comments and docstrings."""
    return sum(_lines_of_python(each) if each.suffix == ".py" else _lines_of_go(each) for each in files)


def _lines_of_go(file: Path) -> int:
    return sum(not line.strip().startswith("//") for line in file.read_text().splitlines() if line.strip())


def _lines_of_python(file: Path) -> int:
    lines, at_start = set[int](), True
    for token in tokenize.generate_tokens(io.StringIO(file.read_text()).readline):
        if token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            at_start = True
        elif token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER):
            # A text that stands alone is a docstring.
            if not (at_start and token.type == tokenize.STRING):
                lines.update(range(token.start[0], token.end[0] + 1))
            at_start = False
    return len(lines)
