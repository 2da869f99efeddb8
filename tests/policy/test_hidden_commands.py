"""A rule that forbids a command holds for commands that another program, a variable or a new script runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus_project import load_commands
from permission_helpers import create_engine, decide_command

from shoal.policy.shell.code_variables import CODE_VARIABLES


@pytest.mark.spec("PRM-06")
@pytest.mark.parametrize("kind", ["deny", "ask"])
def test_no_hidden_command_runs_unasked(tmp_path: Path, kind: str) -> None:
    commands = load_commands("hidden_commands.txt")
    assert len(set(commands)) >= 250
    engine = create_engine(tmp_path, "bypassPermissions", **{kind: "Bash(rm:*)"})
    assert [command for command in commands if decide_command(engine, command) == "allow"] == []


def test_a_session_that_does_not_ask_denies_hidden_commands(tmp_path: Path) -> None:
    engine = create_engine(tmp_path, "dontAsk", allow="Bash", deny="Bash(rm:*)")
    commands = load_commands("hidden_commands.txt")
    assert {decide_command(engine, command) for command in commands} == {"deny"}


def test_daily_uses_of_programs_that_run_others_are_not_asked(tmp_path: Path) -> None:
    engine = create_engine(tmp_path, "bypassPermissions", deny="Bash(rm:*)")
    commands = load_commands("runner_commands.txt")
    assert len(set(commands)) >= 100
    assert [command for command in commands if decide_command(engine, command) != "allow"] == []


@pytest.mark.parametrize(
    "form", ["{}=x.sh bash run.sh", "export {}=x.sh; bash run.sh", "env {}=x.sh ./run", "{}=$X ./run"]
)
def test_no_variable_of_the_table_runs_an_unknown_command(tmp_path: Path, form: str) -> None:
    """The value is a computed command, a file, or an option that loads one."""
    engine = create_engine(tmp_path, "bypassPermissions", deny="Bash(rm:*)")
    commands = [
        form.format(name).replace("x.sh", "'$(cat x)'" if name.startswith("PS") else "'a=r; ${a}m -rf y'")
        for name in sorted(CODE_VARIABLES)
    ]
    assert len(commands) >= 100
    assert [command for command in commands if decide_command(engine, command) == "allow"] == []


def test_a_command_in_a_word_or_a_variable_is_matched_with_the_rule(tmp_path: Path) -> None:
    engine = create_engine(tmp_path, "bypassPermissions", deny="Bash(git push:*)")
    for command in ("ssh h 'g\\it push'", "PAGER='g\"i\"t push' less x", "tar -I $'g\\x69t push' -xf a"):
        assert decide_command(engine, command) in ("ask", "deny")
    for command in ("ssh h 'npm push'", "PAGER='npm push' less x", "tar -I 'npm push' -xf a"):
        assert decide_command(engine, command) == "allow"


@pytest.mark.parametrize("command", ["cat a\\\n#$(touch x)", "cat a \\\n#$(touch x)", "strings @arguments"])
def test_a_comment_after_a_continued_line_and_a_file_of_arguments_are_asked(
    tmp_path: Path, command: str
) -> None:
    """The shell joins the lines first, so the second one is no comment."""
    assert decide_command(create_engine(tmp_path, "default"), command) == "ask"


@pytest.mark.parametrize(
    ("rule", "command", "decided"),
    [
        ("Bash(pip install:*)", "python3 -mpip install x", ("deny",)),
        ("Bash(rm:*)", "gcc -wrapper rm,-rf,x a.c", ("deny", "ask")),
        ("Bash(rm:*)", "gcc -o rm a.c", ("allow",)),
        ("Bash(rm:*)", "cat <<END\n\\$(rm x)\nEND", ("allow",)),
        ("Bash(rm:*)", "cat <<END\n\\\\$(rm x)\nEND", ("deny", "ask")),
    ],
)
def test_a_rule_holds_for_commands_in_options_and_here_documents(
    tmp_path: Path, rule: str, command: str, decided: tuple[str, ...]
) -> None:
    engine = create_engine(tmp_path, "bypassPermissions", deny=rule)
    assert decide_command(engine, command) in decided


@pytest.mark.parametrize(
    "command",
    ["python3 -ic '' <<< 'import os;os.system(\"touch x\")'", "python3 -i a.py <<< 'os.system(\"touch x\")'",
     "PYTHONINSPECT=1 python3 a.py <<< 'os.system(\"touch x\")'",
     "python3 -m pdb a.py <<< 'os.system(\"touch x\")'",
     "echo 'os.system(\"touch x\")' | python3 -i a.py", "echo '!touch x' | python3 -m pdb a.py",
     "node -i -e 0 <<< 'run(\"touch x\")'", "echo 'exec(\"touch x\")' | node inspect a.js",
     "lua -i a.lua <<< 'os.execute(\"touch x\")'", "php -a a.php <<< 'system(\"touch x\");'",
     "perl -d a.pl <<< 'system \"touch x\"'", "echo ':!touch x' | ghci a.hs", "echo '!touch x' | jshell a",
     "echo 'run(\"touch x\")' | deno repl", "echo '(run \"touch\")' | sbcl --load a", "npm run deploy --"],
)  # fmt: skip
def test_an_interpreter_with_a_file_may_also_run_its_input(tmp_path: Path, command: str) -> None:
    engine = create_engine(tmp_path, "bypassPermissions", deny="Bash(npm run deploy)", ask="Bash(touch:*)")
    assert decide_command(engine, command) != "allow"


@pytest.mark.parametrize(
    "command",
    ["vim '+!rm x'", "vim a '+call system(\"rm x\")'", "nvim '+lua os.execute(\"rm x\")'",
     "vim --remote-expr 'system(\"rm x\")'", "less '+!rm x' a", "more '+!rm x' a", "ed '!rm x'",
     "awk -l ./a 1", "awk --load=a 1", "sqlite3 -A -xf a.sqlar"],
)  # fmt: skip
def test_a_rule_for_an_editor_does_not_cover_a_command_in_a_word(tmp_path: Path, command: str) -> None:
    programs = ("vim", "nvim", "less", "more", "ed", "awk", "sqlite3")
    engine = create_engine(tmp_path, allow=" ".join(f"Bash({each}:*)" for each in programs))
    assert decide_command(engine, command) != "allow"
    harmless = ("vim +3 a", "less +G a", "less +30 a", "awk -F: 1 a", "sqlite3 a.db .tables")
    assert [each for each in harmless if decide_command(engine, each) != "allow"] == []


@pytest.mark.parametrize(
    ("rule", "commands"),
    [("tar -x*", ["tar xf a", "tar fx a", "gtar xf a", "bsdtar -vxf a"]),
     ("curl -X POST:*", ["curl h -X POST", "curl -sXPOST h", "curl h --request=POST"]),
     ("ssh:*", ["slogin h", "autossh -M0 h", "mosh h"]),
     ("mkdir:*", ["gmkdir x", "git send-pack --exec='mkdir x' . HEAD"])],
)  # fmt: skip
def test_a_rule_holds_for_other_forms_of_its_command(tmp_path: Path, rule: str, commands: list[str]) -> None:
    engine = create_engine(tmp_path, "bypassPermissions", deny=f"Bash({rule})")
    assert [each for each in commands if decide_command(engine, each) == "allow"] == []
    others = ("tar tf a", "tar cf a b", "curl -X GET h", "curl h", "ssh-keygen -l", "git push", "ls")
    assert [each for each in others if decide_command(engine, each) != "allow"] == []


@pytest.mark.parametrize(
    "code",
    ["('sys'.'tem')('to'.'uch x');", "'system'('to'.'uch x');", "$a[0]('to'.'uch x');", "(fn() => f())('x');",
     "A::{'x'}('to'.'uch x');"],
)  # fmt: skip
def test_a_call_of_an_expression_in_php_may_run_anything(tmp_path: Path, code: str) -> None:
    engine = create_engine(tmp_path, "bypassPermissions", deny="Bash(touch:*)")
    assert decide_command(engine, f'php -r "{code}"'.replace("$", "\\$")) != "allow"
    assert decide_command(engine, "php -r 'echo strlen(trim(\"x\"));'") == "allow"


@pytest.mark.parametrize(
    "command",
    ["pip --python /usr/bin/touch list", "pip --python=touch list", "npm --git=touch install",
     "uv pip list --python touch", "kubectl --kubeconfig=/dev/stdin get pods <<< 'command: touch'",
     "KUBECONFIG=/dev/stdin kubectl get pods <<< 'command: touch'",
     "KUBECONFIG=<(echo 'command: touch') kubectl get pods",
     "AWS_CONFIG_FILE=/dev/stdin aws s3 ls <<< 'credential_process = touch'",
     "cargo --config /dev/stdin build <<< 'rustc-wrapper = \"touch\"'",
     "npm --userconfig=/dev/stdin run x <<< script-shell=touch"],
)  # fmt: skip
def test_a_flag_or_settings_in_the_line_may_name_a_forbidden_program(tmp_path: Path, command: str) -> None:
    engine = create_engine(tmp_path, "bypassPermissions", deny="Bash(touch:*)")
    assert decide_command(engine, command) != "allow"
    harmless = ("pip list --python python3.11", "kubectl get pods", "KUBECONFIG=touch.yaml kubectl get pods")
    assert [each for each in harmless if decide_command(engine, each) != "allow"] == []


@pytest.mark.parametrize(
    "command",
    [
        "yarn npm publish",
        "pnpm git push",
        "pnpm -r git push origin",
        "pnpm --filter web git push",
        "yarn run git push",
        "yarn workspace web git push",
        "yarn workspaces foreach -A run git push",
        "bun git push",
    ],
)
def test_a_package_manager_runs_a_word_that_it_does_not_know(tmp_path: Path, command: str) -> None:
    rule = "Bash(npm publish:*)" if "npm publish" in command else "Bash(git push:*)"
    engine = create_engine(tmp_path, "bypassPermissions", deny=rule)
    assert decide_command(engine, command) in ("ask", "deny")


def test_packages_with_the_name_of_a_program_are_installed_without_a_question(tmp_path: Path) -> None:
    engine = create_engine(tmp_path, "bypassPermissions", deny="Bash(git push:*)")
    for command in (
        "npm install git",
        "yarn add git",
        "pnpm remove git",
        "npm test",
        "yarn build",
        "pnpm run dev",
    ):
        assert decide_command(engine, command) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "echo 'import os;os.system(\"rm x\")' > sitecustomize.py; PYTHONPATH=. python3 -c 1",
        "echo 'm4_esyscmd([rm x])' > configure.ac; autoconf",
        "cat > configure.ac <<'E'\nm4_esyscmd([rm x])\nE\nautoconf",
        "echo 'rm x' | tee build.hook; some-builder",
    ],
)
def test_a_program_may_run_text_in_a_new_file_that_it_does_not_name(tmp_path: Path, command: str) -> None:
    engine = create_engine(tmp_path, "bypassPermissions", deny="Bash(rm:*)")
    assert decide_command(engine, command) in ("ask", "deny")
    harmless = command.replace("rm x", "ls x").replace('os.system("ls x")', "print(1)")
    assert decide_command(engine, harmless) == "allow"


@pytest.mark.parametrize(
    "command",
    ["cargo --exec {}", "docker --pager {} ps", "systemctl --editor {} edit x", "go --toolexec {} build",
     "helm --post-renderer-program {} install x"],
)  # fmt: skip
def test_a_flag_for_a_command_that_is_known_only_at_run_time_is_asked(tmp_path: Path, command: str) -> None:
    engine = create_engine(tmp_path, "bypassPermissions", deny="Bash(touch:*)")
    assert decide_command(engine, command.format('"$X"')) == "ask"
    assert decide_command(engine, command.format('"$(cat a)"')) == "ask"
    assert decide_command(engine, command.format("touch")) == "ask"
    assert decide_command(engine, command.format("ls")) == "allow"


def test_a_value_that_no_program_runs_is_not_asked_about(tmp_path: Path) -> None:
    engine = create_engine(tmp_path, "bypassPermissions", deny="Bash(touch:*)")
    assert decide_command(engine, 'cargo build --target-dir "$(cat a)"') == "allow"
