"""Metrics for Prometheus: counts and durations from the events, and at each scrape the state of the controllers.

Names begin with ``headway_``. For dashboards that were made for controller-runtime, numbers that it also has are
exported under its names too: ``controller_runtime_…`` and ``workqueue_…`` (`_gauges.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headway import events
from headway.access import ANONYMOUS
from headway.base import check_plain, safe_report
from headway.errors import DeclarationError
from headway.observe._gauges import OUTCOMES, aliases, gauges, quota_gauges
from headway.pauses import Paused, Resumed
from headway.quotas import QuotaUse
from headway.run import ControllerStatus
from headway.steps import StepUncertain
from headway.storage import StoreProblem

if TYPE_CHECKING:
    from prometheus_client import Metric

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

_LEASES = 1000
"""The number of leases with series, beside those that this process holds. A program may use one for each job."""
_OfLease = events.LeaseAwaited | events.LeaseTaken | events.LeaseDelayed | events.LeaseEnded
_OF_LEASES = (events.LeaseAwaited, events.LeaseTaken, events.LeaseDelayed, events.LeaseEnded)

Status = Callable[[], Sequence[ControllerStatus]]
Quotas = Callable[[], Sequence[QuotaUse]]


class Metrics:
    """A report that counts events, and a collector for Prometheus' client.

    ::

        metrics = headway.observe.Metrics()
        async with headway.open_engine("sqlite:staff.db", app, report=metrics) as engine:
            metrics.watch(engine.status)
            ...
            metrics.text()  # the text that Prometheus scrapes

    Needs ``pip install 'headway[metrics]'``, and raises DeclarationError without it. Every reconcile is then reported,
    which costs some microseconds each time.
    """

    def __init__(self) -> None:
        try:
            import prometheus_client
        except ImportError as error:
            raise DeclarationError("Metrics needs prometheus-client: pip install 'headway[metrics]'") from error
        self.registry = prometheus_client.CollectorRegistry()
        self._status: list[Status] = []
        self._quotas: list[Quotas] = []
        self._counters: dict[str, Any] = {
            name: prometheus_client.Counter(f"headway_{name}", text, labels, registry=None)
            for name, (text, labels) in _COUNTERS.items()
        }
        for caller in (ANONYMOUS, "token"):
            self._counters["calls_denied"].labels(caller)
        for problem in StoreProblem:
            for counted in ("store_failures", "store_recoveries"):
                self._counters[counted].labels(problem.name.lower())
        self._times: dict[str, Any] = {
            name: prometheus_client.Histogram(f"headway_{name}", text, ["controller"], buckets=_SECONDS, registry=None)
            for name, text in _TIMES.items()
        }
        # The errors of each lease's ends, and True while it is held. Those with the latest events are last.
        self._leases: dict[str, tuple[set[str], bool]] = {}
        self._primed = prometheus_client.Gauge(
            "headway_prime_seconds", "Duration of a type's last priming.", ["controller", "type"], registry=None
        )
        self._issuer_keys = prometheus_client.Gauge(
            "headway_issuer_keys", "Keys of an issuer of logins that can be used.", ["issuer"], registry=None
        )
        self._certificate = prometheus_client.Gauge(
            "headway_certificate_refused",
            "1 while the certificate on disk cannot be used, so that the one read before is.",
            ["certificate"],
            registry=None,
        )
        self.registry.register(self)

    def watch(self, status: Status) -> None:
        """Add a source of controller states, which is called at each scrape: ``metrics.watch(engine.status)``."""
        check_plain("Metrics.watch", status, 0, "no argument", "metrics.watch(engine.status)")
        self._status.append(status)

    def watch_quotas(self, quotas: Quotas) -> None:
        """Add a source of quotas, which is called at each scrape.

        ``metrics.watch_quotas(lambda: headway.quotas.quotas_now(engine))``
        """
        check_plain(
            "Metrics.watch_quotas", quotas, 0, "no argument", "metrics.watch_quotas(lambda: quotas_now(engine))"
        )
        self._quotas.append(quotas)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        import prometheus_client

        return prometheus_client.generate_latest(self.registry)

    def __call__(self, event: object) -> None:
        """Count an event. This makes the object a `headway.events.Report`."""
        if isinstance(event, events.Reconciled):
            self._reconciled(event)
        elif isinstance(event, events.Primed):
            self._primed.labels(event.controller, str(event.type)).set(event.seconds)
        elif (counted := _LABELS.get(type(event))) is not None:
            name, labels = counted
            counter, given = self._counters[name], tuple(labels(event))
            (counter.labels(*given) if given else counter).inc(1 + getattr(event, "suppressed", 0))
            if isinstance(event, events.IssuerKeysRead | events.IssuerFailed):
                self._issuer_keys.labels(event.issuer).set(event.keys)
                for outcome in ("read", "failed"):
                    self._counters["issuer_reads"].labels(event.issuer, outcome)
            elif isinstance(event, events.IssuerKeysChanged) and not event.keys:
                # All of them were dropped.
                self._issuer_keys.labels(event.issuer).set(0)
            elif isinstance(event, events.CertificateRefused | events.CertificateRenewed):
                refused = isinstance(event, events.CertificateRefused)
                self._certificate.labels(event.certificate).set(refused)
            elif isinstance(event, _OF_LEASES):
                self._bound_leases(event)

    def _bound_leases(self, event: _OfLease) -> None:
        """Drop the series of the leases that this process has not held or asked for, for the longest time."""
        errors, held = self._leases.pop(event.name, (set(), False))
        if isinstance(event, events.LeaseEnded):
            errors.add(_class(event.error))
        if not isinstance(event, events.LeaseDelayed):
            held = isinstance(event, events.LeaseTaken)
        self._leases[event.name] = errors, held
        if len(self._leases) <= _LEASES:
            return
        others = [name for name, (_, held) in self._leases.items() if not held]
        for name in others[: max(len(others) - _LEASES, 0)]:
            for error in self._leases.pop(name)[0]:
                self._counters["leases_ended"].remove(name, error)
            for counter in ("leases_awaited", "leases_taken", "leases_delayed"):
                # A lease need not have all of them.
                with suppress(KeyError):
                    self._counters[counter].remove(name)

    def _reconciled(self, event: events.Reconciled) -> None:
        name = event.controller
        self._counters["reconcile"].labels(name, event.outcome).inc()
        self._times["reconcile_seconds"].labels(name).observe(event.seconds)
        self._times["queue_wait_seconds"].labels(name).observe(event.waited)
        if event.timed_out:
            self._counters["reconcile_timeouts"].labels(name).inc()

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics. This makes the object a `prometheus_client.registry.Collector`."""
        statuses = _one_of_each_name(status for source in self._status for status in source())
        self._begin_at_zero(statuses)
        kept = (self._primed, self._issuer_keys, self._certificate)
        counted = [*self._counters.values(), *self._times.values(), *kept]
        ours = [metric for each in counted for metric in each.collect()]
        for metric in ours:
            # The creation times of counters would be a third of the page, and are not used.
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
        ours += gauges(statuses)
        ours += quota_gauges(quota for source in self._quotas for quota in source())
        yield from ours
        yield from aliases(ours)

    def _begin_at_zero(self, statuses: Iterable[ControllerStatus]) -> None:
        """Create the counters of each controller and type at 0. Prometheus sees no increase in a series begun at 1."""
        for status in statuses:
            if status.phase == "absent":
                # It runs in another process, if at all: this one counts nothing of it.
                continue
            for outcome in OUTCOMES:
                self._counters["reconcile"].labels(status.name, outcome)
            for times in self._times.values():
                times.labels(status.name)
            types = [str(each.type) for each in status.types]
            first: dict[tuple[str, ...], list[tuple[str, ...]]] = {
                ("controller",): [(status.name,)],
                ("type",): [(type,) for type in types],
                ("controller", "type"): [(status.name, type) for type in types],
            }
            for name, (_, labels) in _COUNTERS.items():
                for values in first.get(tuple(labels), ()):
                    self._counters[name].labels(*values)


