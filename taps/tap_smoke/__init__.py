"""A Singer tap whose records are a function of (seed, stream, number) and whose every misbehaviour is a setting.

```
settings.py   the table of settings          config.py     the file, read strictly
records.py    what record n is               columns.py    the columns of `types`
messages.py   how it looks on the wire       wire.py       the pipe
bookmarks.py  where a stream resumes         state.py      the STATE as a whole
catalog.py    what can be, and is, selected  faults.py     what goes wrong, and when
stream.py     one stream of this run         sync.py       the run
cli.py        the command line
```
It imports nothing from the bridge: they meet on a pipe.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> int:
    """Run the command line; the return value is the exit code."""
    import sys

    from tap_smoke.cli import run

    return run(sys.argv[1:])
