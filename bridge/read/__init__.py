"""Read a lake: tables and views at a commit, from Python, by SQL, and in a Spark session of a user's own.

Enters: a bucket, a question. Leaves: Arrow data. Nothing is written and no lease is taken: `query/` is for everybody,
`spark_source/` is imported by nobody but its users.
"""

DOORS = """
query.changes.change query.changes.commit_effects query.changes.feed query.changes.json_text query.changes.messages
query.changes.parts query.engine query.follow query.growth query.head query.keys query.lake query.pipelines query.runs
query.snapshot query.status query.system query.values query.view query.views
""".split()
"""The modules that other wings may import; tests/test_architecture.py holds them to it."""
