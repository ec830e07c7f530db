"""Whatever is appended comes out once, whole, and not beyond the STATE that a manifest ends at."""

from __future__ import annotations

import json
import os
import resource
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bridge.load.spool.spool
from bridge.errors import EngineError
from bridge.load.spool.folder import SealedBatch, Segment, SpoolFolder
from bridge.load.spool.spool import Spool


def segments(manifest: SealedBatch) -> list[Segment]:
    return [segment for bundle in manifest.bundles for segment in bundle]


def lines(folder: SpoolFolder, manifest: SealedBatch | None) -> dict[str, bytes]:
    """Return each stream's bytes of a manifest, in order, checked against what the manifest says of them."""
    found: dict[str, bytes] = {}
    for segment in segments(manifest) if manifest else []:
        data = folder.read_segment(segment)
        assert data.endswith(b"\n")
        assert data.count(b"\n") == segment.lines
        assert segment.end - segment.start == len(data)
        assert all(line.startswith(segment.prefix.encode()) for line in data.splitlines())
        found[segment.stream] = found.get(segment.stream, b"") + data
    return found


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    """An empty spool."""
    one = Spool(tmp_path / "spool")
    yield one
    one.close()


@pytest.fixture(params=[8 << 20, 40])
def slice_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Slices as they are, and so small that a few lines make several."""
    monkeypatch.setattr(bridge.load.spool.spool, "_SLICE", request.param)
    return int(request.param)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("large"), st.sampled_from([0, 30, 1 << 20])),
        st.tuples(st.just("append"), st.sampled_from("abc"), st.integers(1, 4), st.integers(0, 60)),
        st.tuples(st.just("mark")),
        st.tuples(st.just("seal"), st.booleans(), st.integers(1, 5)),
    ),
    max_size=40,
)


@settings(max_examples=100, deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.sampled_from("ab"), st.sampled_from(["p", "q", ""]), st.sampled_from("xy")),
            st.tuples(st.just("mark")),
            st.tuples(st.just("seal"), st.booleans()),
        ),
        max_size=40,
    ),
    slice_bytes=st.sampled_from([8 << 20, 60]),
)
def test_segments_of_an_ordered_stream_follow_each_other(steps: list[tuple], slice_bytes: int) -> None:
    """Whatever prefixes and schemas take turns: by manifest and order, a stream's lines are in the order they came."""
    before, bridge.load.spool.spool._SLICE = bridge.load.spool.spool._SLICE, slice_bytes
    try:
        with tempfile.TemporaryDirectory() as folder:
            spool = Spool(Path(folder) / "spool")
            spool.ordered.add("a")
            came: dict[str, list[bytes]] = {"a": [], "b": []}
            read: dict[str, list[tuple[int, int, bytes]]] = {"a": [], "b": []}

            def take(manifest: SealedBatch | None) -> None:
                for segment in segments(manifest) if manifest else []:
                    assert manifest
                    for line in spool.folder.read_segment(segment).splitlines():
                        assert line.startswith(segment.prefix.encode())
                        read[segment.stream].append((manifest.seq, segment.order, line))

            for number, step in enumerate(steps):
                if step[0] == "append":
                    line = f"{step[2]}{number:030d}".encode()
                    came[step[1]].append(line)
                    spool.append(step[1], step[3], step[2].encode(), line + b"\n", 1)
                elif step[0] == "mark":
                    spool.mark()
                else:
                    take(spool.seal(tasks=2, all_lines=step[1]))
            take(spool.seal(tasks=2, all_lines=True))
            ordered = sorted(read["a"], key=lambda one: one[:2])  # a sort that keeps the order of equal ones
            assert [line for _, _, line in ordered] == came["a"]
            assert sorted(line for _, _, line in read["b"]) == sorted(came["b"])
    finally:
        bridge.load.spool.spool._SLICE = before


@settings(max_examples=120, deadline=None)
@given(steps=STEPS, slice_bytes=st.sampled_from([8 << 20, 90, 25]), buffer=st.sampled_from([8 << 20, 100, 0]))
def test_each_line_comes_out_once(steps: list[tuple], slice_bytes: int, buffer: int) -> None:
    """Over any sequence of appends, STATEs and seals: all lines, once, in order, and none beyond the latest STATE.

    Where a STATE came since the last seal, the manifest holds exactly what that STATE covers.
    """
    before = bridge.load.spool.spool._SLICE, bridge.load.spool.spool._BUFFER, bridge.load.spool.spool._LARGE
    bridge.load.spool.spool._SLICE, bridge.load.spool.spool._BUFFER = slice_bytes, buffer
    try:
        with tempfile.TemporaryDirectory() as folder:
            _play(Spool(Path(folder) / "spool"), steps)
    finally:
        bridge.load.spool.spool._SLICE, bridge.load.spool.spool._BUFFER, bridge.load.spool.spool._LARGE = before


