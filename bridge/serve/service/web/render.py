"""HTML: templates in which everything is escaped, and how values are written for people."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from bridge import __version__
from bridge.durations import duration
from bridge.exact_json import dumps
from bridge.protocol.singer.moves import short_bookmark
from bridge.read.query.status import ahead_text
from bridge.read.query.values import cell
from bridge.serve.service.web.pictures.bars import spark, spark_words

HERE = Path(__file__).parent
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def plain(value: Any) -> str:
    """A text that HTML can hold: control characters are written as Python does."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", str(value))


def count(number: int | None) -> str:
    """A number with commas; nothing for None."""
    return "" if number is None else f"{number:,}"


def short_count(number: float | None) -> str:
    """A number in at most four characters, such as 1.2M."""
    if number is None:
        return ""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.1f}{unit}" if number < 10 * size else f"{number / size:.0f}{unit}"
    return f"{number:.0f}"


def size(number: float) -> str:
    """A number of bytes."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def took(seconds: float | None) -> str:
    """How long something took; nothing for None."""
    return "" if seconds is None else duration(seconds)


def ago(at: str | datetime | None, now: datetime | None = None) -> str:
    """How long ago, or until when, in the largest unit."""
    if not at:
        return ""
    try:
        moment = at if isinstance(at, datetime) else datetime.fromisoformat(at.replace("Z", "+00:00"))
        passed = ((now or datetime.now(timezone.utc)) - moment).total_seconds()
    except (ValueError, TypeError):  # no time at all: somebody else wrote it
        return str(at)
    text = duration(round(abs(passed)), 1)
    return f"{text} ago" if passed >= 0 else f"in {text}"


def moment(at: str | datetime | None) -> str:
    """A time to the second, in UTC."""
    if not at:
        return ""
    try:
        time = at if isinstance(at, datetime) else datetime.fromisoformat(at.replace("Z", "+00:00"))
        return f"{time.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}Z"
    except (ValueError, OverflowError):  # as in `ago`
        return str(at)


def as_json(value: Any, *, wide: bool = False) -> str:
    """A value as JSON for people; nothing for None."""
    return "" if value is None else plain(dumps(value, indent=2 if wide else None, ascii_only=False).decode().strip())


def bookmark_text(value: Any) -> str:
    """A bookmark's value, as the command line prints it; `{}` and the like for one that has no position."""
    return plain(short_bookmark(value) or as_json(value))


def href(*parts: str, **query: Any) -> str:
    """A link of this service; each part is quoted, so that none becomes another path."""
    path = "".join(f"/{quote(part, safe='', errors='surrogatepass')}" for part in parts) or "/"
    asked = {name: 1 if value is True else value for name, value in query.items() if value not in (None, "", False)}
    return f"{path}?{urlencode(asked, doseq=True, errors='surrogatepass')}" if asked else path


def _version_of(name: str) -> str:
    return sha256((HERE / "static" / name).read_bytes()).hexdigest()[:10]


def environment() -> Environment:
    """The templates. A name that is missing is an error, and every value is escaped."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: plain(value) if isinstance(value, str) and _CONTROL.search(value) else value,
    )
    made.filters |= {"count": count, "short": short_count, "size": size, "duration": took, "ago": ago}
    made.filters |= {"moment": moment, "json": as_json, "cell": cell, "ahead_text": ahead_text}
    made.filters |= {"bookmark": bookmark_text}
    made.globals |= {
        "href": href,
        "spark": spark,
        "spark_words": spark_words,
        "version": __version__,
        "asset": _version_of,
    }
    return made


_TEMPLATES = environment()


def page(request: Request, template: str, status: int = 200, **facts: Any) -> HTMLResponse:
    """A page. `state` of the request has the session's CSRF token."""
    site = request.app.state.site
    shared = {
        "csrf": request.scope["state"]["csrf"],
        "is_in": request.scope["state"]["session"].is_in,
        "has_token": site.access.token is not None,
        "settings_file": site.pipelines.file.name,
        "environment": site.pipelines.environment,
        "problem": site.pipelines.problem,
        "path": request.scope["path"],
        "now": datetime.now(timezone.utc),
    }
    return HTMLResponse(_TEMPLATES.get_template(template).render(shared | facts), status)
