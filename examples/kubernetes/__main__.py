"""``python -m examples.kubernetes``: run the operator on a cluster of its own, under edits and kills."""

from __future__ import annotations

import argparse
import math
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import trio
import yaml

from examples.kubernetes.cluster import Cluster, Process, free_ports, running_cluster
from examples.kubernetes.stand_ins import OWNED, WEBSITES, items_of, run_stand_ins

APP = "examples.kubernetes.websites:app"
COMMAND = (sys.executable, "-m", "headway.cli")
STEP = 40.0
"""The seconds within which the cluster must be as the Websites ask."""


class Story:
    """What a person asks of the cluster, and what happens to it meanwhile."""

    def __init__(self, cluster: Cluster, operator: Process, dns: httpx.AsyncClient) -> None:
        self._cluster = cluster
        self._operator = operator
        self._dns = dns
        self._asked: dict[str, dict[str, Any]] = {}

    async def tell(self, until: float) -> None:
        """Tell the story, again and again, until the time is over. Raise AssertionError at what is wrong."""
        turn = 0
        while turn == 0 or trio.current_time() < until:
            turn += 1
            await self._apply("blog", replicas=2, host="blog.example", pages={"index.html": f"Welcome {turn}"})
            await self._apply("docs", replicas=1, host="docs.example", pages={"index.html": "Read me"})
            await self._apply("shop", replicas=3)
            await self._check("applied three Websites")

            await self._apply("blog", replicas=5, host="blog.example", pages={"index.html": "Edited"})
            await self._operator.end()
            await self._apply("docs", replicas=1, pages={"index.html": "Read me"})
            self._operator.start()
            await self._check("edited two of them while the operator was killed")

            await self._delete("blog")
            await self._cluster.server.end()
            self._cluster.server.start()
            await self._cluster.wait_ready()
            await self._apply("shop", replicas=1, host="shop.example", pages={"index.html": "Buy"})
            await self._check("deleted one, killed the API server, and edited another one")

            await self._operator.end()
            await self._delete("docs")
            self._operator.start()
            await self._apply("blog", replicas=1, pages={"index.html": "I am new"})
            await self._check("deleted one while the operator was killed, and made another one of an old name")

    async def _apply(self, name: str, **spec: Any) -> None:
        self._asked[name] = spec = {"image": "web:1", **spec}
        site = {"apiVersion": "example.org/v1", "kind": "Website", "metadata": {"name": name}, "spec": spec}
        with trio.fail_after(STEP):
            while True:
                try:
                    return await self._cluster.apply(site)
                except httpx.HTTPStatusError as refused:
                    # A Website of this name is still being deleted: its record is not gone yet.
                    if refused.response.status_code != httpx.codes.CONFLICT:
                        raise
                    await trio.sleep(0.1)

    async def _delete(self, name: str) -> None:
        del self._asked[name]
        await self._cluster.call("DELETE", f"{WEBSITES.format('namespaces/default/')}/{name}")

    async def _check(self, what: str) -> None:
        """Wait until all is as asked. Raise AssertionError, with the difference, if it does not become so."""
        began = trio.current_time()
        found: list[str] = []
        with trio.move_on_after(STEP):
            while found := await self._differences():
                self._operator.check()
                await trio.sleep(0.05)
            print(f"{what}; all is as asked after {trio.current_time() - began:.1f} s", flush=True)
            return
        raise AssertionError("\n".join([f"{what}, and this is not as asked:", *found]))

    async def _differences(self) -> list[str]:
        """Return a line for each thing that is not as the Websites ask."""
        asked = self._asked
        sites = {each["metadata"]["name"]: each for each in await items_of(self._cluster, WEBSITES)}
        owned = [
            {each["metadata"]["name"]: each for each in await items_of(self._cluster, path) if is_owned(each)}
            for path in OWNED
        ]
        deployments, services, maps, ingresses = owned
        hosts = {name: spec["host"] for name, spec in asked.items() if "host" in spec}
        compared: dict[str, tuple[object, object]] = {
            "Websites": (sorted(sites), sorted(asked)),
            "replicas": (
                {name: each["spec"]["replicas"] for name, each in deployments.items()},
                {name: spec["replicas"] for name, spec in asked.items()},
            ),
            "Services": (sorted(services), sorted(asked)),
            "pages": (
                {name: each.get("data", {}) for name, each in maps.items()},
                {name: spec.get("pages", {}) for name, spec in asked.items()},
            ),
            "hosts of Ingresses": (
                {name: each["spec"]["rules"][0]["host"] for name, each in ingresses.items()},
                hosts,
            ),
            "records in DNS": (
                (await self._dns.get("/records")).json(),
                {f"default/{name}": host for name, host in hosts.items()},
            ),
            "owners": (
                sorted({owner_of(each) for objects in owned for each in objects.values()}),
                sorted(each["metadata"]["uid"] for each in sites.values()),
            ),
            "statuses": (
                {name: status_of(each) for name, each in sites.items()},
                {name: (spec["replicas"], True) for name, spec in asked.items()},
            ),
        }
        return [f"{what}: {found}, asked: {wanted}" for what, (found, wanted) in compared.items() if found != wanted]