def _play(spool: Spool, steps: list[tuple]) -> None:
    appended = dict.fromkeys("abc", b"")
    marked: dict[str, bytes] | None = None
    out = dict.fromkeys("abc", b"")
    number, sequence, manifests = 0, 0, []
    for step in [*steps, ("seal", True, 2)]:
        if step[0] == "large":
            bridge.load.spool.spool._LARGE = step[1]
        elif step[0] == "append":
            _, stream, count, size = step
            data = b"".join(b'{"p":%d,"%s":"%s"}\n' % (number + i, stream.encode(), b"x" * size) for i in range(count))
            number += count
            spool.append(stream, f"schema-{count}", b'{"p":' if count % 2 else None, data, count)
            # Order holds within (stream, schema, prefix), not across: compare as sorted lines.
            appended[stream] += data
        elif step[0] == "mark":
            spool.mark()
            marked = dict(appended)
        else:
            manifest = spool.seal(tasks=step[2], all_lines=step[1])
            covered = appended if step[1] or marked is None else marked
            if manifest:
                sequence += 1
                assert manifest.seq == sequence
                assert manifest.lines == sum(segment.lines for segment in segments(manifest))
                manifests.append(manifest)
            found = lines(spool.folder, manifest)
            for stream in "abc":
                out[stream] += found.get(stream, b"")
                assert sorted(out[stream].splitlines()) == sorted(covered[stream].splitlines())
            assert spool.fresh == sum(len(appended[stream]) - len(out[stream]) for stream in "abc")
            marked = None
    assert spool.held == sum(len(data) for data in appended.values())
    for manifest in manifests:
        spool.release(manifest)
        spool.retire(manifest)
    assert spool.held == 0
    assert [path for path in spool.folder.path.rglob("*") if path.is_file()] == []


def test_a_stream_keeps_its_order(spool: Spool) -> None:
    """Segments of one stream under one schema are listed in the order in which its lines came."""
    for number in range(100):
        spool.append("a", "s", None, b'{"n":%d}\n' % number, 1)
        if number % 7 == 0:
            spool.mark()
    first, second = spool.seal(tasks=3), spool.seal(tasks=3)
    text = b"".join(lines(spool.folder, manifest)["a"] for manifest in (first, second))
    assert [json.loads(line)["n"] for line in text.splitlines()] == list(range(100))


def test_nothing_to_seal_is_no_manifest(spool: Spool) -> None:
    """A seal of nothing, or of a STATE that covers nothing new, makes no file and takes no number."""
    assert spool.seal(tasks=1) is None
    spool.mark()
    spool.append("a", "s", None, b"{}\n", 1)
    assert spool.seal(tasks=1) is None
    manifest = spool.seal(tasks=1, all_lines=True)
    assert manifest
    assert (manifest.seq, manifest.lines) == (1, 1)


def test_one_flipped_bit_is_found(spool: Spool) -> None:
    """A segment that changed on disk, or lost its end, is an error and never data."""
    spool.append("a", "s", None, b'{"n":1}\n{"n":2}\n', 2)
    manifest = spool.seal(tasks=1)
    assert manifest
    (segment,) = segments(manifest)
    path = spool.folder.segments / segment.file
    data = bytearray(path.read_bytes())
    data[5] ^= 1
    path.write_bytes(data)
    with pytest.raises(EngineError, match="changed on disk"):
        spool.folder.read_segment(segment)
    data[5] ^= 1
    path.write_bytes(data)
    assert spool.folder.read_segment(segment) == bytes(data)
    path.write_bytes(data[:-1])
    with pytest.raises(EngineError, match="changed on disk"):
        spool.folder.read_segment(segment)


def test_a_file_that_lost_lines_is_not_sealed(spool: Spool) -> None:
    """Lines that a later epoch needs are counted when they are moved; the others when they are read."""
    spool.append("a", "s", None, b"{}\n{}\n", 2)
    spool.mark()
    spool.append("a", "s", None, b'{"x":1}\n', 1)
    spool._flush()
    (file,) = (spool.folder.segments).iterdir()
    with file.open("r+b") as wire:
        wire.truncate(8)
    with pytest.raises(EngineError, match="lost lines"):
        spool.seal(tasks=1)


def test_slices_end_at_line_ends(spool: Spool, slice_bytes: int) -> None:
    """A line longer than a slice makes a long slice; ranges follow one another without gap or overlap."""
    sizes = [1, 200, 3, 90, 1, 1, 1, 500]
    for size in sizes:
        spool.append("a", "s", None, b"{" + b"x" * size + b"}\n", 1)
    manifest = spool.seal(tasks=4)
    assert manifest
    parts = segments(manifest)
    assert [part.start for part in parts] == [0, *(part.end for part in parts[:-1])]
    assert parts[-1].end == sum(sizes) + 3 * len(sizes)
    assert (len(parts) == 1) == (slice_bytes > 1000)


