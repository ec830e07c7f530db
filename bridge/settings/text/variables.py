"""`${...}` in settings, replaced from the environment, `.env`, secret files and commands. No shell is involved.

| written | becomes |
|---|---|
| `${NAME}` | the variable; an error when it is not set |
| `${NAME:-text}` | the variable; `text` when it is not set or empty |
| `${file:/run/secrets/x}` | the file's content without its last line break |
| `${cmd:pass show db/x}` | what the command prints, see `command_output` |
| `$${` | a literal `${` |

What is filled in is not looked at again: a `${...}` in a variable, a file or an output is text. No error shows a value.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path

from bridge.errors import SettingsError
from bridge.settings.text.command_output import OUTPUTS, split
from bridge.settings.text.tree import Expansion, Unknown

# `$${` first: it must win over the `${` inside it. The last branch catches what the second could not close.
_TOKEN = re.compile(r"\$\$\{|\$\{([^{}]*)\}|\$\{")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_FORMS = (
    "write ${NAME}, ${NAME:-default}, ${file:/path} or ${cmd:command}; a literal ${ is $${; no braces inside: write a "
    "command that needs some into a script"
)
_NOT_RUN = Expansion(Unknown("***"), of_command=True)


class Variables:
    """Replaces `${...}` in texts."""

    def __init__(self, environ: Mapping[str, str], *, commands: bool = True, renew: bool = False) -> None:
        """`commands=False`: none is run, and what they would print is `Unknown`. `renew`: see `Outputs.of`."""
        self._environ, self._commands, self._renew = environ, commands, renew

    @property
    def without_commands(self) -> Variables:
        """The same, but no command is run."""
        return Variables(self._environ, commands=False)

    def expand(self, text: str, folder: Path) -> tuple[str, list[Expansion]]:
        """The text with every `${...}` replaced, and what they brought. Raises `SettingsError`.

        `folder`: that of the settings file. Relative paths of secret files and of commands start there.
        """
        pieces: list[Expansion] = []

        def replace(match: re.Match[str]) -> str:
            if match[0] == "$${":
                return "${"
            pieces.append(self._lookup(match[1], folder))
            return pieces[-1].text

        return _TOKEN.sub(replace, text), pieces

    def _lookup(self, inner: str | None, folder: Path) -> Expansion:
        if inner is not None and inner.startswith("file:"):
            return Expansion(_secret_file(inner[len("file:") :], folder))
        if inner is not None and inner.startswith("cmd:"):
            return self._output(inner[len("cmd:") :], folder)
        return Expansion(self._variable(inner))

    def _output(self, command: str, folder: Path) -> Expansion:
        if not self._commands:
            split(command)  # so much can be checked
            return _NOT_RUN
        return Expansion(OUTPUTS.of(command, folder, self._environ, renew=self._renew), of_command=True)

    def _variable(self, inner: str | None) -> str:
        match = _NAME.fullmatch(inner) if inner is not None else None
        if not match:
            raise SettingsError("malformed ${...}", hint=_FORMS)
        value = self._environ.get(match[1])
        if match[2] is not None:
            return value or match[2]
        if value is None:
            hint = f"export {match[1]}, or write it into .env beside bridge.yaml, or use ${{{match[1]}:-default}}"
            raise SettingsError("variable is not set", hint=hint, variable=match[1])
        return value


def _secret_file(name: str, folder: Path) -> str:
    try:
        path = folder / Path(name).expanduser()
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        hint = "check the path; a relative one starts at the folder of the file it stands in"
        raise SettingsError("cannot read ${file:...}", hint=hint, reason=error.strerror, path=path) from None
    except (ValueError, RuntimeError):  # not UTF-8, a NUL in the name, no such user in ~
        hint = "the path must be whole and the file UTF-8 text"
        raise SettingsError("cannot read ${file:...}", hint=hint, path=name) from None


def read_dotenv(path: Path) -> dict[str, str]:
    """The variables of a `.env` file; none if there is no file. A malformed line is an error.

    Values are taken as written: a `$` in a password must not be looked up.
    """
    if not path.is_file():
        return {}
    from dotenv.parser import parse_stream  # here: most projects have no .env, and a small verb starts in milliseconds

    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SettingsError("cannot read .env", hint="check its rights", reason=error.strerror, path=path) from None
    except UnicodeDecodeError:
        raise SettingsError(".env is not UTF-8 text", hint="save the file as UTF-8", path=path) from None
    values: dict[str, str] = {}
    for binding in parse_stream(io.StringIO(text)):
        if binding.error:
            written = binding.original.string
            line = binding.original.line + written[: len(written) - len(written.lstrip())].count("\n")
            raise SettingsError(f"{path.name}:{line}: not a NAME=value line", hint="quote the value: NAME='value'")
        if binding.key is not None and binding.value is not None:
            values[binding.key] = binding.value
    return values
