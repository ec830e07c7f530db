"""What a smoke test found, for those who read XML, and for GitHub."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from bridge.smoke.verdicts import CHECKS, Finding, Verdicts


def sentence(finding: Finding) -> str:
    """Return what was found, where, how often, and the first example, on one line."""
    where = f"{finding.stream or ''}{finding.pointer}"
    times = f" ({finding.times:,} times)" if finding.times > 1 else ""
    example = f": {finding.example}" if finding.example else ""
    return f"{where + ': ' if where else ''}{finding.text}{times}{example}"


def junit(tap: str, verdicts: Verdicts, seconds: float) -> bytes:
    """Return a JUnit report: a test case a check."""
    counts = verdicts.counts
    totals = {"tests": counts.total(), "failures": counts["failed"], "skipped": counts["skipped"]}
    said = {name: str(value) for name, value in totals.items()}
    suites = Element("testsuites", said)
    suite = SubElement(suites, "testsuite", {"name": f"smoke {tap}", "errors": "0", "time": f"{seconds:.3f}", **said})
    for check, status, found in verdicts:
        case = SubElement(suite, "testcase", {"classname": tap, "name": check, "time": "0"})
        text = "\n".join(f"{sentence(one)}\n  {one.hint}" if one.hint else sentence(one) for one in found)
        if status == "failed":
            SubElement(case, "failure", {"message": sentence(found[0])}).text = text
        elif status == "skipped":
            SubElement(case, "skipped", {"message": found[0].text})
        elif text:
            SubElement(case, "system-out").text = text
    indent(suites)
    return b'<?xml version="1.0" encoding="utf-8"?>\n' + tostring(suites) + b"\n"


def workflow_commands(verdicts: Verdicts) -> list[str]:
    """Return GitHub's workflow commands for what failed or is worth a warning."""
    kinds = {"failed": "error", "warning": "warning"}
    return [
        f"::{kinds[one.status]} title=smoke {_property(check)}::{_escaped(sentence(one))}"
        for check, _, found in verdicts
        for one in found
        if one.status in kinds
    ]


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


def markdown(tap: str, verdicts: Verdicts) -> str:
    """Return the report as GitHub's job summary shows it."""
    marks = {"passed": "✅", "warning": "⚠️", "failed": "❌", "skipped": "⏭️"}
    lines = [f"### `{tap}`", "", "| | check | found |", "|---|---|---|"]
    for check, status, found in verdicts:
        text = "<br>".join(sentence(one).replace("|", "\\|").replace("<", "&lt;") for one in found) or CHECKS[check]
        lines.append(f"| {marks[status]} | {check} | {text} |")
    return "\n".join(lines) + "\n"
