"""Serves the page from a thread of its own, beside whatever else the service does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bridge.errors import SettingsError
from bridge.serve.service.runs import Runs
from bridge.settings.service import Service

_EXTRA = "install singer-bridge with its extra: pip install 'singer-bridge[service]'"


@contextmanager
def page_served(
    file: Path, environment: str | None, runs: Runs, settings: Service, announce: Callable[[str], None]
) -> Iterator[None]:
    """Serve the page while the block runs. `announce` gets its URL as soon as the port is taken.

    Raises `SettingsError` if the address cannot be had, if it is not of this machine only and there is no token, and if
    the extra is not installed.
    """
    try:
        import uvicorn

        from bridge.serve.service.web.app import make_app
        from bridge.serve.service.web.auth.connections import BoundedProtocol, raise_file_limit
    except ImportError as error:
        raise SettingsError("the page needs starlette, jinja2 and uvicorn", hint=_EXTRA, missing=error.name) from error
    app = make_app(file, environment, runs, host=settings.host, token=settings.token)
    with _taken(settings.host, settings.port) as taken:
        raise_file_limit()
        config = uvicorn.Config(
            app, http=BoundedProtocol, ws="none", log_level="error", access_log=False, timeout_graceful_shutdown=5
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]}, name="page")
        thread.start()
        try:
            host, port = taken.getsockname()[:2]
            announce(f"http://{f'[{host}]' if ':' in host else host}:{port}/")
            yield
        finally:
            server.should_exit = True
            app.state.site.watch.close()  # or the server would wait for those that listen for events
            thread.join()


def _taken(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        hint = "is another service there? service.port is another one, 0 a free one"
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SettingsError(f"cannot serve the page: {reason}", hint=hint, host=host, port=port) from error
