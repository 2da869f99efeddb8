"""The house rules that no linter knows."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from docstring_references import find_dead_references
from late_assignments import find_late_assignments
from model_sentences import find_model_sentences, find_reason_clauses
from name_figures import find_bare_participles, is_bare_participle, is_gerund, measure_names
from structure_figures import measure_structure
from syntax_trees import forget_syntax_trees, list_nodes, parse_module  # noqa: F401
from ungrouped_tasks import find_ungrouped_tasks

pytestmark = pytest.mark.one_worker
ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "shoal"
MODULES = sorted(PACKAGE.rglob("*.py"))
TESTS = ROOT / "tests"
TEXTS_FOR_PEOPLE = (
    *("surfaces/cli/", "surfaces/terminal/", "surfaces/tui/", "surfaces/web/", "testing/"),
    *("app/clusters/", "app/demo/", "app/library/team.py"),
    *(f"app/workflows/workflow_{name}.py" for name in ("definition", "loader", "runs")),
)
"""Modules whose refusals only people and their programs read, not models."""
ERRORS_IN_RULES = ("permission_rules.py", "path_patterns.py", "rule_names.py", "mode_inheritance.py")
"""Modules of the policy whose texts are about settings, which only people write."""


def module_name(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def test_every_public_makefile_target_has_one_line_of_help():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    helped = set(re.findall(r"^  make (\S+) +\S", shown, re.MULTILINE))
    assert {"demo", "test", "check", "bench", "spec"} <= helped
    assert targets - helped == {"setup-run", "setup-test"}


def test_every_makefile_target_is_phony():
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert phony
    assert set(phony[1].split()) == set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))


def test_every_test_module_has_a_name_of_its_own():
    """Two modules of one name cannot be collected together, and each passes when it is run alone."""
    names = [path.name for path in TESTS.rglob("test_*.py")]
    assert {name for name in names if names.count(name) > 1} == set()


def test_the_product_depends_only_on_a_few_packages():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[<>=;\[ ]", line)[0] for line in project["dependencies"]}
    allowed = {
        "httpx",
        "msgspec",
        "click",
        "rich",
        "tree-sitter",
        "tree-sitter-bash",
        "inotify_simple",
        "pyyaml",
    }
    assert names <= allowed


def test_the_licence_file_is_the_declared_licence():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text()


def test_a_module_opens_with_a_sentence_of_purpose():
    # One test for all modules: a test for each would take longer to collect than to run.
    first_lines = {module_name(path): _read_first_docstring_line(path) for path in MODULES}
    wrong = {name: line for name, line in first_lines.items() if not re.match(r"[A-Z`].*[.!?]$", line)}
    assert wrong == {}


def _read_first_docstring_line(path: Path) -> str:
    return next(iter((ast.get_docstring(parse_module(path)) or "").splitlines()), "")


def find_stray_docstrings(path: Path) -> list[int]:
    """Return the lines of texts that follow neither an opening line nor the assignment they describe."""
    blocks = (getattr(node, "body", ()) for node in list_nodes(parse_module(path)))
    return [
        text.lineno
        for block in blocks
        if isinstance(block, list)
        for before, text in pairwise(block)
        if isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
        and not isinstance(before, ast.Assign | ast.AnnAssign)
    ]


def test_a_docstring_of_a_variable_follows_its_assignment():
    found = {module_name(path): lines for path in MODULES if (lines := find_stray_docstrings(path))}
    assert found == {}


def test_a_docstring_behind_another_one_is_found(tmp_path: Path):
    (tmp_path / "mail.py").write_text('DELAY = 1\n"""Seconds."""\n"""Seconds too."""\n')
    assert find_stray_docstrings(tmp_path / "mail.py") == [3]


def test_a_module_has_at_most_700_lines():
    sizes = {module_name(path): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: size for name, size in sizes.items() if size > 700} == {}


def test_surfaces_use_the_session_and_not_its_parts():
    parts = re.compile(
        r"(?<!app\.)session\.(agent|budget|config|knowledge|lifecycle_hooks|parts|runtime|supervisor|teams|workflows)\b"
        r"|\b_?(broker|questions)\.late_answers\b"
    )
    users = [path for path in (PACKAGE / "surfaces").rglob("*.py") if parts.search(path.read_text())]
    assert users == []


def test_shoal_itself_reads_amounts_from_the_session():
    # Programs may use the budget; inside Shoal, only the runtime reserves.
    users = [module_name(path) for path in MODULES if re.search(r"\bsession\.budget\b", path.read_text())]
    assert users == []


LATE_ASSIGNMENTS = {
    # The task runs a method that needs the record in which the task is kept.
    "runs/agent_supervisor.py run.task",
    "team/team_supervisor.py handle.run_task",
    # A handle and its member share one state; the member is replaced when it is restarted.
    "team/members/member_table.py self.member.shutdown_request",
    # A caller that waits for a running agent reports its activity, until it waits no longer.
    "runs/progress_monitor.py ProgressMonitor.attach_progress_callback",
    # A loop subscribes to a watch and unsubscribes again; the changed names wait until then.
    "stores/files/access/inotify.py InotifyDirectoryWatch.set_callback",
    # The lock is opened when it is first taken, because only then the directory exists.
    "stores/files/locks/board_locks.py TaskBoardLocks.lock_board",
    # A request that slept through a failure belongs to the wave after it.
    "models/rate_limiter.py slot.wave",
    # A sibling is a copy of the same class, so that one of a worktree stays confined to it.
    "workspaces/local_workspace.py other._contents",
    "workspaces/local_workspace.py other._read_states",
    "workspaces/local_workspace.py other._on_change",
    "workspaces/local_workspace.py other._write_guard",
    # Objects of the standard library, which are configured only this way.
    "backends/member_listener.py context.check_hostname",
    "backends/member_listener.py context.minimum_version",
    "backends/member_listener.py context.verify_mode",
    "core/keyword_checks.py checked._is_coroutine",
    "core/tls_contexts.py context.keylog_filename",
    "core/tls_contexts.py context.verify_flags",
    "surfaces/cli/headless/stream_initialization.py request_hook_decision.__qualname__",
    "surfaces/tui/launch.py last.daemon",
    # What a screen shows at the moment: status rows, one run, one conversation, a line of text to ask for.
    "surfaces/cli/plain/input_prompt.py LiveInputPrompt.set_status_rows",
    "surfaces/tui/app.py ShoalApp.attach_run",
    "surfaces/tui/conversation_view.py ConversationView.show_conversation",
    "surfaces/tui/conversation_view.py self._conversation.is_shown",
    "surfaces/tui/question_form.py QuestionForm.ask_text",
    "surfaces/tui/launch.py app.theme",
    # Records in a container of the same object, which change with what they record.
    "app/workflows/step_log.py self.steps[failed].error",
    "app/workflows/step_log.py self.steps[failed].is_finished",
    "app/workflows/step_log.py self.steps[number].error",
    "app/workflows/step_log.py self.steps[number].is_finished",
    "surfaces/cli/plain/turn_printer.py self._calls[call].data",
    "surfaces/cli/plain/turn_printer.py self._calls[call].text",
    "wire/json_text_edits.py entries[-1].comma",
    # The time of the last entry; every entry sets it, so it takes no call.
    "stores/memory/memory_store.py self._store.last_used",
    # The number of viewers that share a follower.
    "surfaces/web/run_follower_pool.py shared_view.viewers",
}
WIDGET_ATTRIBUTES = ("border_subtitle", "border_title", "disabled", "display", "max_height")
"""Attributes of Textual's widgets, with which a screen shows and hides them."""


