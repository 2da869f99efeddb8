"""Only a few modules may read the environment of the process: sessions of several users share it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src" / "shoal"
_ATTRIBUTES = {"os": {"environ", "environb", "getenv"}, "Path": {"home"}, "tempfile": {"gettempdir"}}
_METHODS = {"expanduser", "expandvars", "gettempdir"}
_TEMPORARY = {"mkdtemp", "mkstemp", "TemporaryFile", "NamedTemporaryFile", "TemporaryDirectory"}
_READ_NAMES = re.compile(
    "|".join([*_ATTRIBUTES["os"], r"\bPath\b[\s\\)]*\.\s*home\b", *_METHODS, *_TEMPORARY])
)
_LIBRARY = "is None, so the caller chose the process's environment"
_COMMAND = "runs for the user of the process only: a command, a demo or a program of its own"
_INTERPRETER = "starts our own interpreter, which needs the variables that this one was started with"
REASONS = {
    "core/user_environment.py": f"the one place that reads it, when `variables` {_LIBRARY}",
    "app/config/session_config.py": f"when `environ` {_LIBRARY}",
    "app/library/session_options.py": f"when `environ` {_LIBRARY}",
    "app/library/team.py": f"when `environ` {_LIBRARY}",
    "app/settings/configured_store.py": f"when `environ` {_LIBRARY}",
    "app/settings/settings.py": f"when `environ` {_LIBRARY}",
    "policy/hooks/hook_process.py": "a file in memory on Linux; elsewhere removed before anyone can open it",
    "workspaces/project_transfer.py": "on a machine of a cluster, whose process has one user",
    "stores/postgres/database_errors.py": "names the password file of the process, which asyncpg reads",
    "app/session/ray_member_main.py": "the process of one teammate, started with its user's environment",
    "app/session/warmup.py": "the server that forks teammates; it runs no session of a user",
    "backends/fork_server.py": "sets the environment of a teammate's process",
    "backends/sandbox/landlock_exec.py": "the process of one command, started with its user's environment",
    "backends/process_backend.py": _INTERPRETER,
    "backends/ray_placements.py": _INTERPRETER,
    "backends/ray_node.py": _INTERPRETER,
    "backends/ray_probe.py": _INTERPRETER,
    "backends/iterm2_panes.py": "panes exist only in the terminal of the process's user",
    "app/clusters/": _COMMAND,
    "app/demo/": _COMMAND,
    "app/reports/mcp_report.py": _COMMAND,
    "app/run_access/background_runs.py": _COMMAND,
    "surfaces/": _COMMAND,
}


def iter_reads(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if node.attr in _ATTRIBUTES.get(owner, ()) or node.attr in _METHODS:
                yield node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            if any(each.name in _ATTRIBUTES["os"] for each in node.names):
                yield node.lineno
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            is_placed = any(keyword.arg == "dir" for keyword in node.keywords)
            if (name in _TEMPORARY and not is_placed) or name == "gettempdir":
                yield node.lineno


_STARTS = {"run", "Popen", "check_call", "check_output", "create_subprocess_exec", "create_subprocess_shell"}
_STARTS_REASONS = {
    "backends/guarded_processes.py": "the guardian: our own interpreter, which ignores the variables (-E)",
    "backends/sandbox/landlock.py": _INTERPRETER,
    "app/demo/": _COMMAND,
    "surfaces/": _COMMAND,
}


_START_NAMES = re.compile("subprocess")


def iter_starts(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of calls that start a process without env=, so that it inherits the environment."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _STARTS:
            owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
            is_given = any(keyword.arg in ("env", None) for keyword in node.keywords)
            if not is_given and (owner == "subprocess" or (owner == "asyncio" and node.func.attr != "run")):
                yield node.lineno


def find_process_reads(sources: Path) -> dict[str, list[int]]:
    found = {}
    for path in sorted(sources.rglob("*.py")):
        text = path.read_text()
        # The whole package takes seconds to parse.
        if _READ_NAMES.search(text) and (lines := [*iter_reads(ast.parse(text))]):
            found[str(path.relative_to(sources))] = lines
    return found


def test_only_listed_modules_read_the_environment_of_the_process() -> None:
    found = find_process_reads(SOURCES)
    unlisted = {f"{name}:{lines[0]}" for name, lines in found.items() if not name.startswith(tuple(REASONS))}
    assert not unlisted, "use settings.user or workspace.user (core/user_environment.py) instead"
    unused = {entry for entry in REASONS if not any(name.startswith(entry) for name in found)}
    assert not unused, "remove the entry"


def test_the_check_finds_every_way_to_read_the_environment(tmp_path: Path) -> None:
    ways = [
        "import os\nos.environ['A']",
        "import os\nos.getenv('A')",
        "from os import environ",
        "from pathlib import Path\nPath.home()",
        "from pathlib import Path\nPath('~').expanduser()",
        "import os\nos.path.expanduser('~')",
        "import os\nos.path.expandvars('$A')",
        "from tempfile import gettempdir\ngettempdir()",
        "import tempfile\ntempfile.mkdtemp()",
        "from tempfile import TemporaryFile\nTemporaryFile()",
    ]
    for index, text in enumerate(ways):
        (tmp_path / f"m{index}.py").write_text(text)
    (tmp_path / "placed.py").write_text("import tempfile\ntempfile.mkdtemp(dir='/x')")
    assert len(find_process_reads(tmp_path)) == len(ways)


def test_only_listed_modules_start_processes_with_the_environment_of_this_one() -> None:
    found = {
        str(path.relative_to(SOURCES)): lines
        for path in sorted(SOURCES.rglob("*.py"))
        if _START_NAMES.search(text := path.read_text()) and (lines := [*iter_starts(ast.parse(text))])
    }
    unlisted = {
        f"{name}:{lines[0]}" for name, lines in found.items() if not name.startswith(tuple(_STARTS_REASONS))
    }
    assert not unlisted, "pass env="
    unused = {entry for entry in _STARTS_REASONS if not any(name.startswith(entry) for name in found)}
    assert not unused, "remove the entry"


def test_the_check_finds_processes_that_inherit_the_environment() -> None:
    inherits = ["subprocess.run(a)", "subprocess.Popen(a, cwd='/')", "asyncio.create_subprocess_exec(*a)"]
    given = [
        "subprocess.run(a, env={})",
        "asyncio.run(main())",
        "runner.run(a)",
        "subprocess.run(a, **options)",
    ]
    assert [line for text in inherits for line in iter_starts(ast.parse(text))] == [1, 1, 1]
    assert not [line for text in given for line in iter_starts(ast.parse(text))]


_CLIENT_NAMES = re.compile("httpx|create_default_context|load_default_certs")


def test_http_clients_and_tls_contexts_do_not_read_the_variables_of_the_process() -> None:
    """Libraries read them too: each client is told not to, and gets its certificates from one module."""
    found: list[str] = []
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if _CLIENT_NAMES.search(text) else ():
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
            arguments = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if owner in ("httpx", "httpx2") and node.func.attr in ("AsyncClient", "Client", "get", "post"):
                is_isolated = arguments.get("trust_env") == "False" and "get_tls_context" in arguments.get(
                    "verify", ""
                )
            else:
                is_isolated = node.func.attr not in ("create_default_context", "load_default_certs")
            if not is_isolated:
                found.append(f"{path.relative_to(SOURCES)}:{node.lineno}")
    assert found == []
