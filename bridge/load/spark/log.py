"""Spark's log: what the JVM writes goes to a file of the run's, never to our stdout or stderr."""

from __future__ import annotations

from pathlib import Path

LOG4J = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


def tail(log: Path) -> str:
    """The end of the log, as a hint."""
    lines = log.read_text(errors="replace").splitlines()[-15:] if log.exists() else []
    return "the end of Spark's log:\n" + "\n".join(lines) if lines else "`singer-bridge doctor` says which Java is used"
