"""The processor time of each test and of the programs that it starts; the slowest hundred are kept in a file.

Wall-clock says how busy a machine was. `--durations-file tests/durations.txt` writes the file that the repository has.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import process_time

import psutil
import pytest

_HEAD = """\
# Processor seconds of the slowest hundred of {count:,} tests, with the programs that they start. All take {total:,.0f}.
"""
_PROPERTY = "processor_seconds"
_RANKS = 100


class Durations:
    """Measures where the tests run, in xdist's workers, and collects in the process that pytest was started as."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._begin = _used()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report = yield
        if report.when == "teardown":
            report.user_properties.append((_PROPERTY, max(_used() - self._begin, 0.0)))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == _PROPERTY and report.when == "teardown":
                self._seconds[report.nodeid] = float(str(value))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not hasattr(session.config, "workerinput"):
            slowest = sorted(self._seconds.items(), key=lambda pair: -pair[1])[:_RANKS]
            head = _HEAD.format(total=sum(self._seconds.values()), count=len(self._seconds))
            self._path.write_text(head + "".join(f"{seconds:8.1f}  {test}\n" for test, seconds in slowest))


def seconds_by_file(path: Path) -> dict[str, float]:
    """How long the files take whose tests are among the slowest hundred."""
    seconds: dict[str, float] = {}
    for line in path.read_text().splitlines()[1:]:
        number, test = line.split(maxsplit=1)
        file = test.partition("::")[0]
        seconds[file] = seconds.get(file, 0.0) + float(number)
    return seconds


def _used() -> float:
    """This process, what it waited for, and what still runs below it: a session's Java machine."""
    me = psutil.Process()
    waited = me.cpu_times()
    total = process_time() + waited.children_user + waited.children_system
    for child in me.children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total
