"""`demo`: the whole of it on real data."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(short_help="Watch the whole of it on real data.")
@click.option("--folder", type=click.Path(path_type=Path), default=".singer-bridge/demo", show_default=True)
@click.option("--to", "lake", type=click.Path(path_type=Path), default="lake", show_default=True, help="Lake folder.")
def demo(folder: Path, lake: Path) -> int:
    """Load 336,776 real flights from a real PostgreSQL, change some, and load only those.

    \b
    singer-bridge demo
    singer-bridge demo --to /tmp/lake
    """
    from bridge.demo import run_demo

    return run_demo(folder, lake)
