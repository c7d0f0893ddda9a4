"""`headway graph`: who manages, watches, reads and writes what."""

from __future__ import annotations

import json
from typing import Literal

import click

from headway.cli._exits import Exit, fail
from headway.cli._serve import apps_at
from headway.cli._text import plain, table
from headway.controller import Graph
from headway.controller import graph as graph_of
from headway.errors import DeclarationError


@click.command()
@click.argument("app")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "mermaid", "json"]),
    default="text",
    show_default=True,
    help="mermaid is a flowchart; json is all that is known.",
)
def graph(app: str, output: Literal["text", "mermaid", "json"]) -> None:
    """Show what the controllers of APP (module:attribute) manage, watch, read and write.

    And the cycles: the ways on which a change can come back to where it began. No server is needed.
    """
    try:
        found = graph_of(*apps_at(app))
    except DeclarationError as error:
        fail(Exit.REFUSED, f"Error: {error}")
    if output == "json":
        click.echo(json.dumps(found.data(), indent=2, ensure_ascii=False))
    elif output == "mermaid":
        click.echo(found.mermaid(), nl=False)
    else:
        click.echo(_text(found))


def _text(graph: Graph) -> str:
    parts = []
    if graph.controllers:
        parts.append(table(["CONTROLLER", "", "WHAT", "BY"], _rows(graph)))
    used = {edge.type for edge in graph.edges}
    alone = [type for type in graph.types if type not in used]
    if alone:
        parts.append("No controller has to do with " + ", ".join(alone) + ".")
    for number, cycle in enumerate(graph.cycles, start=1):
        way = " -> ".join([*cycle.types, cycle.types[0]])
        parts.append("\n".join([f"Cycle {number}: {way}", *(f"  {step}" for step in cycle.steps)]))
    if graph.undeclared and graph.controllers:
        parts.append("Taken to write what they manage, because they don't say: " + ", ".join(graph.undeclared) + ".")
    if not graph.cycles:
        parts.append("No cycles.")
    return "\n\n".join("\n".join(map(plain, part.split("\n"))) for part in parts)


def _rows(graph: Graph) -> list[tuple[str, str, str, str]]:
    rows: list[tuple[str, str, str, str]] = []
    for name, (declared_as, sources) in graph.controllers.items():
        label = name if declared_as == "controller" else f"{name} ({declared_as})"
        for edge in graph.edges:
            if edge.controller == name:
                rows.append((label, edge.relation, edge.type, edge.by))
                label = ""
        for source in sources:
            rows.append(("", "hears", source, ""))
    return rows
