"""Metrics for Prometheus. Labels come from fixed sets: never names of people, tables, traces."""

from __future__ import annotations

import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Protocol, runtime_checkable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

import sparkport
from sparkport.service.actions import ACTIONS
from sparkport.service.activity import Activity, Work
from sparkport.service.audit import AuditLog
from sparkport.service.service import Service

__all__ = ["CONTENT_TYPE", "Measured", "Metrics"]

_log = logging.getLogger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    60,
    300,
    1800,
)
_OTHER = "other"
_MOST_ROUTES = 20
_COUNTED_TOGETHER = 64
_IN_USE = {
    "scans": "Streams of rows on their way to clients.",
    "exchanges": "Changes of rows and calls of functions under way.",
    "actions": "Plans, listings, DDL and other actions under way.",
    "transactions": "Transactions with changes that wait for a commit.",
    "staged_bytes": "Bytes of rows in statements that have not ended.",
    "held_bytes": "Bytes of such rows that are in memory.",
    "spark_jobs": "Jobs that Spark is running for callers.",
}
_GAUGE_NAME = re.compile(r"[a-z][a-z0-9_]{0,60}")


@runtime_checkable
class Measured(Protocol):
    """A catalog with figures of its own: gauges `sparkport_catalog_…`, labelled with its name."""

    def gauges(self) -> Mapping[str, float]:
        """Return the current figures, under names that never change. Quick, and thread-safe."""
        ...


