"""The properties of an Iceberg catalog, which the bucket keeps: nothing secret is among them."""

from __future__ import annotations

import pytest
from pydantic_core import PydanticCustomError

from bridge.lake.formats.iceberg.catalog import CatalogFacts, unreachable
from bridge.settings.values.catalogs import catalog_properties, is_harmless

SECRETS = [
    "postgresql://u:TOPSECRET@h/d",
    "postgresql+psycopg://u:TOP/SECRET@h/d",
    "postgresql+psycopg://u:TOP?SECRET@h/d",
    "postgresql+psycopg://h/d?user=u&password=TOPSECRET",
    "postgresql+psycopg://h/d?pass%77ord=TOPSECRET",
    "postgresql+psycopg://h/d?sslmode=require&sslpassword=TOPSECRET",
    "https://h/?access_token=TOPSECRET",
    "https://h/x?a=b&sig=TOPSECRET",
    "https://TOPSECRET@h/x",
    "https://h/x?key=TOPSECRET",
]
HARMLESS = [
    "postgresql+psycopg://me@h:5432/d?sslmode=require&connect_timeout=5&passfile=/home/me/.pgpass&sslkey=/home/me/key",
    "https://h:8181/api/catalog?realm=a",
    "thrift://a:9083,thrift://b:9083",
    "sqlite:////data/catalog.db",
]


@pytest.mark.parametrize("uri", SECRETS)
def test_a_uri_with_a_secret(uri: str) -> None:
    """It is refused, as a URI and as another property; neither the refusal nor an error of the catalog shows it."""
    for key in ("uri", "warehouse"):
        with pytest.raises(PydanticCustomError) as caught:
            catalog_properties({"type": "rest", "uri": "https://h", key: uri})
        assert "no secrets here" in str(caught.value)
        assert "SECRET" not in f"{caught.value} {caught.value.context}"
    error = unreachable(CatalogFacts("lake", "p", {}), RuntimeError(f"cannot reach {uri} in 3 seconds"))
    assert "SECRET" not in f"{error}"
    assert "in 3 seconds" in f"{error}"


@pytest.mark.parametrize("uri", HARMLESS)
def test_a_uri_without_one(uri: str) -> None:
    """Hosts, ports, files and other parameters may be kept, and an error shows them."""
    assert catalog_properties({"uri": uri}) == {"uri": uri}
    error = unreachable(CatalogFacts("lake", "p", {}), RuntimeError(uri))
    assert uri.replace("me@h", "h") in f"{error}"


@pytest.mark.parametrize("name", ["Cookie", "X-Auth", "Authorization", "X-Api-Key", "X-Anything"])
def test_a_header_that_may_be_secret(name: str) -> None:
    """Only headers that are known to be harmless may be kept, in settings and in the bucket."""
    with pytest.raises(PydanticCustomError) as caught:
        catalog_properties({"type": "rest", "uri": "https://h", f"header.{name}": "TOPSECRET"})
    assert "TOPSECRET" not in f"{caught.value} {caught.value.context}"
    assert not is_harmless(f"header.{name}", "TOPSECRET")
    known = {"uri": "https://h", "header.X-Iceberg-Access-Delegation": "vended-credentials"}
    assert catalog_properties(known) == known