def test_no_object_is_completed_after_its_construction():
    packages = tuple(each.name for each in PACKAGE.iterdir() if each.is_dir())
    found = {
        f"{each.module} {each.target}"
        for each in find_late_assignments(PACKAGE, packages)
        # The state of a running loop or of a board in memory, which exists to be changed.
        if not re.search(r"\._?state\.", each.target)
        and not (each.module.startswith("surfaces/tui/") and each.target.endswith(WIDGET_ATTRIBUTES))
    }
    assert found == LATE_ASSIGNMENTS


@pytest.mark.parametrize(
    ("code", "target"),
    [
        ("def connect(self): self.hooks.runner.sink = self.notifier", "self.hooks.runner.sink"),
        ("def connect(turns, name): turns[name].limit = 3", "turns[name].limit"),
        ("def connect(turn): turn.on_end = lambda: None", "turn.on_end"),
        ("def connect(turn, f): turn.on_end = partial(f, turn)", "turn.on_end"),
        ("def connect():\n    turn = Turn()\n    turn.limit = 3", "turn.limit"),
        ("async def connect():\n    turn = await open_turn()\n    turn.limit = 3", "turn.limit"),
        ("class Turn:\n  def attach(self, end: Callable[[], None]):\n    self._end = end", "Turn.attach"),
        ("def connect(turn): turn._limit = 3", "turn._limit"),
        ("class Turn:\n  def end(self): pass\n  def run(self, task): task.done = self.end", "task.done"),
        ("def connect():\n    turns = Turns()\n    run(turns)\n    turns |= {1: 2}", "turns"),
        ("def connect():\n    with Turn() as turn:\n        turn.limit = 3", "turn.limit"),
        ("class Turn:\n  def set_next(self, turn: Turn):\n    self._next = turn", "Turn.set_next"),
        (
            "class Turn:\n  def __init__(self):\n    self._next: Turn | None = None\n"
            "  def set_next(self, turn: Turn):\n    self._next = wrap(turn)",
            "Turn.set_next",
        ),
    ],
)
def test_an_object_that_is_completed_late_is_found(tmp_path: Path, code: str, target: str):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "turns.py").write_text(code)
    assert [each.target for each in find_late_assignments(tmp_path, ("app",))] == [target]


