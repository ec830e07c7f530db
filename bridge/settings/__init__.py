"""The settings of bridge.yaml, frozen and typed. Each error names file, line and key; none shows a secret.

Enters: the settings files, the environment, or a command line's flags. Leaves: a `Pipeline`.

`text/` reads YAML with the line of every key, `layers.py` merges defaults and environments, `reading.py` checks one
pipeline, `options.py` and `destination.py` are the settings themselves, `values/` the types they are made of, `sql/`
reads their statements.
Read `options.py` first; `load.py` is what others call.
"""

DOORS = """
commands destination effective explain inline layers load options receivers redact secrets service sql.lookup
sql.transform sql.view text.tree text.variables text.yamlfile values.catalogs values.checked values.cron
values.request values.schedules values.stores values.units
""".split()
"""The modules that other wings may import; tests/test_architecture.py holds them to it."""
