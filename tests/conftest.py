"""The Hypothesis profiles, markers, the fixture of a real etcd, and additions to the summary.

`make test` uses the profile `default`, which is small, and `make prove` uses `round`.
"""

import gc
import os
import signal
import zlib
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
from hypothesis import HealthCheck, Phase, settings

from headway.base import _reports
from headway.engine import _running
from tests.helpers import stacks
from tests.helpers.etcd_server import NO_ETCD, EtcdServer, need_etcd, single_member
from tests.helpers.kube_server import NO_KUBE
from tests.helpers.postgres_server import NO_POSTGRES, QUICK, PostgresServer, postgres_server

# The check `too_slow` measures the wall clock, so that a busy machine fails it. Each profile names this parent: without
# one it would inherit what the active profile has, which is `default` from its registration on.
PATIENT = settings(deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow])
# Every run has the same examples, so that it fails because of a change and not by chance. They are few: `make wide` has
# more of them, and others each time.
settings.register_profile("default", PATIENT, max_examples=8, stateful_step_count=30, derandomize=True)
# More examples, others for each seed, and nothing shrunk: for the mutants.
settings.register_profile(
    "seeded",
    PATIENT,
    max_examples=20,
    stateful_step_count=30,
    database=None,
    phases=[Phase.explicit, Phase.generate],
)
# Each run of these has other examples, by its seed.
settings.register_profile("wide", PATIENT, max_examples=60, stateful_step_count=30)
settings.register_profile("round", PATIENT, max_examples=200, stateful_step_count=50)
settings.register_profile("deep", PATIENT, max_examples=2000, stateful_step_count=80)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def _interruptible() -> None:
    """Restore signals that a shell or a CI runner has blocked or ignored, because child processes inherit that."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
    for number in numbers:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


_interruptible()

# Until all tests are collected. Nearly nothing that collecting makes is garbage, and looking for it takes a sixth of
# the processor time of collecting, in each process that runs tests.
gc.disable()


def pytest_addoption(parser: pytest.Parser) -> None:
    stacks.add_option(parser)
    parser.addoption("--piece", metavar="SEED/PIECES", help="run one of so many pieces of the tests, by a seed")


def pytest_configure(config: pytest.Config) -> None:
    stacks.watch(config)


CLAUSES = [f"C{number}" for number in range(1, 12)]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep wide tests and those of other programs out of the default run, and refuse a mark that has no effect."""
    if piece := config.getoption("--piece"):
        seed, pieces = map(int, piece.split("/"))
        # By the name, so that each process of a run selects the same tests.
        left_out = [item for item in items if (zlib.crc32(item.nodeid.encode()) - seed) % pieces]
        items[:] = [item for item in items if item not in set(left_out)]
        config.hook.pytest_deselected(items=left_out)
    for item in items:
        if not {"kube", "own_kube"}.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("kube")
        if any(item.get_closest_marker(name) for name in ("wide", "browser", "kube")):
            item.add_marker("deep")
        marked = {name for mark in item.iter_markers("usefixtures") for name in mark.args}
        if marked & {"autojump_clock", "mock_clock"}:
            # pytest-trio takes the clock only from the arguments, so the test would wait in real time.
            raise pytest.UsageError(f"{item.nodeid} must take its clock as an argument: the mark has no effect")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Freeze the modules of all tests. Collecting them took a sixth of the processor time of a run."""
    gc.collect()
    gc.freeze()
    # Python's own 700 costs a simulation five percent more, and hundreds of thousands cost the processor's cache.
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


@pytest.fixture(scope="module")
def nothing_frozen() -> Iterator[None]:
    """Unfreeze everything during the tests of frozen objects."""
    gc.unfreeze()
    yield
    # Garbage must not be frozen, because its warnings about open resources would be lost.
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def loop_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no watchdog of the event loop. On a busy machine it would report blocks, in a thread of its own."""
    monkeypatch.setattr(_running, "watching_loop", lambda *_: nullcontext())


@pytest.fixture(autouse=True)
def failed_reports(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[BaseException]]:
    """The exceptions of reports, which engines suppress. They fail the test unless it clears the list."""
    failed: list[BaseException] = []
    tell = _reports.tell_failure

    def keep(report: object, error: BaseException) -> None:
        failed.append(error)
        tell(report, error)

    monkeypatch.setattr(_reports, "tell_failure", keep)
    yield failed
    if failed:
        raise failed[0]


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A real PostgreSQL, shared by all tests of a process. Each test uses its own `new_url()`."""
    with postgres_server(tmp_path_factory.mktemp("postgres"), *QUICK) as server:
        yield server


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """A real etcd with one member, shared by all tests of a process. Each test uses its own `new_prefix()`."""
    # The storage conformance suite has commits of thousands of operations.
    options = ["--max-txn-ops=10000"]
    with single_member(need_etcd(), tmp_path_factory.mktemp("etcd"), options) as server:
        yield server


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number of steps of the world, and sections about tests that were skipped for want of a server."""
    for report in (each for reports in terminalreporter.stats.values() for each in reports):
        steps = dict(getattr(report, "user_properties", ())).get("steps without a violation")
        if steps and report.when == "teardown":
            failed = {each.nodeid for each in terminalreporter.stats.get("failed", ())}
            said = "before a violation" if report.nodeid in failed else "run without a violation"
            looks = ", ".join(f"{each} {steps[each]}" for each in CLAUSES if each in steps)
            terminalreporter.line(f"{steps['steps']} steps {said} in {steps['worlds']} worlds ({looks} looks)")
    skipped = [str(each.longrepr) for each in terminalreporter.stats.get("skipped", ())]
    for reason, server in ((NO_ETCD, "ETCD"), (NO_KUBE, "KUBERNETES"), (NO_POSTGRES, "POSTGRESQL")):
        if missed := sum(reason in each for each in skipped):
            terminalreporter.section(f"NOT TESTED AGAINST {server}", red=True, bold=True)
            terminalreporter.line(f"{missed} tests were skipped: {reason}", red=True, bold=True)
