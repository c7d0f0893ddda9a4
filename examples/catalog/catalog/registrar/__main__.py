"""``python -m catalog.registrar FILE``: register the workloads of a file, and write their health."""

from __future__ import annotations

import argparse
import socket
import sys
from pathlib import Path

import headway
from catalog import app
from catalog.program import run_until_signal
from catalog.registrar import agent, definitions


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m catalog.registrar", description=__doc__)
    parser.add_argument("file", type=Path, help="the workloads and their checks")
    parser.add_argument("--server", default="127.0.0.1:7070", help="the addresses of the catalog, separated by commas")
    parser.add_argument("--token-file", type=Path, help="a file with the token that the catalog wants")
    parser.add_argument("--name", default=socket.gethostname(), help="the name of this registrar (the host's)")
    parser.add_argument(
        "--ttl", type=float, default=15.0, help="the seconds after which a registrar that is gone is noticed"
    )
    return parser.parse_args()


async def main(options: argparse.Namespace) -> None:
    """Register until canceled."""
    registered = definitions.load(options.file)
    token = options.token_file.read_text().strip() if options.token_file is not None else ""
    async with headway.connect(options.server.split(","), app, token=token) as client:
        await agent.run(client, options.name, registered, ttl=options.ttl)


if __name__ == "__main__":
    options = arguments()
    sys.exit(run_until_signal("catalog.registrar", main, options, expected=definitions.DefinitionError))
