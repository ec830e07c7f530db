"""`completion`: let a shell complete verbs, flags and the names of pipelines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import yaml
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", metavar="bash|zsh|fish", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that lets SHELL complete verbs, options and pipelines. Source it in the shell's start-up file.

    \b
    singer-bridge completion bash > ~/.singer-bridge-completion.bash
    singer-bridge completion fish > ~/.config/fish/completions/singer-bridge.fish
    """
    kind = get_completion_class(shell)
    assert kind
    click.echo(kind(ctx.find_root().command, {}, "singer-bridge", "_SINGER_BRIDGE_COMPLETE").source())


def complete_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The pipelines of the settings file that begin like this and were not typed yet."""
    given = ctx.params.get("names") or ()
    return [name for name in _keys(ctx, "pipelines") if name.startswith(incomplete) and name not in given]


def names_in_file(ctx: click.Context) -> list[str]:
    """The pipelines of the nearest settings file, as far as it can be read."""
    return _keys(ctx, "pipelines")


def complete_environments(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The environments of the settings file that begin like this."""
    return [name for name in _keys(ctx, "environments") if name.startswith(incomplete)]


def _keys(ctx: click.Context, section: str) -> list[str]:
    """The keys of a section as written. Nothing is expanded or checked, and an unreadable file has none."""
    from bridge.settings.load import find_file

    path = ctx.params.get("file") or find_file(Path.cwd())
    return [key for data in _files(Path(path)) for key in _mapping(data.get(section))] if path else []


def _files(path: Path) -> Iterator[dict[str, Any]]:
    data = _read(path)
    yield data
    included = data.get("include")
    for glob in included if isinstance(included, list) else []:
        with suppress(ValueError, NotImplementedError):  # a glob that is not valid
            yield from (_read(file) for file in sorted(path.parent.glob(str(glob))))


def _read(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError, yaml.YAMLError):
        return _mapping(yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader)))  # noqa: S506 - it is the safe one
    return {}


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
