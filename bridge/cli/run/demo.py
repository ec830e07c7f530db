"""`demo`: everything on real data."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=".singer-bridge/demo",
    show_default=True,
    help="Folder of the demo's project.",
)
@click.option("--to", "lake", type=click.Path(path_type=Path), default="lake", show_default=True, help="Lake folder.")
@click.option("--kill", is_flag=True, help="Kill the first load again and again, and count after each kill.")
def demo(folder: Path, lake: Path, kill: bool) -> int:
    """Load 336,776 real flights from a real PostgreSQL, change some, and load only the changes.

    \b
    singer-bridge demo
    singer-bridge demo --kill --to /tmp/lake
    """
    from bridge.operate.demo import run_demo

    return run_demo(folder, lake, kill=kill)
