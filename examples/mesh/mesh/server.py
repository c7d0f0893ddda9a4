"""``python -m mesh.server``: the control plane of a mesh. It serves the resources, and xDS for the proxies."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

import trio

import catalog
import headway
import mesh
from catalog.program import run_until_signal
from headway.access import Authorizer, load_access
from headway.rpc import address, is_loopback, server_tls
from mesh.certificates import certificates
from mesh.control import Proxies, proxies


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m mesh.server", description=__doc__)
    parser.add_argument("--store", default="memory:", help="the store, as of `headway serve` (default: memory:)")
    parser.add_argument("--listen", default="127.0.0.1:7070", help="the address (default: 127.0.0.1:7070)")
    parser.add_argument(
        "--key-file",
        required=True,
        help="the key that encrypts the keys of roots in the store; `python -m mesh.certificates FILE` makes one",
    )
    parser.add_argument("--access", type=Path, help="the access file. SIGHUP reloads it")
    parser.add_argument("--tls-certificate", type=Path, help="the server's certificate")
    parser.add_argument("--tls-key", type=Path, help="its private key, if in a separate file")
    options = parser.parse_args()
    listen = address(options.listen)
    if options.access is None and not listen.path and not is_loopback(listen.host):
        parser.error(
            f"--listen {options.listen} can be reached by others: give an access file with --access, or an address on "
            "loopback, such as 127.0.0.1:7070"
        )
    return options


async def main(options: argparse.Namespace) -> None:
    """Serve until canceled."""
    rules: Path | None = options.access
    access = None if rules is None else Authorizer(load_access(rules))
    tls = None if options.tls_certificate is None else server_tls(options.tls_certificate, options.tls_key)
    network = headway.Network([options.listen], access=access, insecure=access is None, tls=tls)
    connected = Proxies()
    leaves, authority = certificates(options.key_file, all_have=connected.all_have)
    extensions = [authority, proxies(leaves, connected=connected)]
    async with (
        headway.open_engine(options.store, catalog.app, mesh.app, network=network, extensions=extensions) as engine,
        trio.open_nursery() as nursery,
    ):
        if access is not None and rules is not None:
            nursery.start_soon(_reload, access, rules)
        print(f"listening on {engine.addresses[0]}", flush=True)
        await trio.sleep_forever()


async def _reload(access: Authorizer, file: Path) -> None:
    with trio.open_signal_receiver(signal.SIGHUP) as signals:
        async for _ in signals:
            try:
                access.replace(load_access(file))
            except (headway.HeadwayError, OSError) as error:
                print(f"the access file stays as it was: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(run_until_signal("mesh.server", main, arguments()))
