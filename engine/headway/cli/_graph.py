"""The command `headway graph`, which shows what each controller manages, watches, reads and writes."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from typing import Literal

import click

from headway.base import plain
from headway.cli._exits import Exit, fail
from headway.cli._named import apps_at
from headway.cli._output import utf8_for_programs
from headway.cli._progress import is_terminal
from headway.errors import DeclarationError
from headway.graphs import Graph
from headway.graphs import graph as graph_of

_WIDTH = 80


@click.command()
@click.argument("app")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "drawing", "svg", "mermaid", "json"]),
    callback=utf8_for_programs,
    help="drawing is of characters; svg is an image; mermaid is a flowchart; json has all details.  [default: text, "
    "and before it, on a terminal that is wide enough, the drawing]",
)
def graph(app: str, output: Literal["text", "drawing", "svg", "mermaid", "json"] | None) -> None:
    """Show what the controllers of APP (module:attribute) manage, watch, read and write.

    Also show the cycles: the paths on which a change can come back to its start. This needs no server.
    """
    try:
        found = graph_of(*apps_at(app))
    except DeclarationError as error:
        fail(Exit.REFUSED, f"Error: {error}")
    if output == "json":
        click.echo(json.dumps(found.data(), indent=2, ensure_ascii=False))
    elif output == "mermaid":
        click.echo(found.mermaid(), nl=False)
    elif output == "svg":
        click.echo(found.svg(), nl=False)
    elif output == "drawing":
        click.echo(_drawing(found))
    else:
        if output is None and found.edges and is_terminal(sys.stdout):
            _draw_if_it_fits(_drawing(found))
        click.echo(_text(found))


def _drawing(graph: Graph) -> str:
    return "\n".join(map(plain, graph.drawing().split("\n")))


def _draw_if_it_fits(drawing: str) -> None:
    width = max(map(len, drawing.split("\n")))
    if width <= shutil.get_terminal_size().columns:
        click.echo(f"{drawing}\n")
    else:
        click.echo(
            f"The drawing is {width} columns wide: `-o drawing` shows it anyway, `-o svg` is an image.\n", err=True
        )


def _text(graph: Graph) -> str:
    parts = [_controller(graph, name) for name in graph.controllers]
    used = {edge.type for edge in graph.edges}
    alone = [type for type in graph.types if type not in used]
    if alone:
        parts.append(_wrapped("No controller uses " + ", ".join(alone) + "."))
    for number, cycle in enumerate(graph.cycles, start=1):
        parts.append(f"Cycle {number}: a change of {cycle.types[0]}")
        parts[-1] += "".join(
            "\n" + _wrapped(f"makes {step.controller} {step.how.removesuffix('s')} {step.target}", "  ")
            for step in cycle.steps
        )
    if graph.undeclared and graph.controllers:
        who = ", ".join(graph.undeclared)
        parts.append(_wrapped(f"Assumed to write what they manage, because they declare no writes: {who}."))
    if not graph.cycles and graph.undeclared:
        parts.append(_wrapped("No cycles among what is declared: a write that is not declared may close one."))
    elif not graph.cycles:
        parts.append("No cycles.")
    return "\n\n".join("\n".join(map(plain, part.split("\n"))) for part in parts)


def _controller(graph: Graph, name: str) -> str:
    declared_as, sources = graph.controllers[name]
    lines = [name if declared_as == "controller" else f"{name} ({declared_as})"]
    for edge in graph.edges:
        if edge.controller == name:
            by = f", by {edge.by}" if edge.by and not edge.by.startswith("when ") else f" {edge.by}".rstrip()
            lines.append(_wrapped(f"{edge.relation:7}  {edge.of}{by}", "  "))
    lines += [_wrapped(f"hears    {source}", "  ") for source in sources]
    return "\n".join(lines)


def _wrapped(text: str, indent: str = "") -> str:
    """Wrap text for a terminal. Names are never broken, so that they can be searched for."""
    further = f"{indent}           " if indent else ""
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )
