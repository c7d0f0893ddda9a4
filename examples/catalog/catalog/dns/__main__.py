"""``python -m catalog.dns``: answer DNS queries from a catalog."""

from __future__ import annotations

import argparse
import ipaddress
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import trio

import headway
from catalog import app
from catalog.dns import DNSServer, Responder, Source
from catalog.dns.zone import INDEXES, WATCHES
from catalog.program import run_until_signal
from catalog.types import SERVICE


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m catalog.dns", description=__doc__)
    parser.add_argument("--server", default="127.0.0.1:7070", help="the addresses of the catalog, separated by commas")
    parser.add_argument("--token-file", type=Path, help="a file with the token that the catalog wants")
    parser.add_argument(
        "--listen", type=_address, default="127.0.0.1:8600", help="the IP address and port for UDP and TCP"
    )
    parser.add_argument(
        "--address",
        help="the IP address at which clients reach this server, which is that of ns.DOMAIN (default: of --listen)",
    )
    parser.add_argument("--domain", default="consul", help="the domain whose names are answered")
    parser.add_argument("--ttl", type=int, default=0, help="the seconds for which resolvers may keep an answer")
    parser.add_argument(
        "--stale-limit",
        type=float,
        default=10.0,
        help="answer SERVFAIL when the catalog has not been reached for so many seconds",
    )
    options = parser.parse_args()
    address = options.address or options.listen[0]
    try:
        unusable = ipaddress.ip_address(address).is_unspecified
    except ValueError:
        unusable = True
    if unusable:
        parser.error(f"the address {address!r} reaches no host: give the one of this host, such as --address 10.0.0.5")
    options.address = address
    return options


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    try:
        return str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))), int(port)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an IP address and a port: write '127.0.0.1:8600' or '[::1]:8600'"
        ) from None


async def serve(options: argparse.Namespace) -> None:
    """Answer queries until canceled: with SERVFAIL until the catalog is primed."""
    servers = options.server.split(",")
    token = options.token_file.read_text().strip() if options.token_file is not None else ""
    source = Source(options.domain, address=options.address, ttl=options.ttl, stale_limit=options.stale_limit)
    host, port = options.listen
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(headway.connect(servers, app, token=token))
        nursery = await stack.enter_async_context(trio.open_nursery())
        listening = await nursery.start(DNSServer(Responder(source.zone)).run, host, port)
        shown = f"[{host}]" if ":" in host else host
        print(f"listening on {shown}:{listening.port}", flush=True)
        opening = headway.open_cache(
            servers,
            app,
            watches=WATCHES,
            indexes=INDEXES,
            token=token,
            timing=headway.Timing(lag_limit=options.stale_limit),
        )
        await source.follow(opening, lambda: client.get(SERVICE, "default"))


if __name__ == "__main__":
    sys.exit(run_until_signal("catalog.dns", serve, arguments()))
