"""The command line of the tap: the switches that Singer taps have, and no others."""

from __future__ import annotations

import argparse
import json
import sys

from tap_replay.config import TapError, json_schema, load

NAME = "tap-replay"
DESCRIPTION = "A Singer tap that plays a recorded file again."
CAPABILITIES = ["about", "catalog", "discover", "state"]
STDOUT = 1


def run(arguments: list[str]) -> int:
    """Do what the arguments say; 0 if all went well, 1 with a line on stderr if a file is not as it should be."""
    options = _parser().parse_args(arguments)
    try:
        return _dispatch(options)
    except TapError as error:
        _log(f"error: {error}")
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _log("error: nobody reads our stdout")
    except OSError as error:
        _log(f"error: {error}")
    return 1


def _dispatch(options: argparse.Namespace) -> int:
    if options.version:
        return _print(f"{NAME} {_version()}")
    if options.about:
        return _print(_about(options.format))
    if options.config is None:
        raise TapError("--config FILE is needed")
    # reading and playing need gzip, which the switches above do not
    from tap_replay import player, recording

    settings = load(options.config)
    if options.discover:
        return _print(json.dumps(recording.discover(settings.path), indent=2))
    skipped = recording.deselected(options.catalog) if options.catalog else set()
    place = recording.Place()
    if options.state and settings.honour_state:
        after = recording.find_place(settings.path, options.state)
        place = after or place
        _log("resuming after the given state" if after else "the recording does not have that state; playing all of it")
    player.play(settings, place, skipped, STDOUT)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(NAME, description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--config", metavar="FILE", help="settings, as JSON")
    parser.add_argument("--state", metavar="FILE", help="resume after this STATE, if it is in the recording")
    parser.add_argument("--catalog", metavar="FILE", help="leave out the streams that it does not select")
    parser.add_argument("--discover", action="store_true", help="print the catalog")
    parser.add_argument("--about", action="store_true", help="print the settings and capabilities")
    parser.add_argument("--format", choices=["json", "markdown"], default="markdown", help="of --about")
    parser.add_argument("--version", action="store_true", help="print the version")
    return parser


def _about(form: str) -> str:
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
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
    return 0


def _log(text: str) -> None:
    print(f"{NAME}: {text}", file=sys.stderr)
