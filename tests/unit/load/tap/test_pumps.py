"""Several real processes read into one thread."""

from __future__ import annotations

import io
import os
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from bridge.errors import Interrupted, TapError
from bridge.load.tap.process import Tap
from bridge.load.tap.pumps import Pumps
from bridge.settings.redact import redactor


def tap(stack: ExitStack, script: str) -> Tap:
    """A started process that is a shell script."""
    argv = ["/bin/sh", "-c", script, "tap"]
    one = Tap(argv, config={}, environ=dict(os.environ), log=io.BytesIO(), redact=redactor([]))
    return stack.enter_context(one)


def heard(taps: list[Tap], idle: timedelta | None = None) -> list[tuple[int, object]]:
    with Pumps(taps, idle=idle) as pumps:
        return list(pumps.outputs(lambda: None))


def test_each_says_all_and_then_how_it_ended() -> None:
    """Chunks in order, then the end of the output, then that it exited 0, or the error."""
    with ExitStack() as stack:
        said = heard([tap(stack, "echo a; sleep 0.2; echo b"), tap(stack, "echo c; exit 3")])
    first = [what for number, what in said if number == 0]
    assert (b"".join(chunk for chunk in first[:-1] if isinstance(chunk, bytes)), first[-2:]) == (b"a\nb\n", [b"", None])
    second = [what for number, what in said if number == 1]
    assert second[:2] == [b"c\n", b""]
    assert isinstance(second[2], TapError)
    assert "exit_code=3" in second[2].message


def test_who_says_nothing_holds_up_nobody() -> None:
    """One tap's silence does not hold up the output of the others."""
    with ExitStack() as stack:
        silent, busy = tap(stack, "sleep 60"), tap(stack, "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.2; done")
        said = heard([silent, busy], timedelta(seconds=1))
    assert (
        b"".join(what for number, what in said if number == 1 and isinstance(what, bytes))
        == b"1\n2\n3\n4\n5\n6\n7\n8\n"
    )
    assert [type(what) for number, what in said if number == 0] == [TapError]


def test_who_is_stopped_is_not_heard_any_more() -> None:
    """Its process has ended when the pumps are left, and the others go on."""
    with ExitStack() as stack:
        taps = [tap(stack, "while echo x; do sleep 0.05; done"), tap(stack, "echo a; sleep 0.5; echo b")]
        with Pumps(taps, idle=None) as pumps:
            said = []
            for number, what in pumps.outputs(lambda: None):
                said.append((number, what))
                if number == 0:
                    pumps.stop(0)
        assert taps[0].ended
        assert [number for number, _ in said].count(0) == 1
        assert said[-1] == (1, None)


def test_all_are_stopped_at_once(tmp_path: Path) -> None:
    """Each gets time to end, all at the same time: each ends only when all have been asked to."""
    with ExitStack() as stack:
        for name in ("asked", "ended"):
            (tmp_path / name).mkdir()
        all_asked = "touch asked/$$; until [ $(ls asked | wc -l) = 4 ]; do sleep 0.05; done"
        script = f"cd {tmp_path}; trap '{all_asked}; touch ended/$$; exit 0' TERM; echo x; while :; do sleep 0.05; done"
        taps = [tap(stack, script) for _ in range(4)]
        with Pumps(taps, idle=None) as pumps:
            for _ in zip(range(4), pumps.outputs(lambda: None), strict=False):
                pass
            pumps.stop_all()
        assert len(list(tmp_path.glob("ended/*"))) == 4
        assert all(one.ended for one in taps)


def test_what_the_listener_raises_ends_the_reading() -> None:
    """Nobody waits for a process that nobody listens to; who started it ends it."""

    def interrupted() -> None:
        raise Interrupted(15)

    with ExitStack() as stack:
        one = tap(stack, "while echo x; do :; done")
        with pytest.raises(Interrupted), Pumps([one], idle=None) as pumps:
            list(pumps.outputs(interrupted))
        assert not one.ended
    assert one.ended
