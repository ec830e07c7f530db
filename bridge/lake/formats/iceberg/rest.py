"""pyiceberg's REST client as runs need it: it waits a limited time, imports no foreign class, sends every field.

Call `prepare_rest` before a catalog is opened. It changes pyiceberg's module for this process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from pydantic import Field, model_validator
from pyiceberg.catalog.rest import ConfigResponse
from pyiceberg.table.update import AddSchemaUpdate

from bridge.settings.values.catalogs import is_about_tables

if TYPE_CHECKING:
    from requests import Response

_PATIENCE = (10.0, 60.0)
"""Seconds that a REST catalog may take to accept a connection, and to answer a request."""


class AddSchema(AddSchemaUpdate):
    """New columns. With the highest column number, which Iceberg made optional and Nessie 0.99 needs."""

    last_column_id: int = Field(alias="last-column-id")


class TablesOnly(ConfigResponse):
    """A server's settings for its clients, as far as they say which tables it has."""

    @model_validator(mode="after")
    def _leave_out(self) -> TablesOnly:
        for part in filter(None, (self.defaults, self.overrides)):
            for key in [key for key, value in part.items() if not is_about_tables(key, value)]:
                del part[key]
        return self


def prepare_rest(own: Mapping[str, Any]) -> None:
    """Make pyiceberg careful with REST catalogs. `own` is what this machine's configuration says."""
    _keep_foreign_classes_out(own)
    _believe_little()
    _limit_requests()
    _send_every_field()


def _keep_foreign_classes_out(own: Mapping[str, Any]) -> None:
    """Make pyiceberg authenticate only by its own classes, and by the one that this machine's configuration names.

    pyiceberg would import and call whatever the answer of a REST catalog names, and who writes to the bucket names the
    server.
    """
    from pyiceberg.catalog import rest
    from pyiceberg.catalog.rest.auth import AuthManager, AuthManagerFactory

    auth = own.get("auth")
    own_class = auth.get("impl") if isinstance(auth, dict) else None

    class OwnManagers(AuthManagerFactory):
        @classmethod
        def create(cls, class_or_name: str, config: dict[str, Any]) -> AuthManager:
            if class_or_name not in cls._registry and class_or_name != own_class:
                raise ValueError(f"the catalog asks for a class of its own to authenticate: {class_or_name}")
            return AuthManagerFactory.create(class_or_name, config)

    rest.AuthManagerFactory = OwnManagers  # type: ignore[attr-defined]


def _believe_little() -> None:
    """Take from a server's answer which tables it has, but no other host, identity, file or certificate.

    pyiceberg would read the file of `auth.google.credentials_path`, and send a secret to `oauth2-server-uri`.
    """
    from pyiceberg.catalog import rest

    rest.ConfigResponse = TablesOnly  # type: ignore[misc]


def _limit_requests() -> None:
    """Make pyiceberg wait for a REST catalog's answer no longer than `_PATIENCE`, and follow it to no other host.

    By itself it waits forever.
    """
    from pyiceberg.catalog import rest
    from requests import Session
    from requests.exceptions import InvalidURL

    class LimitedSession(Session):
        def get_redirect_target(self, resp: Response) -> str | None:
            """Where an answer leads. `requests` would send a client secret, which is in the body, to any host."""
            target = super().get_redirect_target(resp)
            if target is not None and self.should_strip_auth(resp.url, urljoin(resp.url, target)):
                raise InvalidURL("the catalog's answer leads to another host: name that one in destination.catalog")
            return target

        def request(self, *args: Any, **options: Any) -> Response:
            return super().request(*args, **{"timeout": _PATIENCE} | options)

    rest.Session = LimitedSession  # type: ignore[attr-defined]


def _send_every_field() -> None:
    """Make pyiceberg send all fields of our own updates; pyiceberg would send those of the class that it declares."""
    from pyiceberg.catalog import rest
    from pyiceberg.table import CommitTableRequest

    class WholeRequest(CommitTableRequest):
        def model_dump_json(self, **options: Any) -> str:  # type: ignore[override]
            return super().model_dump_json(serialize_as_any=True, **options)

    rest.CommitTableRequest = WholeRequest  # type: ignore[attr-defined]