def test_bundles_share_the_work(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes are shared nearly equally among the tasks, in order, and small work is not cut up."""
    monkeypatch.setattr(bridge.load.spool.spool, "_SLICE", 100)
    for stream in "abcd":
        spool.append(stream, "s", None, (b"{" + b"x" * 47 + b"}\n") * 40, 40)
    manifest = spool.seal(tasks=4)
    assert manifest
    sizes = [sum(segment.end - segment.start for segment in bundle) for bundle in manifest.bundles]
    assert len(sizes) == 4
    assert max(sizes) - min(sizes) <= 200
    spool.append("a", "s", None, b"{}\n", 1)
    small = spool.seal(tasks=4)
    assert small
    assert len(small.bundles) == 1


def test_a_manifest_is_hidden_until_released(spool: Spool) -> None:
    """Spark sees a manifest only once it is released, under an mtime that is its number, whatever the clock says."""
    for number in (1, 2):
        spool.append("a", "s", b'{"n', b'{"n":1}\n', 1)
        manifest = spool.seal(tasks=1)
        assert manifest
        folder = spool.folder.batches
        assert [name for name in os.listdir(folder) if not name.startswith(".")] == [
            f"{n:012d}.json" for n in range(1, number)
        ]
        spool.release(manifest)
        path = folder / f"{number:012d}.json"
        assert path.stat().st_mtime_ns == number * 10**9
        (row,) = (json.loads(line) for line in path.read_text().splitlines())
        assert row["seq"] == number
        assert [Segment(**segment) for segment in row["segments"]] == segments(manifest)


def test_retiring_gives_the_space_back(spool: Spool) -> None:
    """After a retire the files are gone and `held` has shrunk by their bytes; a second manifest is untouched."""
    spool.append("a", "s", None, b"{}\n" * 10, 10)
    first = spool.seal(tasks=1)
    spool.append("a", "s", None, b"{}\n" * 5, 5)
    second = spool.seal(tasks=1)
    assert first
    assert second
    assert spool.held == 45
    spool.release(first)
    spool.retire(first)
    assert spool.held == 15
    assert lines(spool.folder, second) == {"a": b"{}\n" * 5}
    assert sorted(os.listdir(spool.folder.segments)) == sorted({segment.file for segment in segments(second)})


def test_a_spool_begins_empty(tmp_path: Path) -> None:
    """What an earlier run left in the folder is deleted unread; closing deletes the folder."""
    (tmp_path / "spool" / "segments").mkdir(parents=True)
    (tmp_path / "spool" / "segments" / "old.jsonl").write_text("{}\n")
    spool = Spool(tmp_path / "spool")
    assert os.listdir(spool.folder.segments) == []
    spool.put_schema("abc", b"[]")
    spool.put_schema("abc", b"other")
    assert (spool.folder.schemas / "abc").read_bytes() == b"[]"
    spool.close()
    assert not spool.folder.path.exists()


def test_many_streams_need_few_descriptors(spool: Spool) -> None:
    """Two thousand open segments do not need two thousand descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 200), hard))
    try:
        for number in range(2000):
            spool.append(f"s{number}", "s", None, b"{}\n", 1)
        manifest = spool.seal(tasks=2)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert manifest
    assert manifest.lines == 2000


_FILL = """
    import resource, signal, sys
    from pathlib import Path
    from bridge.errors import LakeError
    from bridge.load.spool.spool import Spool

    if sys.argv[2] == "limit":  # a disk that takes no more, where none can be mounted
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    spool = Spool(Path(sys.argv[1]) / "spool")
    try:
        for _ in range(40):
            spool.append("a", "s", None, b"{" + b"x" * 500_000 + b"}\\n", 1)
        spool.seal(tasks=1)
    except LakeError as error:
        print(error.exit_code, error.message, "|", error.hint)
"""


def _mounted(folder: Path) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    return os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_full_disk_says_so(tmp_path: Path) -> None:
    """A spool that cannot grow ends the run as a lake error, exit 3, with a hint that names the setting."""
    mounted = sys.platform == "linux" and _mounted(tmp_path)
    script = textwrap.dedent(_FILL)
    try:
        command = [sys.executable, "-c", script, str(tmp_path), "disk" if mounted else "limit"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(tmp_path)], check=True)
    assert done.stdout.startswith("3 cannot write to the spool: " + ("No space left" if mounted else "File too large"))
    assert "spool.dir" in done.stdout


def test_a_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    """A spool where a file stands in the way is a lake error, not a traceback."""
    (tmp_path / "file").write_text("")
    from bridge.errors import LakeError

    with pytest.raises(LakeError, match="cannot write to the spool"):
        Spool(tmp_path / "file" / "spool")


def test_segments_are_told_apart_by_prefix_and_schema(spool: Spool) -> None:
    """Lines of one stream that need another way of reading are in a segment of their own."""
    spool.append("a", "s1", b'{"a', b'{"a":1}\n', 1)
    spool.append("a", "s2", b'{"a', b'{"a":2}\n', 1)
    spool.append("a", "s2", None, b'{"b":3}\n', 1)
    manifest = spool.seal(tasks=1)
    assert manifest
    assert [(part.schema, part.prefix, part.lines) for part in segments(manifest)] == [
        ("s1", '{"a', 1),
        ("s2", '{"a', 1),
        ("s2", "", 1),
    ]
    with pytest.raises(EngineError):
        spool.folder.read_segment(replace(segments(manifest)[0], start=1))
    assert stat.S_ISREG((spool.folder.segments / segments(manifest)[0].file).stat().st_mode)
