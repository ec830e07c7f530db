"""A Singer tap that plays a recorded file again, as fast as the disk or as slow as you set it.

```
config.py     the settings        recording.py   what is in the file
player.py     how it is played    cli.py         the command line
```
It imports nothing from the bridge: they meet on a pipe.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> int:
    """Run the command line; the return value is the exit code."""
    import sys

    from tap_replay.cli import run

    return run(sys.argv[1:])
