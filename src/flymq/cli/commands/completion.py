"""`flymq completion`: the shell script that completes commands, options and topic names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from flymq.cli import COMPLETION_VARIABLE


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the shell completion script.

    \b
    bash:   eval "$(flymq completion bash)"                       in ~/.bashrc
    zsh:    eval "$(flymq completion zsh)"                        in ~/.zshrc
    fish:   flymq completion fish > ~/.config/fish/completions/flymq.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "flymq", COMPLETION_VARIABLE).source())
