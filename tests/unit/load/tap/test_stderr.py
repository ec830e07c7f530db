"""The end of a tap's stderr, as errors and hints show it."""

from __future__ import annotations

import pytest

from bridge.load.tap.stderr import last_words, reason

TRACEBACK = """\
INFO starting
Traceback (most recent call last):
  File "/venv/bin/tap-x", line 8, in <module>
    sys.exit(main())
             ^^^^^^
  File "/venv/tap_x.py", line 30, in main
    raise AssertionError("Need either a or b")
AssertionError: Need either a or b
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TRACEBACK, "AssertionError: Need either a or b"),
        (TRACEBACK + "INFO: closing\nbye\n", "AssertionError: Need either a or b"),
        (TRACEBACK + "\nDuring handling of it:\n\n" + TRACEBACK.replace("Assertion", "x.Key"), "x.KeyError: Need"),
        ('Traceback (most recent call last):\n  File "x", line 1\nx.NoTextError\n', "x.NoTextError"),
        ("INFO a\nCRITICAL no such host\n\n", "CRITICAL no such host"),
        ("CRITICAL no such table\nWARNING closing late\n", "CRITICAL no such table"),
        ("WARNING only this\nINFO bye\n", "WARNING only this"),
        ('x.NoTable: relation "a" is gone\nLINE 1: SELECT\n        ^\nHINT:  Perhaps\n\n', "x.NoTable: relation"),
        ("CRITICAL (x.NoTable) a\n[SQL: SELECT 1]\n(Background on this error at: https://x)\n", "CRITICAL (x"),
        ("no such host\n/x/y.py:12: UserWarning: old\n  warn(old)\n", "no such host"),
        ("CRITICAL 'public-a'\nKeyError: 'public-a'\nWARNING bye\n", "KeyError: 'public-a'"),
        ("╭─ Traceback ─╮\n│ code: here │\n╰─────────────╯\nValueError: wrong\n", "ValueError: wrong"),
        ("", ""),
        (" \n", ""),
    ],
)
def test_the_reason_is_one_line(text: str, expected: str) -> None:
    """A Python exception's last line, whatever was logged after it; otherwise the last line above INFO."""
    assert reason(text).startswith(expected)
    assert bool(reason(text)) is bool(expected)


def test_a_reason_has_a_bounded_length() -> None:
    """What stands in a table is cut; the hint has all of it."""
    text = TRACEBACK.replace("a or b", "x" * 3000)
    assert len(reason(text)) == 1000
    assert "x" * 3000 in last_words(text)


def test_last_words_fold_tracebacks() -> None:
    """Files, code and carets of a traceback are one line; twenty lines are left for the tap's own words."""
    assert last_words(TRACEBACK).splitlines()[1:] == [
        "Traceback (most recent call last):",
        "  ...",
        "AssertionError: Need either a or b",
    ]
    assert last_words('    code\n  File "x", line 1\n    y\nE: 1').endswith("  ...\nE: 1")
    assert last_words("    ^^^^^\nE: 1").splitlines()[1:] == ["  ...", "E: 1"]
    assert last_words("\n".join(map(str, range(100)))).splitlines()[1:] == list(map(str, range(80, 100)))
    assert last_words("\n") == "it wrote nothing to stderr"


SDK = """\
2026-11-22 15:07:05,188 | WARNING  | tap-postgres | `hash` is deprecated
{noise}
2026-11-22 15:07:05,350 | ERROR    | tap-postgres.public-users | An unhandled error occurred
2026-11-22 15:07:05,350 | ERROR    | tap-postgres | public.users {long}
Traceback (most recent call last):
  File "x.py", line 8, in <module>
    sys.exit(main())
sqlalchemy.exc.NoSuchTableError: public.users {long}
2026-11-22 15:07:05,400 | INFO     | singer_sdk.metrics | METRIC: {{}}
"""


def test_errors_come_first_and_whole() -> None:
    """Lines at INFO are left out wherever they stand, warnings come last, and no line is cut."""
    noise = "\n".join(f"2026-11-22 15:07:05,193 | INFO     | tap-postgres | Skipping '{n}'." for n in range(50))
    long = "x" * 300
    text = SDK.format(noise=noise, long=long)
    assert last_words(text).splitlines()[1:] == [
        "2026-11-22 15:07:05,350 | ERROR    | tap-postgres.public-users | An unhandled error occurred",
        f"2026-11-22 15:07:05,350 | ERROR    | tap-postgres | public.users {long}",
        "Traceback (most recent call last):",
        "  ...",
        f"sqlalchemy.exc.NoSuchTableError: public.users {long}",
        "2026-11-22 15:07:05,188 | WARNING  | tap-postgres | `hash` is deprecated",
    ]
    assert reason(text) == f"sqlalchemy.exc.NoSuchTableError: public.users {long}"


@pytest.mark.parametrize(
    "quiet",
    [
        "INFO starting",
        "INFO: starting",
        "[INFO] starting",
        "2026-11-22T15:07:05Z DEBUG starting",
        '{"level": "info", "event": "starting"}',
        "time=2026-11-22 15:07:05 name=tap_postgres level=INFO message=starting",
        "2026-11-22 15:07:05,188 - tap_x - INFO - starting",
        "tap_x: INFO: starting",
    ],
)
def test_levels_of_many_loggers_are_known(quiet: str) -> None:
    """A line at INFO gives way to one that says more; alone it is all there is."""
    assert last_words(f"no such host\n{quiet}\n").splitlines()[1:] == ["no such host"]
    assert reason(f"no such host\n{quiet}\n") == "no such host"
    assert last_words(quiet).splitlines()[1:] == [quiet]


@pytest.mark.parametrize("loud", ["Error: INFO schema is missing", "could not do INFO", "INFORMATION_SCHEMA denied"])
def test_a_word_like_a_level_hides_no_error(loud: str) -> None:
    """What only looks like a level is shown."""
    assert last_words(f"INFO starting\n{loud}").splitlines()[1:] == [loud]


def test_a_package_that_a_tap_forgets_to_require() -> None:
    """Older taps import what came with every venv once."""
    text = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'pkg_resources'"
    assert last_words(text).startswith(
        "it needs setuptools<81, and does not say so: write that behind its name in pip_url"
    )
