"""The command `headway edit`: change one resource in an editor.

The edit is stored over the version that was read, so that no other change is overwritten. After an error the editor
opens again, with the error above the text.
"""

from __future__ import annotations

import os
import shlex
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
import trio

from headway import manifest
from headway.cli._arguments import one_of_a_name
from headway.cli._connection import Connection, connected
from headway.cli._exits import Exit, Usage, fail
from headway.cli._missing import naming_units
from headway.cli._names import find_named
from headway.cli._running import code_of
from headway.errors import Conflict, FailedPrecondition, HeadwayError, InvalidArgument, ManifestError, NotFound
from headway.resource import Resource, redacted_resource

_MARK = "#: "
"""The beginning of the lines above the text, which are removed."""
_HELP = "Edit and save the resource below. An empty text, or one without a change, stores nothing."


@click.command()
@one_of_a_name
@click.option("--show-secrets", is_flag=True, help="Show the values of secret fields, which can then be edited.")
@connected
async def edit(
    connection: Connection, type: str, name: str, partition: str, namespace: str, show_secrets: bool
) -> None:
    """Edit one resource in your editor, and store it if it has not changed meanwhile.

    The editor is that of $VISUAL or $EDITOR, or else vi. After an error it opens again, with the error above the text.
    Save an empty text to give up.
    """
    found, id = find_named(type, name, partition, namespace, connection.registry)
    client = connection.client
    async with naming_units(client, id.partition, id.namespace):
        stored = await client.read(found, id)
    text = manifest.dump(stored)
    if not show_secrets and text != manifest.dump(redacted_resource(stored)):
        raise Usage(f"{stored.id} has secret fields that are set: give --show-secrets to edit it with their values")
    original, said = text, [_HELP]
    error: HeadwayError | None = None
    with tempfile.TemporaryDirectory(prefix="headway-edit-") as folder:
        path = os.path.join(folder, f"{stored.type.name.kind.lower()}.yaml")
        while True:
            edited = await _edited(path, text, said)
            same = edited == (original if error is None else text)
            if not edited.strip() or (same and not isinstance(error, Conflict)):
                if error is not None:
                    code = Exit.MANIFEST if isinstance(error, ManifestError) else code_of(error)
                    fail(code, f"Error: {error}\n{stored.id} is not changed")
                click.echo(f"{stored.id} unchanged")
                return
            text = edited
            try:
                after = await client.apply_over(stored, _checked(edited, path, connection, stored))
            except Conflict as conflict:
                # Without a resource there is nothing to edit any more.
                current = await client.get(found, id)
                if current is None or current.uid != stored.uid:
                    raise NotFound(f"{stored.id} was deleted meanwhile") from conflict
                stored, error = current, conflict
                shown = stored if show_secrets else redacted_resource(stored)
                said = [
                    f"Not stored: it has changed since it was read. Save again to replace version {stored.version}, or",
                    "save an empty text to give up. It is now:",
                    *manifest.dump(shown).splitlines(),
                ]
            except (ManifestError, InvalidArgument, FailedPrecondition) as refused:
                error, said = refused, [f"Not stored: {line}" for line in str(refused).splitlines()]
            except HeadwayError:
                click.echo(f"The text is kept in {_kept(text)}", err=True)
                raise
            else:
                click.echo(f"{stored.id} {'unchanged' if after.version == stored.version else 'changed'}")
                return


async def _edited(path: str, text: str, said: list[str]) -> str:
    """Return what the user makes of a text, without the lines above it; an empty text if it was not saved."""
    above = "".join(f"{_MARK}{line}\n" for line in said)
    # Only the user can read the folder.
    await trio.Path(path).write_text(above + text, encoding="utf-8")
    # Whatever saves the file changes this time.
    os.utime(path, ns=(0, 0))
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    command = shlex.split(editor) or ["vi"]
    try:
        with _without_interrupts():
            done = await trio.run_process([*command, path], stdin=None, check=False)
    except OSError as error:
        raise Usage(
            f"the editor {editor!r} cannot be started ({error.strerror}): set EDITOR, as in EDITOR=nano"
        ) from error
    if done.returncode:
        fail(Exit.REFUSED, f"Error: the editor {editor!r} ended with status {done.returncode}, so nothing is stored")
    if os.stat(path).st_mtime_ns == 0:
        return ""
    try:
        edited = await trio.Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        fail(Exit.REFUSED, f"Error: the text that the editor {editor!r} saved is not UTF-8, so nothing is stored")
    return "".join(line for line in edited.splitlines(keepends=True) if not line.startswith(_MARK.rstrip()))


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Ignore SIGINT during the block: a terminal sends it to the editor, too, in which Ctrl-C has its own meaning."""
    # A handler and not SIG_IGN, which the editor would inherit.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _kept(text: str) -> str:
    """Return the path of a new file with the text, which only the user can read."""
    descriptor, path = tempfile.mkstemp(prefix="headway-edit-", suffix=".yaml")
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def _checked(text: str, path: str, connection: Connection, stored: Resource[Any]) -> Resource[Any]:
    """Return the edited resource. Raises ManifestError, or InvalidArgument if it is another one."""
    found = manifest.load(text, connection.registry, source=os.path.basename(path))
    if len(found) != 1:
        raise InvalidArgument(f"the text must have one document, not {len(found)}")
    [wanted] = found
    if (wanted.type.name, wanted.id.key) != (stored.type.name, stored.id.key):
        raise InvalidArgument(f"{wanted.id} is another resource than {stored.id}: use `headway apply` to create it")
    return wanted
