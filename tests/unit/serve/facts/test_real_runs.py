"""`run`, `status --notify` and `target-bridge` tell real receivers, and end as if there were none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.support.receiver import Receiver, receiver

SETTINGS = """
pipelines:
  shop:
    source: {tap: [sh, -c, "exit ${CODE}"]}
    destination: {bucket: lake}
    stale_after: 1s
    notify: [{url: "${URL}"}]
"""


def typed(root: Path, server: Receiver, *words: str, code: int = 0, module: str = "bridge") -> tuple[int, str]:
    """The exit code, and all that was printed."""
    url = f"json://127.0.0.1:{server.port}/t0psecret-token"
    result = subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=root,
        env=os.environ | {"CODE": str(code), "URL": url, "PYTHONWARNINGS": "ignore"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=120,
    )
    assert "t0psecret" not in result.stdout
    return result.returncode, result.stdout


def test_runs_of_the_command_line(tmp_path: Path) -> None:
    """ok, failed, failed, ok: failed and recovered. Then stale, once. No file of the lake has the URL."""
    (tmp_path / "bridge.yaml").write_text(SETTINGS)
    with receiver() as server:
        codes = [typed(tmp_path, server, "run", "--no-progress", code=code)[0] for code in (0, 1, 1, 0)]
        assert [bool(code) for code in codes] == [False, True, True, False]
        assert server.kinds == ["failed", "recovered"]
        time.sleep(2.1)  # records have whole seconds
        for _ in range(2):
            assert typed(tmp_path, server, "status", "--notify")[0] == 0
        assert server.kinds == ["failed", "recovered", "stale"]
        assert typed(tmp_path, server, "config", "show")[0] == 0
    for file in (tmp_path / "lake").rglob("*"):
        assert not file.is_file() or b"t0psecret" not in file.read_bytes()


def test_a_receiver_that_hangs_costs_no_outcome(tmp_path: Path) -> None:
    """The exit code is the tap's; the process ends soon after the deadline, though the receiver never answers."""
    with receiver(None) as server:
        (tmp_path / "bridge.yaml").write_text(SETTINGS.partition("    notify")[0])
        expected, _ = typed(tmp_path, server, "run", "--no-progress", code=1)
        assert typed(tmp_path, server, "run", "--no-progress")[0] == 0
        (tmp_path / "bridge.yaml").write_text(SETTINGS)
        began = time.monotonic()
        code, text = typed(tmp_path, server, "run", "--no-progress", "--json", code=1)
        assert time.monotonic() - began < 60
    assert [body["title"] for body in server.bodies] == ["shop: failed"]
    assert code == expected != 0
    assert text.count("the run itself is not affected") == 1


def test_a_target_s_runs(tmp_path: Path) -> None:
    """A target that fails tells its receivers, too."""
    with receiver() as server:
        url = f"json://127.0.0.1:{server.port}/t0psecret-token"
        config = {"bucket": "lake", "pipeline": "p", "notify": [{"url": url}]}
        (tmp_path / "config.json").write_text(json.dumps(config))
        command = "import sys; from target_bridge import main; sys.exit(main())"
        result = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", command, "--config", "config.json"],
            cwd=tmp_path,
            input='{"type": "RECORD", "stream": "s", "record": {"id": 1}}\n',
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert result.returncode != 0
        assert server.kinds == ["failed"]
        assert "t0psecret" not in result.stdout + result.stderr
