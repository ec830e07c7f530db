"""Apache Hive's metastore, of the classes that pyspark brings, over thrift; it keeps its tables in Derby."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.interop.catalogs.reference import HADOOP
from tests.interop.catalogs.server import CatalogServer
from tests.interop.maven import java

_OPENS = ("java.lang", "java.net", "java.util", "java.util.concurrent")


class Metastore(CatalogServer):
    """The metastore."""

    @property
    def product(self) -> str:  # type: ignore[override]
        (jar,) = HADOOP.glob("hive-metastore-*.jar")
        return f"Apache Hive {jar.stem.rpartition('-')[2]}, its metastore"

    def command(self) -> list[Any]:
        facts = {
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={self.folder}/derby;create=true",
            "hive.metastore.warehouse.dir": f"file://{self.folder}/warehouse",
            "hive.metastore.schema.verification": "false",
            "datanucleus.schema.autoCreateAll": "true",
            "hive.async.log.enabled": "false",
            "datanucleus.connectionPoolingType": "HIKARICP",
            # A lock of a process that was killed goes after seconds, not minutes.
            "hive.support.concurrency": "true",
            "hive.txn.manager": "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
            "hive.compactor.initiator.on": "true",
            "hive.txn.timeout": "4s",
            "hive.timedout.txn.reaper.start": "1s",
            "hive.timedout.txn.reaper.interval": "1s",
        }
        (self.folder / "hive-site.xml").write_text(
            "<configuration>"
            + "".join(
                f"<property><name>{name}</name><value>{value}</value></property>" for name, value in facts.items()
            )
            + "</configuration>"
        )
        opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENS]
        path = os.pathsep.join([str(self.folder), f"{HADOOP}/*"])
        source = Path(__file__).with_name("Metastore.java")
        flags = ["-Xmx512m", f"-Djava.io.tmpdir={self.folder}", *opens]
        return [java(17) / "bin/java", *flags, "-cp", path, source, "-p", self.port]

    @property
    def uri(self) -> str:
        return f"thrift://127.0.0.1:{self.port}"

    @property
    def properties(self) -> dict[str, str]:
        return {"type": "hive", "uri": self.uri, "hive.hive2-compatible": "true"}
