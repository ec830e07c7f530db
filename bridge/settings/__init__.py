"""The settings of bridge.yaml, frozen and typed. Each error names file, line and key; none shows a secret.

Enters: the settings files, the environment, or a command line's flags. Leaves: a `Pipeline`.

`text/` reads YAML with the line of every key, `layers.py` merges defaults and environments, `reading.py` checks one
pipeline, `options.py` and `destination.py` are the settings themselves, `values/` the types they are made of.
Read `options.py` first; `load.py` is what others call.
"""

DOORS = """
commands destination effective explain inline layers load lookup_sql options receivers redact secrets service text.tree
text.variables text.yamlfile transform_sql values.catalogs values.checked values.cron values.request values.schedules
values.stores values.units view_sql
""".split()
"""The modules that other wings may import; tests/test_architecture.py holds them to it."""
