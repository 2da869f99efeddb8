"""Flags that name where a program writes or works count as paths for rules and protected files."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus_project import create_corpus_project
from permission_helpers import create_engine, decide_command


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return create_corpus_project(tmp_path_factory.mktemp("corpus"))


def _list_allowed(engine, commands: list[str]) -> list[str]:
    return [each for each in commands if decide_command(engine, each) == "allow"]


_WORKING = [
    "mvn -f {} x", "mvn -f{} x", "mvn --file {}/pom.xml x", "gradle -p {} x", "gradle --project-dir={} x",
    "npm --prefix {} run x", "npm -C {} run x", "pnpm -C {} i", "pnpm --dir {} build", "yarn --cwd {} build",
    "bun run --cwd={} b", "cargo -C {} build", "cargo build --manifest-path {}/Cargo.toml",
    "cargo build --target-dir {}", "go -C {} build ./...", "go build -C {}", "composer -d {} install",
    "composer --working-dir={} install", "make -C {}", "make -C{}", "make --directory={} all",
    "make DESTDIR={} install", "make O={}", "ninja -C {}", "meson compile -C {}", "cmake -B {}",
    "cmake --build {}", "ctest --test-dir {}", "terraform -chdir={} apply", "just -d {} x", "task -d {} x",
    "uv --project {} sync", "poetry -C {} install", "pdm -p {} install", "swift build --package-path {}",
    "bundle exec --gemfile {}/Gemfile rake", "ant -f {}/build.xml", "rake -C {}", "hugo -s {}", "tsc -p {}",
    "dotnet build {}", "dotnet run --project {}", "dotnet restore --packages {}", "vite build {}",
    "pip install -e {}", "docker compose --project-directory {} up",
]  # fmt: skip


def test_a_build_that_works_in_a_denied_directory_is_not_allowed(project: Path) -> None:
    commands = [each.format("src") for each in _WORKING]
    assert _list_allowed(create_engine(project, "bypassPermissions", deny="Edit(src/**)"), commands) == []
    commands = [each.format("secrets") for each in _WORKING]
    assert _list_allowed(create_engine(project, "bypassPermissions", deny="Edit(secrets/**)"), commands) == []
    denied = create_engine(project, "bypassPermissions", deny="Read(secrets/**)")
    # Compiled files come from there, and packages go there.
    writing = ("O=", "DESTDIR=", "--packages", "--target-dir", "-B ")
    assert (
        _list_allowed(denied, [each for each in commands if not any(sign in each for sign in writing)]) == []
    )


def test_a_build_that_works_in_a_protected_directory_is_asked(project: Path) -> None:
    programs = sorted({each.split()[0] for each in _WORKING} - {"docker"})
    engine = create_engine(project, allow=" ".join(f"Bash({each}:*)" for each in programs))
    commands = [each.format(".git") for each in _WORKING if not each.startswith("docker")]
    assert _list_allowed(engine, commands) == []


@pytest.mark.parametrize(
    "command",
    ["npm --prefix . run x", "npm run build", "go -C . build ./...",
     "cargo build --manifest-path ./Cargo.toml", "make all", "make -j4 test", "make -C . all",
     "pytest --cov=src", "pytest -q src", "mypy src", "tsc --noEmit", "eslint src",
     "cmake -S src -B build", "npm test src/app.test.js", "node --require ./src/x.js a.js",
     "python3 -W ignore src/x.py", "docker build -f src/Dockerfile .", "git add src/app.py",
     "git commit -m src"],
)  # fmt: skip
def test_reading_a_directory_and_working_elsewhere_stay_allowed(project: Path, command: str) -> None:
    engine = create_engine(project, "bypassPermissions", deny="Edit(src/**)")
    assert decide_command(engine, command) == "allow"


@pytest.mark.parametrize(
    "command",
    ["python3 -X pycache_prefix=src/p x.py", "python3 -Xpycache_prefix=src/p x.py",
     "node --cpu-prof-dir=src x.js", "node --redirect-warnings=src/w x.js",
     "node --report-directory src x.js", "node --diagnostic-dir=src x.js",
     "node --test-reporter-destination=src/x --test", "java -Xlog:gc:file=src/x A",
     "java -Xloggc:src/x A", "java -XX:HeapDumpPath=src A", "java -Djava.io.tmpdir=src A",
     "php -d error_log=src/x a.php", "go test -coverprofile src/c ./...", "pytest --rootdir=src",
     "nox --envdir src", "tox --workdir src", "chromium --user-data-dir=src", "vim -es -V1src/log +qa",
     "vim -i src/info", "xxd -r -p - src/x", "uniq - src/x", "split - src/x",
     "git interpret-trailers --in-place src/x", "git mailinfo src/m src/p",
     "git bundle create src/x HEAD", "git repack --filter-to=src/x", "git index-pack -o src/x p"],
)  # fmt: skip
def test_a_value_of_a_flag_that_is_written_is_a_denied_file(project: Path, command: str) -> None:
    engine = create_engine(project, "bypassPermissions", deny="Edit(src/**)")
    assert decide_command(engine, command) != "allow"


@pytest.mark.parametrize(
    "command",
    ["docker build -osrc .", "mkdocs new src", "hg archive src", "tox devenv src",
     "playwright pdf url src/x.pdf", "pre-commit init-templatedir src", "docker context export x src/c",
     "hatch build src", "javac -h src A.java", "mvn -l src/log validate",
     "cargo --config build.target-dir='\"src/t\"' build", "curl -K - h <<< 'output=src/x'",
     "curl -sK cfg h", "wget --config=cfg h", "dpkg -x a.deb src", "sort -T src a", "borg extract ::a"],
)  # fmt: skip
def test_an_operand_or_setting_that_is_written_is_a_denied_file(project: Path, command: str) -> None:
    engine = create_engine(project, "bypassPermissions", deny="Edit(src/**)")
    assert decide_command(engine, command) != "allow"
    harmless = (
        "javac -cp src A.java",
        "java -cp src A",
        "java -jar src/a.jar",
        "gcc -I src a.c",
        "docker create a",
    )
    assert [each for each in harmless if decide_command(engine, each) != "allow"] == []
