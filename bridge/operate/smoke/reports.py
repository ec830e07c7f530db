"""The findings of a smoke test as JUnit's XML, and for GitHub."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from bridge.operate.smoke.verdicts import CHECKS, Verdicts


def junit(tap: str, verdicts: Verdicts, seconds: float) -> bytes:
    """A JUnit report: one test case for each check."""
    counts = verdicts.counts
    numbers = {"tests": counts.total(), "failures": counts["failed"], "skipped": counts["skipped"]}
    totals = {name: str(number) for name, number in numbers.items()}
    suites = Element("testsuites", totals)
    suite = SubElement(suites, "testsuite", {"name": f"smoke {tap}", "errors": "0", "time": f"{seconds:.3f}", **totals})
    for check, status, findings in verdicts:
        case = SubElement(suite, "testcase", {"classname": tap, "name": check, "time": "0"})
        text = "\n".join(f"{one.sentence}\n  {one.fix}" if one.fix else one.sentence for one in findings)
        if status == "failed":
            SubElement(case, "failure", {"message": findings[0].sentence}).text = text
        elif status == "skipped":
            SubElement(case, "skipped", {"message": findings[0].text})
        elif text:
            SubElement(case, "system-out").text = text
    indent(suites)
    return b'<?xml version="1.0" encoding="utf-8"?>\n' + tostring(suites) + b"\n"


def workflow_commands(verdicts: Verdicts) -> list[str]:
    """GitHub's workflow commands for failures and warnings."""
    kinds = {"failed": "error", "warning": "warning"}
    return [
        f"::{kinds[one.status]} title=smoke {_property(check)}::{_escaped(one.sentence)}"
        for check, _, findings in verdicts
        for one in findings
        if one.status in kinds
    ]


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


def markdown(tap: str, verdicts: Verdicts) -> str:
    """The report as GitHub's job summary shows it."""
    marks = {"passed": "✅", "warning": "⚠️", "failed": "❌", "skipped": "⏭️"}
    lines = [f"### `{tap}`", "", "| | check | found |", "|---|---|---|"]
    for check, status, findings in verdicts:
        text = "<br>".join(one.sentence.replace("|", "\\|").replace("<", "&lt;") for one in findings) or CHECKS[check]
        lines.append(f"| {marks[status]} | {check} | {text} |")
    return "\n".join(lines) + "\n"