@pytest.mark.parametrize(
    "code",
    [
        "class Turn:\n  def __init__(self, turn: Turn):\n    self._next = turn\n"
        "  def set_next(self, turn: Turn):\n    self._next = turn",
        "class Usage(Struct, frozen=True): pass\n\nclass Turn:\n"
        "  def set_usage(self, usage: Usage):\n    self._usage = usage",
        "def connect():\n    path = Path()\n    path /= 'turns'",
        "def connect(turn): turn.limit = 3",
    ],
)
def test_a_changed_object_is_not_taken_for_one_completed_late(tmp_path: Path, code: str):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "turns.py").write_text(code)
    assert find_late_assignments(tmp_path, ("app",)) == []


UNGROUPED_TASKS = {
    # Cells of a notebook run in tasks that end before the session; `close` waits for this one.
    "app/library/library_session.py LibrarySession.open",
    # The error of a program belongs to its caller, and other tasks stop it. `execute` waits for its end.
    "app/workflows/workflow_supervisor.py WorkflowSupervisor.execute",
    # For objects that are not closed by the task that opened them.
    "core/task_groups.py BackgroundTasks.start",
    # Only a task of the app can use its widgets; `run_app` waits for its end.
    "surfaces/tui/app.py ShoalApp.on_ready",
    # A second cancellation does not interrupt the cleanup; then it ends with the event loop.
    "workspaces/worktree_service.py WorktreeService.create_worktree",
}


def test_every_task_belongs_to_a_group():
    assert set(find_ungrouped_tasks(PACKAGE)) == UNGROUPED_TASKS


@pytest.mark.parametrize(
    "code",
    [
        "asyncio.create_task(run())",
        "asyncio.ensure_future(run())",
        "asyncio.get_running_loop().create_task(run())",
        "self._loop.create_task(run())",
        "await asyncio.shield(run())",
        "await asyncio.gather(*(run() for _ in range(3)))",
        "from asyncio import create_task\n    create_task(run())",
    ],
)
def test_a_task_without_a_group_is_found(tmp_path: Path, code: str):
    (tmp_path / "runs.py").write_text(f"async def start():\n    {code}\n")
    assert find_ungrouped_tasks(tmp_path) == ["runs.py start"]


