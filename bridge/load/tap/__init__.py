"""One tap process, and what it is given: its venv, its settings, its catalog, its STATE.

Enters: the settings of `source`. Leaves: messages from the tap's stdout, the last lines of its stderr, its exit code. A
tap is another program. It meets the bridge only on a pipe, and its process group ends with it, even if we are killed.

`source.py` says what to start, `process.py` starts and stops it, `pipe.py` reads it; `database/` asks what is below it.
Read `source.py` first.
"""
