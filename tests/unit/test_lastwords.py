"""What a tap said last, as errors and hints show it."""

from __future__ import annotations

import pytest

from bridge.lastwords import last_words, reason

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
        ("╭─ Traceback ─╮\n│ code: here │\n╰─────────────╯\nValueError: wrong\n", "ValueError: wrong"),
        ("", ""),
        (" \n", ""),
    ],
)
def test_the_reason_is_one_line(text: str, expected: str) -> None:
    """A Python exception's last line, whatever was logged after it; else the last line that says something."""
    assert reason(text).startswith(expected)
    assert bool(reason(text)) is bool(expected)


def test_a_reason_has_a_bounded_length() -> None:
    """What stands in a table is cut; the hint has all of it."""
    text = TRACEBACK.replace("a or b", "x" * 300)
    assert len(reason(text)) == 170
    assert "x" * 300 in last_words(text)


def test_last_words_fold_tracebacks() -> None:
    """Files, code and carets of a traceback are one line; twenty lines are left to what the tap itself said."""
    assert last_words(TRACEBACK).splitlines()[1:] == [
        "INFO starting",
        "Traceback (most recent call last):",
        "  ...",
        "AssertionError: Need either a or b",
    ]
    assert last_words('    code\n  File "x", line 1\n    y\nE: 1').endswith("  ...\nE: 1")
    assert last_words("    ^^^^^\nE: 1").splitlines()[1:] == ["  ...", "E: 1"]
    assert last_words("\n".join(map(str, range(100)))).splitlines()[1:] == list(map(str, range(80, 100)))
    assert last_words("\n") == "it wrote nothing to stderr"
