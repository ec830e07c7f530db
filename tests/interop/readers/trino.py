"""Trino from Maven, on loopback, with its connectors for Hive's tables, Delta and Iceberg."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

from tests.interop.catalogs.server import CatalogServer
from tests.interop.maven import java, maven_files
from tests.support.s3server import ROOT

VERSION = "476"
_PLUGINS = {"hive", "delta-lake", "iceberg"}


def _home() -> Path:
    """The server without the plugins that nothing here needs, unpacked once."""
    home = ROOT / ".interop" / f"trino-{VERSION}"
    if not home.exists():
        archive = maven_files(f"trino-archive-{VERSION}", f"io.trino:trino-server:{VERSION}:tar.gz", alone=True)
        making = home.with_name(f"{home.name}.making")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir()
        (packed,) = archive.glob("*.tar.gz")
        subprocess.run(["tar", "xzf", packed, "-C", making, "--strip-components=1"], check=True)
        for plugin in (making / "plugin").iterdir():
            if plugin.name not in _PLUGINS:
                shutil.rmtree(plugin)
        making.replace(home)
        shutil.rmtree(archive)
    return home


class Trino(CatalogServer):
    """The server. `lake` is that Iceberg catalog, by its URI; `delta` and `hive` have metastores of their own."""

    product = f"Trino {VERSION}"

    def __init__(self, iceberg: str) -> None:
        super().__init__()
        self._iceberg = iceberg

    def command(self) -> list[Any]:
        files = {"fs.hadoop.enabled": "true"}
        iceberg = {"iceberg.catalog.type": "rest", "iceberg.rest-catalog.uri": self._iceberg}
        if self._iceberg.startswith("thrift:"):
            iceberg = {"iceberg.catalog.type": "hive_metastore", "hive.metastore.uri": self._iceberg}
        metastore = {"hive.metastore": "file"}
        self._write(
            "config.properties",
            {
                "node.environment": "test",
                "coordinator": "true",
                "node-scheduler.include-coordinator": "true",
                "http-server.http.port": self.port,
                "discovery.uri": f"http://127.0.0.1:{self.port}",
                "query.max-memory-per-node": "256MB",
                "plugin.dir": _home() / "plugin",
            },
        )
        for name, connector, facts in (
            ("hive", "hive", metastore | {"hive.recursive-directories": "true"}),
            ("delta", "delta_lake", metastore | {"delta.register-table-procedure.enabled": "true"}),
            ("lake", "iceberg", iceberg),
        ):
            own = {"hive.metastore.catalog.dir": f"file://{self.folder}/{name}"} if name != "lake" else {}
            self._write(f"catalog/{name}.properties", {"connector.name": connector, **files, **facts, **own})
        flags = ["-Xmx1500m", "-XX:+EnableDynamicAgentLoading", "--enable-native-access=ALL-UNNAMED"]
        flags += ["--add-modules=jdk.incubator.vector", "-Duser.timezone=UTC", "-Djdk.attach.allowAttachSelf=true"]
        flags += ["--sun-misc-unsafe-memory-access=allow", f"-Dconfig={self.folder}/etc/config.properties"]
        return [java(24) / "bin/java", *flags, "-cp", f"{_home()}/lib/*", "io.trino.server.TrinoServer"]

    def _write(self, name: str, facts: dict[str, Any]) -> None:
        file = self.folder / "etc" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{key}={value}\n" for key, value in facts.items()))

    @property
    def properties(self) -> dict[str, str]:
        return {}

    def is_up(self) -> bool:
        """Whether it answers queries: its node may be known to it later than it says that it has started."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/info", timeout=5) as answer:
                nodes = "SELECT 1 FROM system.runtime.nodes"  # a query that needs a node
                return not json.load(answer)["starting"] and bool(self.query(nodes, "lake"))
        except (OSError, RuntimeError):
            return False

    def query(self, statement: str, catalog: str) -> list[dict[str, Any]]:
        """What a statement gives, in a catalog's schema `default`. Raises `RuntimeError` with Trino's words."""
        heads = {"X-Trino-User": "test", "X-Trino-Catalog": catalog, "X-Trino-Schema": "default"}
        heads["X-Trino-Time-Zone"] = "UTC"
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/statement", statement.encode(), heads)
        names: list[str] = []
        rows: list[dict[str, Any]] = []
        while True:
            with urllib.request.urlopen(request, timeout=60) as answer:
                page = json.load(answer)
            if "error" in page:
                raise RuntimeError(page["error"]["message"])
            names = [column["name"] for column in page.get("columns", [])] or names
            rows += [dict(zip(names, row, strict=True)) for row in page.get("data", [])]
            if "nextUri" not in page:
                return rows
            request = urllib.request.Request(page["nextUri"], headers=heads)
