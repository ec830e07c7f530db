"""One tap process, and what it is given: its venv, its settings, its catalog, its STATE.

Enters: settings of `source`. Leaves: messages from the tap's stdout, its last words from stderr, its exit code. A tap
is another program; it meets the bridge on a pipe only, and it is never left behind: its process group ends with it.

`source.py` says what to start, `process.py` starts and stops it, `pipe.py` reads it. Read `source.py` first.
"""
