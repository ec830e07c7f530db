"""Iceberg's own implementation of its REST catalog, in Java, from Maven: the one that engines are tested against."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyspark

from tests.interop.catalogs.server import CatalogServer
from tests.interop.maven import java, maven_files

VERSION = "1.10.1"
_ARTIFACTS = (
    f"org.apache.iceberg:iceberg-core:{VERSION}",
    f"org.apache.iceberg:iceberg-core:{VERSION}:jar:tests",
    "org.eclipse.jetty:jetty-servlet:11.0.26",
    "org.xerial:sqlite-jdbc:3.51.1.0",
    "org.slf4j:slf4j-simple:2.0.17",
)
HADOOP = Path(pyspark.__file__).parent / "jars"
"""Where the classes are that read and write a folder."""


class Reference(CatalogServer):
    """The catalog. It keeps its tables in SQLite, and their metadata wherever the tables are."""

    product = f"Apache Iceberg {VERSION}, its REST catalog for tests"

    def command(self) -> list[Any]:
        home = maven_files(f"iceberg-rest-{VERSION}", *_ARTIFACTS)
        jars = [f"{home}/*", *map(str, HADOOP.glob("hadoop-client-*.jar")), *map(str, HADOOP.glob("commons-logging-*"))]
        source = Path(__file__).with_name("ReferenceCatalog.java")
        return [java(17) / "bin/java", "-Xmx512m", "-cp", os.pathsep.join(jars), source, self.port, self.folder]

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def properties(self) -> dict[str, str]:
        return {"type": "rest", "uri": self.uri}