def _one_of_each_name(statuses: Iterable[ControllerStatus]) -> list[ControllerStatus]:
    """Return one status of each controller: Prometheus refuses a page that has a series twice.

    Two engines of a program both have Headway's own controllers. One that is not ready is shown before one that is.
    """
    found: dict[str, ControllerStatus] = {}
    for each in statuses:
        known = found.setdefault(each.name, each)
        if each.problem and not known.problem:
            found[each.name] = each
    return list(found.values())


def reports(*several: events.Report) -> events.Report:
    """Return one report that calls all of these: ``report=reports(log_report(), metrics)``."""
    for each in several:
        check_plain("reports", each, 1, "an event", "reports(log_report(), metrics)")

    # A report that fails must not keep an event from the others.
    safe = tuple(map(safe_report, several))

    def report(event: object) -> None:
        for each in safe:
            each(event)

    report.failures_only = not any(map(events.receives_successes, several))  # type: ignore[attr-defined]  # see `events.Report`
    return report


_COUNTERS = {
    "reconcile": ("Reconciles, by outcome: done, requeue, failed, permanent.", ["controller", "outcome"]),
    "reconcile_timeouts": ("Reconciles that had not ended at their deadline.", ["controller"]),
    "reconcile_slow": ("Reports of a long-running reconcile.", ["controller"]),
    "mapping_failures": ("Changes whose mapper failed.", ["controller", "type"]),
    "index_failures": ("Resources left out of an index, because its function raised.", ["controller", "type", "index"]),
    "payloads_undecodable": ("Stored payloads that were found not to decode.", ["type"]),
    "projection_failures": ("Resources whose projection raised.", ["type", "projection"]),
    "conversion_failures": ("Resources that could not be converted to another version.", ["type", "wanted"]),
    "writes_unknown": ("Writes with an unknown outcome, each of which holds back every key.", ["controller"]),
    "writes_settled": ("Times that unknown writes were resolved.", ["controller"]),
    "self_triggers": ("Times that a key was delayed because it triggers itself.", ["controller"]),
    "steps_uncertain": ("Times that a step was entered again whose outcome was unknown.", ["controller"]),
    "fights": ("Reports of keys that are delayed because another writer undoes what they write.", ["controller"]),
    "daemons_ended": ("Daemons that ended, by the class of the error.", ["controller", "error"]),
    "source_failures": ("Values of a source whose function failed.", ["controller", "source"]),
    "events_not_stored": ("Events of resources that could not be stored.", ["controller", "why"]),
    "pauses": ("Times that a run was paused, or given another reason.", ["controller"]),
    "resumptions": ("Times that a paused run was resumed.", ["controller"]),
    "watches_added": ("Watches added at run time, each of which ended a run.", ["controller", "type"]),
    "callback_failures": ("Callbacks that failed.", ["controller", "callback"]),
    "calls_delayed": ("Calls of a run for its fence that failed and are repeated.", ["controller", "call"]),
    "leases_awaited": ("Times that another process was found to hold a lease.", ["lease"]),
    "leases_taken": ("Terms of a lease that this process has held.", ["lease"]),
    "leases_delayed": ("Failed attempts to acquire or renew a lease.", ["lease"]),
    "leases_ended": ("Terms that have ended: released, or by the class of the error.", ["lease", "error"]),
    "stale_refused": ("Items from streams that were not newer than the cache.", ["type", "what"]),
    "streams_opened": ("Streams opened, resumed or with a snapshot.", ["type", "how"]),
    "streams_ended": ("Streams that ended.", ["type"]),
    "streams_lagging": ("Streams left because their server lagged.", ["type"]),
    "bookmarks_refused": ("Bookmarks that proved false.", ["type"]),
    "runs_started": ("Runs that were primed and began to reconcile.", ["controller"]),
    "runs_ended": ("Runs that ended, by the class of the error.", ["controller", "error"]),
    "controllers_clash": ("Times that controllers of one name and type were found in several apps.", ["type", "name"]),
    "deletions_unknown": ("Runs that cannot know what was deleted before them.", ["controller", "type"]),
    "handler_failures": ("Calls whose handler raised an unexpected exception.", ["path"]),
    "authentication_failures": ("Calls with an invalid token.", []),
    "logins_refused": ("Calls with a JWT that is not accepted, by issuer and reason.", ["issuer", "reason"]),
    "issuer_reads": ("Readings of the keys of an issuer of logins: read, failed.", ["issuer", "outcome"]),
    "issuer_key_changes": ("Times that the keys of an issuer of logins were other ones.", ["issuer"]),
    "peer_stores_replaced": ("Peers whose store was rolled back or restored.", []),
    "peers_not_notified": ("Peerings that were removed without notifying the other side.", []),
    "peers_refused": ("Calls with an invalid secret of a peering, and peers that violated the protocol.", []),
    "calls_denied": ("Calls that no rule allows, by whether the caller had a token.", ["caller"]),
    "calls_limited": (
        "Calls that a limit has refused, by the limit, the category, and whether the caller had a token.",
        ["limit", "category", "caller"],
    ),
    "access_changes": ("Times that policies or tokens were replaced.", []),
    "connections_ended": ("Connections closed because their peer violated the protocol or flooded the server.", []),
    "server_warnings": ("Warnings of servers that this process calls, such as an API server of Kubernetes.", []),
    "store_failures": ("Times that the store was found to have a problem.", ["problem"]),
    "store_recoveries": ("Times that the store recovered from a problem.", ["problem"]),
    "certificates_renewed": ("Server certificates read again because their files changed, or by SIGHUP.", []),
    "certificates_refused": ("Changed server certificates that are invalid.", []),
    "connections_refused": ("Connections refused, or closed in their handshake, because of a limit.", []),
    "loop_blocked": ("Times that a task blocked the event loop for too long.", ["controller"]),
    "shutdown_blocked": ("Tasks that had not ended in time after their engine began to shut down.", ["task"]),
}