@pytest.mark.parametrize(
    "code",
    [
        "tasks.create_task(run())",
        "await asyncio.shield(task)",
        "await board.create_task(draft)",
        "await asyncio.gather(*(run() for _ in range(3)), return_exceptions=True)",
    ],
)
def test_a_task_of_a_group_is_not_found(tmp_path: Path, code: str):
    (tmp_path / "runs.py").write_text(f"async def start():\n    {code}\n")
    assert find_ungrouped_tasks(tmp_path) == []


def test_only_one_module_outside_the_stores_constructs_their_parts():
    constructors = re.compile(
        r"(?<![\w.])(File(Store|SessionStore|Journal|Transcript|ResultStore|RosterStore|TaskBoard|MailboxStore)"
        r"|QuestionFiles|MemoryStore|PostgresStore|read_journal)\("
    )
    users = [
        module_name(path)
        for path in MODULES
        if constructors.search(re.sub(r"(class|def) \w+\(", "", path.read_text()))
        and not module_name(path).startswith("stores/")
    ]
    assert users == ["app/run_access/run_handle.py"]


def find_store_choices(package: Path) -> list[str]:
    """Return the modules outside the stores that open a store, import an implementation, or ask for one."""
    choice = re.compile(
        r"\bopen_store\b|own\.store\b|environ.*\bSHOAL_STORE\b"
        r"|isinstance\([^)]*\b(File|Memory|Postgres)(Store|SessionStore|Journal)\b"
        r"|import .*\b(PostgresStore|MemoryStore|FileJournal)\b"
    )
    return [
        name
        for path in sorted(package.rglob("*.py"))
        if not (name := path.relative_to(package).as_posix()).startswith(("stores/", "testing/"))
        and choice.search(path.read_text())
    ]


def test_the_store_is_chosen_in_one_place():
    # The package re-exports the classes of stores for programs, and the cluster report names the setting.
    assert find_store_choices(PACKAGE) == [
        "__init__.py",
        "app/clusters/cluster_report.py",
        "app/settings/configured_store.py",
    ]


@pytest.mark.parametrize(
    "code",
    [
        "from shoal.stores.store_choice import open_store",
        "store = open_store(home)",
        "place = settings.own.store or settings.home",
        "if os.environ.get('SHOAL_STORE'): ...",
        "assert isinstance(store, PostgresStore)",
        "from shoal.stores.files.sessions.file_journal import FileJournal",
    ],
)
def test_a_second_place_that_chooses_a_store_is_found(tmp_path: Path, code: str):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "more.py").write_text(code)
    assert find_store_choices(tmp_path) == ["app/more.py"]


def test_nobody_asks_for_the_class_of_a_member():
    checks = re.compile(
        r"(isinstance\([^)]*\b|\bcase |\bis )((Local|Remote|Down)Member|(Session|Nested)Teams|MemberHost)\b"
    )
    assert [module_name(path) for path in MODULES if checks.search(path.read_text())] == []


def test_no_file_names_the_machine_it_was_written_on():
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("this copy of the sources is not a git repository")
    # Written in halves, so that this file does not find itself.
    needles = ["/" + "work/", ".." + "/shared", "/root" + "/.", "pypi" + ".org", "pythonhosted" + ".org"]
    found = []
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            found += [f"{name} mentions {needle}" for needle in needles if needle in text]
    assert found == []


def test_importing_shoal_loads_nothing_heavy():
    code = "import sys; at_start = {*sys.modules}; import shoal; print(*{*sys.modules} - at_start)"
    heavy = {
        "asyncio",
        "httpx",
        "click",
        "rich",
        "subprocess",
        "ssl",
        "tree_sitter",
        "pypdf",
        "PIL",
        "textual",
        "ray",
        "uvloop",
        "greenlet",
        "asyncpg",
    }
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "shoal" in done.stdout.split()
    assert heavy & set(done.stdout.split()) == set()


