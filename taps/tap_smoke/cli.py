"""The command line of the tap: the switches that Singer taps have, and no others."""

from __future__ import annotations

import argparse
import json

from tap_smoke.settings import TapError
from tap_smoke.wire import STDOUT, log, write_all

NAME = "tap-smoke"
DESCRIPTION = "A Singer tap of numbered records; every misbehaviour is a setting."
CAPABILITIES = ["about", "catalog", "discover", "state", "activate-version"]


def run(arguments: list[str]) -> int:
    """Do what the arguments say; 0 if all went well, 1 with a line on stderr if a file is not as it should be."""
    options = _parser().parse_args(arguments)
    try:
        return _dispatch(options)
    except TapError as error:
        log(f"error: {error}")
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        log("error: nobody reads our stdout")
    except OSError as error:
        log(f"error: {error}")
    return 1


def _dispatch(options: argparse.Namespace) -> int:
    from tap_smoke import config

    if options.version:
        return _print(f"{NAME} {_version()}")
    if options.about:
        return _print(_about(options.format))
    if options.config is None:
        raise TapError("--config FILE is needed")
    settings = config.load(options.config)
    if options.discover:
        from tap_smoke.catalog import discover

        return _print(json.dumps(discover(settings), indent=2))
    from tap_smoke.sync import Sync

    return Sync(settings, options.catalog, options.state).run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(NAME, description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--config", metavar="FILE", help="settings, as JSON")
    parser.add_argument("--state", metavar="FILE", help="the STATE of an earlier run")
    parser.add_argument("--catalog", metavar="FILE", help="which streams and columns to sync")
    parser.add_argument("--discover", action="store_true", help="print the catalog")
    parser.add_argument("--about", action="store_true", help="print the settings and capabilities")
    parser.add_argument("--format", choices=["json", "markdown"], default="markdown", help="of --about")
    parser.add_argument("--version", action="store_true", help="print the version")
    return parser


def _about(form: str) -> str:
    from tap_smoke.config import json_schema

    settings = json_schema()
    if form == "markdown":
        rows = [f"| `{key}` | {kind['description']} |" for key, kind in settings["properties"].items()]
        return "\n".join([f"# {NAME}", "", DESCRIPTION, "", "| setting | meaning |", "|---|---|", *rows])
    about = {"name": NAME, "description": DESCRIPTION, "version": _version(), "capabilities": CAPABILITIES}
    return json.dumps({**about, "settings": settings}, indent=2)


def _version() -> str:
    # slow to import, and only these two switches need it
    from importlib.metadata import version

    return version("singer-bridge")


def _print(text: str) -> int:
    write_all(STDOUT, f"{text}\n".encode())
    return 0
