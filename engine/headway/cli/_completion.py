"""The command `headway completion`."""

from __future__ import annotations

import contextlib
import io

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that enables completion in a shell.

    It completes commands, options, and the server's types and names. To enable it in every shell:

    \b
      bash   eval "$(headway completion bash)"      in ~/.bashrc
      zsh    eval "$(headway completion zsh)"       in ~/.zshrc
      fish   headway completion fish | source       in ~/.config/fish/config.fish
    """
    made = get_completion_class(shell)
    assert made is not None, "click knows bash, zsh and fish"
    root = click.get_current_context().find_root()
    with contextlib.redirect_stderr(io.StringIO()) as complaints:
        # Click runs bash to check its version, and may print a warning.
        script = made(root.command, {}, "headway", "_HEADWAY_COMPLETE").source()
    click.echo(complaints.getvalue(), err=True, nl=False)
    click.echo(script)
