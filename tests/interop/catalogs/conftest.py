"""Each catalog once for all tests of a file, and a lake whose table no earlier test has left in it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from bridge.lake.storage.protocol import Storage
from tests.interop.catalogs.metastore import Metastore
from tests.interop.catalogs.nessie import Nessie
from tests.interop.catalogs.reference import Reference
from tests.interop.catalogs.server import CatalogServer
from tests.interop.catalogs.writer import prepared
from tests.interop.minio import MinIO
from tests.support.iceberg_lake import IcebergLake

CATALOGS = ["nessie", "reference", "metastore"]


@pytest.fixture(scope="module")
def minio() -> Iterator[MinIO]:
    with MinIO() as s3:
        s3.bucket("lake")
        yield s3


@pytest.fixture(scope="module", params=CATALOGS)
def server(request: pytest.FixtureRequest) -> Iterator[CatalogServer]:
    """Nessie has the bucket `lake` of MinIO, the others have folders."""
    kinds = {"reference": Reference, "metastore": Metastore}
    made = Nessie(request.getfixturevalue("minio")) if request.param == "nessie" else kinds[request.param]()
    with made:
        yield made


@dataclass(frozen=True)
class Place:
    """A bucket that no run has been in, and the catalog that its tables are to be in."""

    server: CatalogServer
    bucket: str

    def prepared(self) -> Storage:
        return prepared(self.bucket, self.server.properties)

    def lake(self) -> IcebergLake:
        """The pipeline `p` after its settings are read, and its table as strangers see it through the catalog."""
        return IcebergLake(self.prepared(), **self.server.properties)

    def catalog(self) -> Catalog:
        return load_catalog("lake", **self.server.properties)


@pytest.fixture
def place(server: CatalogServer, tmp_path: Path) -> Place:
    with load_catalog("lake", **server.properties) as catalog, suppress(NoSuchTableError, NoSuchNamespaceError):
        catalog.drop_table("p.s")
    bucket = f"s3://lake/{uuid.uuid4().hex}" if isinstance(server, Nessie) else str(tmp_path / "lake")
    return Place(server, bucket)