class Metrics:
    """The metrics of a server, in a registry of their own. Thread-safe."""

    def __init__(
        self,
        service: Service,
        activity: Activity,
        audit: AuditLog | None,
        draining: Callable[[], bool],
    ) -> None:
        self.registry = CollectorRegistry()
        self._routes: set[str] = set()
        self._ended: deque[Work] = deque()
        """Calls that have ended and are not counted yet."""
        self._labelled: dict[tuple[str, str, str], tuple[tuple[Counter, ...], Histogram]] = {}
        self._rpcs = self._counter(
            "rpcs", "Calls that have ended, by method and gRPC code.", "method", "code"
        )
        self._actions = self._counter(
            "actions", "Actions that have ended, by type and gRPC code.", "action", "code"
        )
        self._errors = self._counter(
            "errors", "Calls that have failed, by gRPC code; not those cancelled.", "code"
        )
        self._scans = self._counter("scans", "Scans, by the route they took.", "route")
        self.logins_refused = self._counter("logins_refused", "Calls without a valid token.")
        self.idle_cut_offs = self._counter(
            "idle_cut_offs", "Calls that were ended because their client was silent."
        )
        self._seconds = Histogram(
            "sparkport_rpc_seconds",
            "How long calls take, the client's part in streams included.",
            ["method"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.registry.register(_State(service, activity, audit, draining))
        ProcessCollector(registry=self.registry)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"sparkport_{name}", meaning, labels, registry=self.registry)

    def ended(self, work: Work) -> None:
        """Count a call that has ended.

        Counting takes longer by itself than among others, so it waits for some, or for a reader.
        """
        self._ended.append(work)
        if len(self._ended) >= _COUNTED_TOGETHER:
            self._count_ended()

    def _count_ended(self) -> None:
        with suppress(IndexError):  # several threads may take from it
            while True:
                self._count(self._ended.popleft())

    def _count(self, work: Work) -> None:
        action = ""
        if work.rpc == "DoAction":
            action = work.operation if work.operation in ACTIONS else _OTHER
        key = (work.rpc, action, work.code)
        counters, seconds = self._labelled.get(key) or self._labelled.setdefault(
            key, self._label(*key)
        )
        for counter in counters:
            counter.inc()
        seconds.observe(work.seconds)
        if work.code not in ("OK", "CANCELLED"):
            self._errors.labels(work.code).inc()
        if work.code == "UNAUTHENTICATED":
            self.logins_refused.inc()
        if work.progress.route:
            self._scans.labels(self._known_route(work.progress.route)).inc()

    def _label(self, rpc: str, action: str, code: str) -> tuple[tuple[Counter, ...], Histogram]:
        """The counters of calls with these labels: finding them takes longer than counting."""
        rpcs, seconds = self._rpcs.labels(rpc, code), self._seconds.labels(rpc)
        return (rpcs, self._actions.labels(action, code)) if action else (rpcs,), seconds

    def _known_route(self, route: str) -> str:
        """Return the label of a route, of which a catalog may invent only so many."""
        if len(self._routes) < _MOST_ROUTES:
            self._routes.add(route)
        return route if route in self._routes else _OTHER

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        self._count_ended()
        return generate_latest(self.registry)


class _State(Collector):
    """Figures that are not counted, but read whenever Prometheus asks."""

    def __init__(
        self,
        service: Service,
        activity: Activity,
        audit: AuditLog | None,
        draining: Callable[[], bool],
    ) -> None:
        self._service = service
        self._activity = activity
        self._audit = audit
        self._draining = draining

    def describe(self) -> list[Metric]:
        return []  # catalogs are not asked before a scrape

    def collect(self) -> Iterator[Metric]:
        totals = self._activity.totals()
        rows = CounterMetricFamily(
            "sparkport_rows", "Rows sent (out) and received (in).", labels=["direction"]
        )
        size = CounterMetricFamily("sparkport_bytes", "Bytes of messages.", labels=["direction"])
        for direction, how_many, bytes_ in (
            ("out", totals.rows_out, totals.bytes_out),
            ("in", totals.rows_in, totals.bytes_in),
        ):
            rows.add_metric([direction], how_many)
            size.add_metric([direction], bytes_)
        yield rows
        yield size
        running = GaugeMetricFamily(
            "sparkport_calls_running", "Calls under way, by method.", labels=["method"]
        )
        methods = [work.rpc for work in self._activity.running()]
        for method in sorted(set(methods)):
            running.add_metric([method], methods.count(method))
        yield running
        for name, used in self._service.keeper.snapshot().items():
            yield _gauge(f"sparkport_{name}_in_use", _IN_USE.get(name, name), used)
        yield _gauge("sparkport_threads", "Threads of the process.", threading.active_count())
        yield _gauge("sparkport_draining", "1 while the server is stopping.", int(self._draining()))
        outdated = int(self._service.rules_outdated)
        yield _gauge(
            "sparkport_rules_outdated",
            "1 while newer rules cannot be used, and the old ones hold.",
            outdated,
        )
        failures = 0 if self._audit is None else self._audit.failures
        yield CounterMetricFamily(
            "sparkport_audit_failures", "Lines that the audit log has lost.", failures
        )
        version = GaugeMetricFamily(
            "sparkport_info", "Which Sparkport this is.", labels=["version"]
        )
        version.add_metric([sparkport.__version__], 1)
        yield version
        yield from self._of_catalogs()

    def _of_catalogs(self) -> Iterator[Metric]:
        families: dict[str, GaugeMetricFamily] = {}
        for registered in self._service.registry.all():
            if not isinstance(registered.catalog, Measured):
                continue
            try:
                figures = dict(registered.catalog.gauges())
            except Exception:  # noqa: BLE001 - a catalog in trouble must not hide the other metrics
                _log.warning("catalog %s does not tell its figures", registered.name, exc_info=True)
                continue
            for name, figure in figures.items():
                if _GAUGE_NAME.fullmatch(name):
                    family = families.get(name) or GaugeMetricFamily(
                        f"sparkport_catalog_{name}",
                        f"{name.replace('_', ' ').capitalize()}, of a catalog.",
                        labels=["catalog"],
                    )
                    families[name] = family
                    family.add_metric([registered.name], figure)
        yield from families.values()


def _gauge(name: str, meaning: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, meaning, value)
