"""Project Nessie from Maven: an Iceberg REST catalog over an S3 store, with its own access to the store."""

from __future__ import annotations

import urllib.request
from typing import Any

from tests.interop.catalogs.server import CatalogServer
from tests.interop.maven import java, maven_files
from tests.support.s3server import S3Server

VERSION = "0.99.0"


class Nessie(CatalogServer):
    """The catalog of the warehouse `lake`, which is the bucket of that name."""

    product = f"Project Nessie {VERSION}"

    def __init__(self, s3: S3Server) -> None:
        super().__init__()
        self.store = s3.endpoint
        self.keys = (s3.environ["AWS_ACCESS_KEY_ID"], s3.environ["AWS_SECRET_ACCESS_KEY"])

    def command(self) -> list[Any]:
        home = maven_files(
            f"nessie-{VERSION}", f"org.projectnessie.nessie:nessie-quarkus:{VERSION}:jar:runner", alone=True
        )
        store = "nessie.catalog.service.s3.default-options"
        facts = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": self.port,
            "quarkus.management.enabled": "false",
            "nessie.version.store.type": "ROCKSDB",
            "nessie.version.store.persist.rocks.database-path": self.folder / "rocks",
            "nessie.catalog.default-warehouse": "lake",
            "nessie.catalog.warehouses.lake.location": "s3://lake/",
            f"{store}.region": "us-east-1",
            f"{store}.path-style-access": "true",
            f"{store}.endpoint": self.store,
            f"{store}.access-key": "urn:nessie-secret:quarkus:keys",
            "keys.name": self.keys[0],
            "keys.secret": self.keys[1],
        }
        flags = [f"-D{name}={value}" for name, value in facts.items()]
        return [java(21) / "bin/java", "-Xmx512m", *flags, "-jar", home / f"nessie-quarkus-{VERSION}-runner.jar"]

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}/iceberg"

    @property
    def properties(self) -> dict[str, str]:
        return {"type": "rest", "uri": self.uri, "warehouse": "lake"}

    def is_up(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/v1/config", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
