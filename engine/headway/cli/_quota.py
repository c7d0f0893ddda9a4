"""The commands `headway quota` and `headway quota set`: what partitions and namespaces may have, and what they have."""

from __future__ import annotations

import re

import click

from headway.base import plain
from headway.cli._connection import Connection, connected
from headway.cli._exits import Usage
from headway.cli._output import Details, details_option, json_text, table
from headway.quotas import QUOTA, Quota, QuotaInfo, list_quotas, quota_problem
from headway.resource import DEFAULT_UNIT

_HEADS = ("QUOTA", "PARTITION", "NAMESPACE", "TYPE", "RESOURCES", "BYTES", "REFUSED")

_UNITS = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
_TYPE = re.compile(r"[^.\s]+\.([^.\s]+\.)?[^.\s]+\Z")
_SIZE = re.compile(r"([0-9]{1,19})(|Ki|Mi|Gi|Ti)\Z")


@click.group(invoke_without_command=True)
@details_option
@click.pass_context
def quota(context: click.Context, output: Details) -> None:
    """Show the quotas of partitions and namespaces with their use, or set one.

    RESOURCES and BYTES have the use and the limit, such as 40/100. REFUSED is the number of writes that the answering
    process has refused. Quotas are resources: `headway apply` and `headway delete quota NAME` work as with any other.
    """
    if context.invoked_subcommand is None:
        _show(output)


@connected
async def _show(connection: Connection, output: Details) -> None:
    quotas = await list_quotas(connection.client)
    if output == "json":
        click.echo(json_text([each._asdict() for each in quotas], indent=2))
    elif quotas:
        click.echo(table(_HEADS, [[plain(cell) for cell in _row(each)] for each in quotas]))
    else:
        click.echo("no quota found", err=True)


def _row(quota: QuotaInfo) -> list[str]:
    return [
        quota.name,
        quota.partition,
        quota.namespace or "*",
        quota.type or "*",
        _used(quota.resources, quota.max_resources),
        _used(quota.bytes, quota.max_bytes),
        str(quota.refused),
    ]


def _used(use: int, limit: int | None) -> str:
    return str(use) if limit is None else f"{use}/{limit}"


@quota.command("set")
@click.argument("name")
@click.option("--partition", "-p", default="", help="The partition. The default one without it.")
@click.option("--namespace", "-n", default="", help="The namespace. The whole partition without it.")
@click.option("--type", "kind", default="", metavar="GROUP.KIND", help="The only type that counts, such as staff.Team.")
@click.option("--max-resources", type=click.IntRange(min=0), help="The maximum number of resources.")
@click.option("--max-bytes", metavar="SIZE", help="The maximum number of their bytes, such as 500000, 64Mi or 2Gi.")
@connected
async def set_quota(
    connection: Connection,
    name: str,
    partition: str,
    namespace: str,
    kind: str,
    max_resources: int | None,
    max_bytes: str | None,
) -> None:
    """Create or replace the quota NAME. This replaces the whole quota: repeat every option that should stay.

    A quota below its use blocks no deletion, and no write that makes a resource smaller.
    """
    if kind and not _TYPE.match(kind):
        raise Usage(f"--type {kind!r} must be a group and a kind, such as staff.Team")
    if max_resources is None and max_bytes is None:
        raise Usage("--max-resources or --max-bytes is required, as in --max-resources 1000")
    size = None if max_bytes is None else _size(max_bytes)
    limits = Quota(
        partition=partition or DEFAULT_UNIT,
        namespace=namespace,
        group=kind.partition(".")[0],
        kind=kind.rpartition(".")[2],
        max_resources=max_resources,
        max_bytes=size,
    )
    if problem := quota_problem(limits):
        raise Usage(problem)
    await connection.client.apply(QUOTA.new(name, limits))
    click.echo(f"quota {name} is set")


def _size(text: str) -> int:
    found = _SIZE.match(text)
    if found is None:
        raise Usage(f"--max-bytes {text!r} must be a number of bytes, such as 500000, 64Mi or 2Gi")
    return int(found[1]) * _UNITS[found[2]]
