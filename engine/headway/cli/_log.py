"""The form of the log lines of commands that run controllers."""

from __future__ import annotations

import datetime
import json
import sys

import click

from headway.cli._running import LastingOutput


def announce(form: str | None, sentence: str) -> None:
    """Print what a command has begun to do. In a JSON log it is a line of the log."""
    if form == "json":
        import structlog

        structlog.get_logger("headway").info(sentence)
    else:
        click.echo(sentence)
    sys.stdout.flush()


def tell(form: str | None, sentence: str, *, warning: bool = False) -> None:
    """Print something about a command that goes on. In a JSON log it is a line of the log, else it is on stderr."""
    if form == "json":
        import structlog

        log = structlog.get_logger("headway")
        (log.warning if warning else log.info)(sentence.removeprefix("Warning: "))
    else:
        click.echo(sentence, err=True)
    sys.stdout.flush()


def configure_log(form: str | None) -> None:
    """Set structlog to ``pretty`` or ``json`` lines on standard output. None leaves it as the app has configured it."""
    if form is None:
        return
    import structlog

    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.StackInfoRenderer(),
    ]
    if form == "json":
        shared += [
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ]
    else:
        shared += [
            structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(colors=sys.stdout.isatty()),
        ]
    structlog.configure(processors=shared, logger_factory=structlog.PrintLoggerFactory(sys.stdout))
    if form == "json" and isinstance(sys.stdout, LastingOutput):
        sys.stdout.loss = _json_loss


def _json_loss(sentence: str) -> str:
    at = datetime.datetime.now(datetime.UTC).isoformat().replace("+00:00", "Z")
    return json.dumps({"event": sentence, "level": "warning", "timestamp": at})