def test_name_figures_stay_within_their_limits():
    figures = measure_names(PACKAGE)
    print(f"\n{figures.format_table()}")  # noqa: T201 - shown with -s
    assert figures.shared_classes == ()
    # `await team.finished()` is a public name that programs read as a sentence.
    assert [each for each in figures.participles if not each.endswith(" finished")] == []
    assert figures.gerund_modules == ()
    assert figures.repeated_modules == ()
    assert len(figures.clause_docstrings) <= 3, figures.clause_docstrings
    assert figures.one_word_percent <= 20


def test_structure_figures_stay_within_their_limits():
    figures = measure_structure(PACKAGE)
    assert len(figures.callback_slots) <= 4, figures.callback_slots
    assert len(figures.large_structs) <= 8, figures.large_structs
    assert len(figures.small_modules) <= 20, figures.small_modules


def test_structure_that_the_limits_count_is_found(tmp_path: Path):
    fields = "".join(f"    field_{number}: int\n" for number in range(16))
    (tmp_path / "large.py").write_text(
        "on_end: Callable[[], None] = lambda: None\n\n\nclass Large(Struct):\n" + fields
    )
    (tmp_path / "user.py").write_text(f"from {tmp_path.name}.large import Large\n")
    figures = measure_structure(tmp_path)
    assert figures.callback_slots == ("large.py:1",)
    assert figures.large_structs == ("large.py:4 Large",)
    assert figures.small_modules == ("large.py",)


def test_tests_and_helpers_are_not_named_by_a_bare_participle():
    assert find_bare_participles(TESTS) == []
    assert [path for path in TESTS.rglob("*.py") if is_gerund(path.stem)] == []


@pytest.mark.parametrize("code", ["def opened(): pass", "class Mail:\n    async  def _kept(self): pass"])
def test_a_function_that_is_named_by_a_bare_participle_is_found(tmp_path: Path, code: str):
    (tmp_path / "mail.py").write_text(code)
    (tmp_path / "names.py").write_text("@property\ndef opened(self): ...")
    assert [each.partition(":")[0] for each in find_bare_participles(tmp_path)] == ["mail.py"]


@pytest.mark.parametrize("name", ["told", "_kept", "opened", "answered"])
def test_a_bare_participle_is_recognized(name: str):
    assert is_bare_participle(name)


@pytest.mark.parametrize("name", ["read", "cut", "is_closed", "needed_tools", "seed", "load_settings"])
def test_a_verb_is_not_taken_for_a_participle(name: str):
    assert not is_bare_participle(name)


def test_a_gerund_module_is_recognized():
    assert [
        stem for stem in ("outfitting", "taking_over", "asking", "string", "settings") if is_gerund(stem)
    ] == [
        "outfitting",
        "asking",
    ]


def test_the_glossary_names_classes_that_exist():
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    named = set(re.findall(r"`([A-Z][a-z]\w+)`", glossary))
    source = "\n".join(path.read_text() for path in MODULES)
    defined = set(re.findall(r"^class (\w+)", source, re.MULTILINE)) | set(
        re.findall(r"^(\w+)(?:: TypeAlias)? = ", source, re.MULTILINE)
    )
    assert named
    assert named - defined - {"Tool"} == set()


def test_docstrings_name_only_things_that_exist():
    assert find_dead_references(MODULES) == []


def test_a_docstring_that_names_a_renamed_class_is_found(tmp_path: Path):
    module = tmp_path / "module.py"
    module.write_text(
        'class Kept:\n    """Like `Kept` and `OldName`; reads `old_field`, not `thisField`."""\n'
    )
    assert find_dead_references([module]) == [f"{module}:2: `OldName`", f"{module}:2: `old_field`"]


def test_sentences_for_models_are_in_files():
    paths = [path for path in MODULES if not module_name(path).startswith(TEXTS_FOR_PEOPLE)]
    assert find_model_sentences(paths) == [], "move these texts to prompts/notices.md of their package"


def test_reasons_of_questions_are_in_files():
    paths = [path for path in (PACKAGE / "policy").glob("*.py") if path.name not in ERRORS_IN_RULES]
    paths += (PACKAGE / "policy" / "shell").glob("*.py")
    assert find_reason_clauses(sorted(paths)) == [], "move these texts to notices.md or shell.md of policy"