_TIMES = {
    "reconcile_seconds": "Duration of a reconcile.",
    "queue_wait_seconds": "Time that a key is ready before its reconcile begins.",
}

Labels = Callable[[Any], Iterable[str]]


def _controller(event: Any) -> Iterable[str]:
    return (event.controller,)


def _name(event: Any) -> Iterable[str]:
    return (event.name,)


def _class(error: BaseException | None) -> str:
    return "" if error is None else type(error).__name__


def _type(event: Any) -> Iterable[str]:
    return (str(event.type),)


def _kind_of_caller(event: Any) -> Iterable[str]:
    # A label for each token would let the creators of tokens create time series.
    return (ANONYMOUS if event.caller == ANONYMOUS else "token",)


def _both(event: Any) -> Iterable[str]:
    return (event.controller, str(event.type))


_LABELS: dict[type, tuple[str, Labels]] = {
    events.ReconcileSlow: ("reconcile_slow", _controller),
    events.MappingFailed: ("mapping_failures", _both),
    events.IndexFailed: ("index_failures", lambda event: (event.controller, str(event.type), event.index)),
    events.PayloadUndecodable: ("payloads_undecodable", _type),
    events.ProjectionFailed: ("projection_failures", lambda event: (str(event.type), event.projection)),
    events.ConversionFailed: ("conversion_failures", lambda event: (str(event.type), event.wanted)),
    events.WriteUnknown: ("writes_unknown", _controller),
    events.WriteResolved: ("writes_settled", _controller),
    events.SelfTriggered: ("self_triggers", _controller),
    StepUncertain: ("steps_uncertain", _controller),
    events.ControllersFight: ("fights", _controller),
    events.DaemonEnded: ("daemons_ended", lambda event: (event.controller, _class(event.error))),
    events.SourceFailed: ("source_failures", lambda event: (event.controller, event.source)),
    events.WatchAdded: ("watches_added", _both),
    events.CallbackFailed: ("callback_failures", lambda event: (event.controller, event.callback)),
    events.CallDelayed: ("calls_delayed", lambda event: (event.controller, event.call)),
    events.LeaseAwaited: ("leases_awaited", _name),
    events.LeaseTaken: ("leases_taken", _name),
    events.LeaseDelayed: ("leases_delayed", _name),
    events.LeaseEnded: ("leases_ended", lambda event: (event.name, _class(event.error))),
    events.StaleRefused: ("stale_refused", lambda event: (str(event.type), event.what)),
    events.StreamOpened: (
        "streams_opened",
        lambda event: (str(event.type), "snapshot" if event.resume_after is None else "resumed"),
    ),
    events.StreamEnded: ("streams_ended", _type),
    events.StreamLagging: ("streams_lagging", _type),
    events.BookmarkRefused: ("bookmarks_refused", _type),
    events.EventNotStored: ("events_not_stored", lambda event: (event.controller, event.why)),
    Paused: ("pauses", _controller),
    Resumed: ("resumptions", _controller),
    events.RunStarted: ("runs_started", _controller),
    events.RunEnded: ("runs_ended", lambda event: (event.controller, _class(event.error))),
    events.ControllersClash: ("controllers_clash", lambda event: (str(event.type), event.name)),
    events.DeletionsUnknown: ("deletions_unknown", _both),
    events.HandlerFailed: ("handler_failures", lambda event: (event.path,)),
    events.AuthenticationFailed: ("authentication_failures", lambda _: ()),
    events.IssuerFailed: ("issuer_reads", lambda event: (event.issuer, "failed")),
    events.IssuerKeysChanged: ("issuer_key_changes", lambda event: (event.issuer,)),
    events.IssuerKeysRead: ("issuer_reads", lambda event: (event.issuer, "read")),
    events.LoginRefused: ("logins_refused", lambda event: (event.issuer, event.reason)),
    events.CallDenied: ("calls_denied", _kind_of_caller),
    events.CallLimited: ("calls_limited", lambda event: (event.limit, event.category, *_kind_of_caller(event))),
    events.PeerNotNotified: ("peers_not_notified", lambda _: ()),
    events.PeerRefused: ("peers_refused", lambda _: ()),
    events.PeerStoreReplaced: ("peer_stores_replaced", lambda _: ()),
    events.AccessChanged: ("access_changes", lambda _: ()),
    events.ConnectionEnded: ("connections_ended", lambda _: ()),
    events.ServerWarned: ("server_warnings", lambda _: ()),
    events.StoreFailed: ("store_failures", lambda event: (event.problem,)),
    events.StoreRecovered: ("store_recoveries", lambda event: (event.problem,)),
    events.CertificateRenewed: ("certificates_renewed", lambda _: ()),
    events.CertificateRefused: ("certificates_refused", lambda _: ()),
    events.ConnectionRefused: ("connections_refused", lambda _: ()),
    events.LoopBlocked: ("loop_blocked", lambda event: (event.controller,)),
    events.ShutdownBlocked: ("shutdown_blocked", lambda event: (event.task,)),
}
