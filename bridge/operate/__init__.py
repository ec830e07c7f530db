"""Verbs of operators besides loading: they look after a lake, a project, a tap.

```
verify/    compare the lake with its commit log, and repair it
readers/   statements with which other engines read a table
doctor/    is this machine, this bucket, this lake in order?
smoke/     does a tap keep to the protocol?
reconcile/ is the lake what its source is?
project/   files that a user edits: a new project, one more pipeline, or one less
demo/      `make demo`
```
A verb that writes to a lake takes the pipeline's lease and makes its own commit. A verb that only looks takes no lease
and writes nothing. Read `verify/check.py` first.
"""

DOORS = """
demo doctor.lake project.append project.clashes project.crontab project.dotenv project.entry project.leftovers
project.removal project.selection project.starter project.taps readers.choice readers.ddl readers.engines
readers.history reconcile.reconcile rollback_warnings smoke.golden smoke.loading smoke.reports smoke.trial verify.check
verify.mend verify.report
""".split()
"""The modules that other wings may import; tests/test_architecture.py holds them to it."""