@pytest.mark.parametrize(
    "code",
    [
        'raise UnjudgeableCommandError("the loop has a form that Shoal cannot check")',
        'walk.note_trouble(f"it sets {name}, which later commands may use")',
        'return f"{name} may print a secret"',
        'return build_not_proven_readonly_verdict("tar may change something")',
        '_UNREADABLE = "it unpacks files that Shoal cannot check"',
        'program = program or "a configuration that is too long to check"',
        'append(found, read_only=False, reason=f"Shoal cannot tell what {name} will run")',
    ],
)
def test_a_reason_of_a_question_in_code_is_found(tmp_path: Path, code: str):
    module = tmp_path / "module.py"
    module.write_text(f'def run():\n    """Say why it may not run."""\n    {code}\n')
    assert len(find_reason_clauses([module])) == 1


@pytest.mark.parametrize(
    "code",
    [
        'raise UnjudgeableCommandError("loop_form")',
        'walk.note_trouble("sets_variable", name=name)',
        'return AllowDecision("edits in the working directories are accepted")',
        'append(found, read_only=True, reason="it only compares values")',
        'raise ValueError(f"readonly.txt: {head} has no operands.")',
        'FLAGS = "-a -c -m -t: --no-create --with --the-rest"',
        'TABLE = """\n    install i in add a with is\n    """',
        'SYNONYMS = {"git push --no-verify": "install i in add un rm r it"}',
    ],
)
def test_a_text_that_gives_no_reason_to_a_model_may_be_in_code(tmp_path: Path, code: str):
    module = tmp_path / "module.py"
    module.write_text(f'def run():\n    """Say why it may not run."""\n    {code}\n')
    assert find_reason_clauses([module]) == []


@pytest.mark.parametrize(
    "code",
    [
        'raise AgentRequestRefused("No agent runs.")',
        'raise ProcessError(f"{name} was not started: {error}")',
        'raise errors.WorktreeError("It is gone" if gone else format_workspace_notice("busy"))',
        'return create_tool_error_output("Nothing was " + change)',
        'reason = f"Cannot use {path}"\n    raise WorkspaceError(reason)',
        'return DenyDecision(decision.reason or "It is not allowed.")',
        'return ToolOutput(content=f"status: {status}. Try it again later.")',
        'await supervisor.stop_all_agents("the session ended")',
        'await shell.stop(f"it was stopped by {name}", by=agent)',
        'why = "its lead is gone"\n    host.request_member_end(why, resumable=True)',
        'why, is_down = f"it cannot be resumed: {error}", False\n    return LostMember(agent=agent, why=why)',
        'return AgentRunOutcome(status="failed", text="", detail="it shut down on request")',
        'agent.state.halt_reason = f"a {event} hook stopped it: {reason}"',
    ],
)
def test_a_sentence_for_models_in_code_is_found(tmp_path: Path, code: str):
    module = tmp_path / "module.py"
    module.write_text(f"def run():\n    {code}\n")
    assert len(find_model_sentences([module])) == 1


def test_a_sentence_for_models_in_a_constant_is_found(tmp_path: Path):
    module = tmp_path / "module.py"
    module.write_text(
        '_ENDED = "the session ended"\n\n\nasync def run():\n    await shells.stop_all(_ENDED)\n'
    )
    assert len(find_model_sentences([module])) == 1


@pytest.mark.parametrize(
    "code",
    [
        'await supervisor.stop_all_agents(format_end_reason("session_ended"))',
        'return AgentRunOutcome(status="killed", text="", detail=stop_reason)',
        'raise AgentRequestRefused(format_run_notice("stop_self", reason="a b"))',
        "raise ProcessError(str(error))",
        'return ToolOutput(content=f"status: {status}\\nexit code: {code}")',
        'raise SettingsError("Only people read this.")',
    ],
)
def test_a_text_from_a_file_is_no_sentence_in_code(tmp_path: Path, code: str):
    module = tmp_path / "module.py"
    module.write_text(f"def run():\n    {code}\n")
    assert find_model_sentences([module]) == []
