"""A target on the Singer SDK, of the kind that meltano/sdk#3775 describes: a batch is one transaction of SQLite."""

import sqlite3
from typing import Any

from singer_sdk import BatchSink, Target
from singer_sdk import typing as th


class SqliteSink(BatchSink):
    """One table a stream, of which only the key matters here."""

    def process_batch(self, context: dict[str, Any]) -> None:
        """Insert the records of a batch, and commit; a batch without records is fine."""
        with sqlite3.connect(self.config["path"]) as database:
            database.execute(f"CREATE TABLE IF NOT EXISTS {self.stream_name} (id INTEGER, name TEXT)")
            for record in context.get("records", ()):
                database.execute(f"INSERT INTO {self.stream_name} VALUES (:id, :name)", record)


class SqliteTarget(Target):
    """`path` is the database."""

    name = "target-sqlite-example"
    config_jsonschema = th.PropertiesList(th.Property("path", th.StringType, required=True)).to_dict()
    default_sink_class = SqliteSink


if __name__ == "__main__":
    SqliteTarget.cli()
