"""bridge.yaml changes under a running service: what is right counts at once, what is wrong is reported once."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from bridge.errors import SettingsError
from bridge.serve.service.current_settings import CurrentSettings

ONE = "  {name}:\n    source: {{tap: tap-smoke}}\n    destination: {{bucket: ./lake}}\n"


def file(*names: str, more: str = "") -> str:
    return "pipelines:\n" + "".join(ONE.format(name=name) for name in names) + more


class Watched:
    """A file, and the settings that a service has of it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "bridge.yaml"
        self.path.write_text(file("shop"))
        self.reported: list[str] = []
        self.left_out: list[str] = []
        self.settings = CurrentSettings(self.path, None, self.report)

    def report(self, error: SettingsError, stays: bool) -> None:
        self.reported.append(error.message)
        self.left_out += [] if stays else [error.message]

    def write(self, text: str, path: Path | None = None) -> bool:
        """Write the file anew, with another time; return whether it counts now."""
        path = path or self.path
        before = path.stat().st_mtime_ns if path.exists() else 0
        path.write_text(text)
        os.utime(path, ns=(before + 10**9, before + 10**9))
        return self.settings.refresh()

    @property
    def names(self) -> list[str]:
        return list(self.settings.pipelines)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_a_changed_file_counts(watched: Watched) -> None:
    """Pipelines come, change and go; an untouched file is not read again."""
    assert not watched.settings.refresh()
    assert watched.write(file("shop", "crm", more="service: {max_runs: 7}\n"))
    assert (watched.names, watched.settings.service.max_runs) == (["shop", "crm"], 7)
    assert watched.write(file("crm"))
    assert (watched.names, watched.reported) == (["crm"], [])


@pytest.mark.parametrize(
    "wrong", ["pipelines: [", "", file("shop") + "nonsense: 1\n", file("shop") + "service: {max_runs: x}\n"]
)
def test_a_wrong_file_keeps_all(wrong: str, watched: Watched) -> None:
    """It is reported once, however often one looks, and again after it was right in between."""
    assert not watched.write(wrong)
    assert not watched.settings.refresh()
    assert not watched.write(wrong + "\n")
    assert (watched.names, len(watched.reported)) == (["shop"], 1)
    assert watched.write(file("shop", "crm"))
    assert not watched.write(wrong)
    assert (watched.names, len(watched.reported)) == (["shop", "crm"], 2)


def test_a_wrong_pipeline_keeps_its_own(watched: Watched) -> None:
    """The others are taken as they are now; a new one that is wrong is left out."""
    watched.write(file("shop", "crm"))
    bucket = watched.settings.pipelines["crm"].destination.bucket
    more = (
        "  crm:\n    source: {tap: tap-smoke}\n    destination: {bucket: 3}\n  new: {}\n  last:\n    source: {tap: x}\n"
    )
    assert watched.write(file("shop", more=more + "    destination: {bucket: ./other}\n"))
    assert watched.names == ["shop", "crm", "last"]
    assert watched.settings.pipelines["crm"].destination.bucket == bucket
    assert any("pipelines.crm.destination.bucket" in text for text in watched.reported)
    (left_out,) = watched.left_out
    assert left_out.endswith("key=pipelines.new.source")


def test_included_files_and_variables_count(watched: Watched, tmp_path: Path) -> None:
    """A file that `include` finds later, a change of one, and `.env`."""
    (tmp_path / "more").mkdir()
    assert watched.write(file("shop", more="include: [more/*.yaml]\n"))
    assert watched.write(file("crm"), tmp_path / "more" / "crm.yaml")
    assert watched.names == ["shop", "crm"]
    assert watched.write(file("crm", "erp"), tmp_path / "more" / "crm.yaml")
    assert watched.write(file("shop").replace("./lake", "'${LAKE:-a}'"))
    assert watched.write(f"LAKE={tmp_path}/b\n", tmp_path / ".env")
    assert watched.settings.pipelines["shop"].destination.bucket == f"{tmp_path}/b"


def test_a_change_while_the_file_is_read_counts(watched: Watched, tmp_path: Path) -> None:
    """What is written after a file was opened is seen at the next look."""
    pipe = tmp_path / "password"
    os.mkfifo(pipe)

    def change() -> None:
        with pipe.open("w") as writing:  # the service is reading bridge.yaml now
            watched.path.write_text(file("shop", "crm"))
            writing.write("secret")

    changing = threading.Thread(target=change)
    changing.start()
    source = f"{{tap: x, config: {{password: '${{file:{pipe}}}'}}}}"
    more = f"  pg:\n    source: {source}\n    destination: {{bucket: ./lake}}\n"
    assert watched.write(file("shop", more=more))
    changing.join()
    assert watched.names == ["shop", "pg"]
    assert watched.settings.refresh()
    assert watched.names == ["shop", "crm"]


def test_a_wrong_file_that_is_new_is_repaired(watched: Watched, tmp_path: Path) -> None:
    """Its repair counts, though nothing else changes."""
    (tmp_path / "more").mkdir()
    included = tmp_path / "more" / "crm.yaml"
    included.write_text("pipelines: [")
    assert not watched.write(file("shop", more="include: [more/*.yaml]\n"))
    assert not watched.settings.refresh()
    assert watched.write(file("crm"), included)
    assert watched.names == ["shop", "crm"]


def test_a_run_gets_what_is_right_now(watched: Watched) -> None:
    """Even before the service has looked; while the file is wrong, what was right before."""
    watched.path.write_text(file("shop").replace("./lake", "/elsewhere"))
    assert watched.settings.fresh("shop").destination.bucket == "/elsewhere"
    watched.path.write_text("pipelines: [")
    assert watched.settings.fresh("shop").destination.bucket.endswith("/lake")


def test_a_service_does_not_start_with_a_wrong_file(tmp_path: Path) -> None:
    """It would have nothing to go by."""
    (tmp_path / "bridge.yaml").write_text("pipelines: [")
    with pytest.raises(SettingsError):
        CurrentSettings(tmp_path / "bridge.yaml", None, pytest.fail)
