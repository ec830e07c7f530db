"""What moto leaves out: a copy within the store that asks for a version of its source."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

_REFUSED = b"<Error><Code>PreconditionFailed</Code><Message>the source is another one</Message></Error>"


def with_conditional_copies(moto: Any) -> Callable[[dict[str, Any], Any], Any]:
    """Return a WSGI application that answers as Amazon does to `x-amz-copy-source-if-match`. One request at a time."""

    def answer(environ: dict[str, Any], start: Any) -> Any:
        wanted = environ.get("HTTP_X_AMZ_COPY_SOURCE_IF_MATCH")
        if wanted and _etag(moto, environ) not in (None, wanted.strip('"')):
            headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(_REFUSED)))]
            start("412 Precondition Failed", headers)
            return [_REFUSED]
        return moto(environ, start)

    return answer


def _etag(moto: Any, environ: dict[str, Any]) -> str | None:
    """Return the version of a copy's source, None if there is no such object."""
    path = "/" + unquote(environ["HTTP_X_AMZ_COPY_SOURCE"]).lstrip("/")
    gone = ("HTTP_X_AMZ_COPY_SOURCE", "HTTP_X_AMZ_COPY_SOURCE_IF_MATCH", "CONTENT_LENGTH", "QUERY_STRING")
    look = {name: value for name, value in environ.items() if name not in gone}
    look |= {"REQUEST_METHOD": "HEAD", "PATH_INFO": path, "RAW_URI": path, "REQUEST_URI": path, "QUERY_STRING": ""}
    found: dict[str, str] = {}

    def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], None]:
        found.update({name.lower(): value for name, value in headers}, status=status)
        return lambda data: None

    list(moto(look | {"wsgi.input": io.BytesIO(), "CONTENT_LENGTH": "0"}, start))
    return found.get("etag", "").strip('"') if found["status"].startswith("200") else None
