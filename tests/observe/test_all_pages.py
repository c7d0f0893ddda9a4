"""The pages of several processes as one: joined metrics, and health and readiness over all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import httpx
from prometheus_client.parser import text_string_to_metric_families

from headway.observe import AllPages, Metrics, PageResponse, Pages, ProcessState
from headway.observe._pages import joined_metrics
from headway.run import ControllerStatus
from headway.storage import StoreProblem
from tests.http.kit import NO_CERTIFICATES

RUNNING = ControllerStatus("things", "running", 1.0)
PRIMING = ControllerStatus("things", "priming", 1.0)
Ask = Callable[[str], Awaitable[PageResponse | None]]


def pages_of(status: ControllerStatus, problem: StoreProblem | None = None) -> Ask:
    """Return the pages of a process with one controller."""
    metrics = Metrics()
    metrics.watch(lambda: [status])
    pages = Pages(lambda: [status], metrics, lambda: problem)

    async def ask(path: str) -> PageResponse:
        code, _, body = pages.page(path)
        return PageResponse(code=code, body=body)

    return ask


async def silence(_: str) -> None:
    """A process that does not answer."""


async def page(path: str, *processes: ProcessState) -> tuple[int, str]:
    transport = httpx.ASGITransport(AllPages(lambda: processes))
    async with httpx.AsyncClient(transport=transport, base_url="http://all", verify=NO_CERTIFICATES) as client:
        answer = await client.get(path)
    return answer.status_code, answer.text


def two(first: Ask, second: Ask, *, serves: bool = True) -> Sequence[ProcessState]:
    return [ProcessState("web-1", True, 0, first), ProcessState("web-2", serves, 3, second)]


async def test_readiness_is_that_of_all_processes_that_serve() -> None:
    """A process that is started again does not count: the others do its work. Without any, nothing is ready."""
    running, priming = pages_of(RUNNING), pages_of(PRIMING)
    assert await page("/readyz", *two(running, running)) == (200, "web-1: ok\nweb-2: ok\n")
    code, text = await page("/readyz", *two(running, priming))
    assert (code, text.splitlines()) == (503, ["web-1: ok", "web-2: things: priming for 1 s"])
    assert await page("/readyz", *two(running, silence)) == (503, "web-1: ok\nweb-2: does not answer\n")
    assert await page("/readyz", *two(running, silence, serves=False)) == (200, "web-1: ok\nweb-2: is being started\n")
    starting = [each._replace(serves=False) for each in two(running, running)]
    assert await page("/readyz", *starting) == (503, "web-1: is being started\nweb-2: is being started\n")


async def test_health_fails_if_any_store_must_be_opened_again_or_a_process_hangs() -> None:
    running, broken = pages_of(RUNNING), pages_of(RUNNING, StoreProblem.UNUSABLE)
    assert await page("/healthz", *two(running, pages_of(PRIMING))) == (200, "web-1: ok\nweb-2: ok\n")
    code, text = await page("/healthz", *two(running, broken))
    assert (code, text.splitlines()[0]) == (503, "web-1: ok")
    assert (await page("/healthz", *two(running, silence)))[0] == 503
    # Nothing would be gained by a restart of all processes while one is started again.
    starting = [each._replace(serves=False) for each in two(running, running)]
    assert (await page("/healthz", *starting))[0] == 200
    assert (await page("/other", *two(running, running)))[0] == 404


async def test_metrics_of_all_processes_are_told_apart_by_a_label() -> None:
    """The samples of a metric stay together, as Prometheus' format asks. Restarts are counted."""
    code, text = await page("/metrics", *two(pages_of(RUNNING), pages_of(PRIMING)))
    assert code == 200
    families = list(text_string_to_metric_families(text))
    assert len({each.name for each in families}) == len(families)
    samples = [sample for family in families for sample in family.samples]
    assert {sample.labels["process"] for sample in samples} == {"web-1", "web-2"}
    found = {(each.name, *sorted(each.labels.items())): each.value for each in samples}
    ready = [("controller", "things"), ("process", "web-1")]
    assert found[("headway_controller_ready", *ready)] == 1
    assert found[("headway_controller_ready", ready[0], ("process", "web-2"))] == 0
    assert found[("headway_process_restarts_total", ("process", "web-2"))] == 3
    assert found[("headway_process_up", ("process", "web-1"))] == 1


async def test_process_that_does_not_answer_leaves_the_metrics_of_the_others() -> None:
    _, text = await page("/metrics", *two(pages_of(RUNNING), silence))
    assert 'headway_controller_ready{process="web-1",controller="things"} 1.0' in text
    assert 'headway_controller_ready{process="web-2"' not in text
    assert 'headway_process_up{process="web-2"} 0' in text


def test_samples_without_labels_get_one() -> None:
    page = "# HELP up Whether it is up.\n# TYPE up gauge\nup 1.0\n"
    assert joined_metrics({"a": page, "b": page}) == (
        '# HELP up Whether it is up.\n# TYPE up gauge\nup{process="a"} 1.0\nup{process="b"} 1.0\n'
    )