def is_owned(object: Mapping[str, Any]) -> bool:
    """Return True for an object that belongs to a Website, or did."""
    return "example.org/website" in object["metadata"].get("labels", {})


def owner_of(object: Mapping[str, Any]) -> str:
    """Return the uid of an object's owner."""
    return str(object["metadata"]["ownerReferences"][0]["uid"])


def status_of(site: Mapping[str, Any]) -> tuple[int, bool]:
    """Return how many replicas are ready, and whether the condition says so of the newest spec."""
    status = site.get("status", {})
    return status.get("ready", 0), any(
        (each["type"], each["status"], each["observedGeneration"]) == ("Ready", "True", site["metadata"]["generation"])
        for each in status.get("conditions", ())
    )


async def install(cluster: Cluster) -> Path:
    """Install the custom resource and the rights, as the commands print them. Return the operator's kubeconfig."""
    for document in ("crd", "rbac"):
        printed = await trio.run_process([*COMMAND, "kubernetes", document, APP], capture_stdout=True)
        for each in yaml.safe_load_all(printed.stdout):
            await cluster.apply(each)
    return await cluster.kubeconfig_of("websites")


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Story]:
    """Run the cluster, the provider of DNS, the operator and the stand-ins, until the block ends."""
    async with AsyncExitStack() as ending:
        cluster = await ending.enter_async_context(running_cluster(folder))
        (port,) = free_ports(1)
        provider = Process(folder, "dns", sys.executable, "-m", "examples.kubernetes.dns", port)
        ending.callback(provider.close)
        provider.start()
        url = f"http://127.0.0.1:{port}"
        kubeconfig = await install(cluster)
        # With a name, it takes its own lease again after a kill. Under another name it would wait for 15 seconds.
        arguments = ("run", APP, "--kubernetes", "--kubeconfig", kubeconfig, "--process", "operator")
        operator = Process(folder, "operator", *COMMAND, *arguments, env={"DNS_URL": url})
        ending.callback(operator.close)
        operator.start()
        dns = await ending.enter_async_context(httpx.AsyncClient(base_url=url))
        nursery = await ending.enter_async_context(trio.open_nursery())
        ending.callback(nursery.cancel_scope.cancel)
        nursery.start_soon(run_stand_ins, cluster)
        print(f"a cluster at {cluster.http.base_url}, with its logs in {folder}", flush=True)
        yield Story(cluster, operator, dns)
        status = await operator.end(signal.SIGTERM)
        assert status == 0, f"the operator has ended with status {status}: see {operator.log}"


async def main(options: argparse.Namespace) -> int:
    """Run until the time is over, or until SIGINT or SIGTERM.

    Return the exit status: 0 if all was as it should be, 1 if not, and 130 after a signal.
    """
    status = 130
    until = trio.current_time() + options.seconds
    with (
        tempfile.TemporaryDirectory(prefix="websites-") as folder,
        trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals,
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_at_signal, signals, nursery.cancel_scope)
            try:
                async with running(Path(folder)) as story:
                    await story.tell(until)
                status = 0
            except* (AssertionError, OSError, RuntimeError, subprocess.CalledProcessError, httpx.HTTPError) as errors:
                print(f"examples.kubernetes: {errors.exceptions[0]}", file=sys.stderr, flush=True)
                status = 1
            nursery.cancel_scope.cancel()
    return status


async def _cancel_at_signal(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
    async for _ in signals:
        scope.cancel()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m examples.kubernetes", description=__doc__)
    parser.add_argument("--for", dest="seconds", type=float, default=math.inf, help="end after so many seconds")
    sys.exit(trio.run(main, parser.parse_args()))
