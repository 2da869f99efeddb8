"""Randomly generated commands that are allowed without asking, executed for real."""

from __future__ import annotations

import random
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.core.agents.identity import AgentIdentity
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.ids import SessionId
from shoal.core.permissions.permission_decisions import AllowDecision
from shoal.policy.permission_engine import PermissionEngine
from shoal.workspaces.local_workspace import LocalWorkspace

pytestmark = pytest.mark.needs("bash", "git", "bwrap")

SECRET = "a word that is outside"
VALUES = ("a -o out", "out", "-o", "-delete", "--output=out", "-exec touch out ;", "-v", "{secret}")
FLAGS = {
    "awk": "-F , -v x=1 -f {print} BEGIN{print>\"out\"} BEGIN{system(\"touch_out\")} {secret}",
    "date": "+%s -s -d now -f -r -u -I --rfc-3339 {secret}",
    "diff": "d/g --from-file={secret} --to-file -u -r . d -l",
    "find": ". d -name -exec -execdir echo touch out {} + ; -delete -fprint -newer -o !"
    " sort -maxdepth 1 cat -type",
    "git": "log diff branch tag show blame grep stash reflog --output=out --output out -U --format --list new"
    " -n 1 --abbrev HEAD --no-index -O -C config --get rev-parse -c core.pager=touch notes remote -l -v -S",
    "grep": "-e a -f -r . -5ea --reg=a -A 1 -vx -1 --file={secret} --exclude-from={secret}",
    "jq": ". -n --arg b --rawfile -f -r input --slurpfile $a -R -L --from-file {secret}",
    "rg": "a -e -f -.ea -0ea --files -g * -A 1 --pre touch --regexp -ea --sort path {secret}",
    "sed": "-n p -e -E s/a/b/ -i s/a/b/w_out --expression -s -ne -f 1p 1e_touch_out r_{secret} -z w_out",
    "sort": "-o out -n -k 1 -t , -u --output=out -oout -no -S 1M --parallel 2 --files0-from -T {secret}",
    "test": "-f ! -v a[$(touch_out)] ( ) = -eq 1 -n -z -nt",
    "uniq": "out -c -f 1 -s -d -w 3 -i -D - {secret}",
    "xargs": "-I {} -n 1 -E -L -d x -0 -t cat echo touch sort -o out -i -l -a --max-lines --replace"
    " sh -c -I{} find",
    "xxd": "out -r -p -c 4 -l -s -o 1 -i {secret}",
}  # fmt: skip
"""Words to put after each command; `_` is a blank inside a word."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text(SECRET)
    (directory := tmp_path / "project").mkdir()
    (directory / "d").mkdir()
    for name in ("f", "d/g", "+"):
        (directory / name).write_text("b\na\nout\n")
    commit = "git init -q && git add -A && git -c user.name=a -c user.email=a@b commit -qm first && echo >> f"
    subprocess.run(commit, shell=True, cwd=directory, check=True)
    return directory


def generate_lines(chance: random.Random, secret: str) -> Iterator[str]:
    while True:
        name = chance.choice(list(FLAGS))
        words = ["f", "f", "--", *(word.replace("_", " ") for word in FLAGS[name].split())]
        chosen = [shlex.quote(word.replace("{secret}", secret)) for word in chance.choices(words, k=5)]
        if chance.random() < 0.3:
            chosen[chance.randrange(5)] = chance.choice(['"$x"', "$x", "a$x", "*"])
        line = f"{name} {' '.join(chosen[: chance.randint(1, 5)])}"
        if chance.random() < 0.3:
            line = f"echo {chance.choice(['-o out', secret, 'f'])} | {line}"
        yield (
            f"x={shlex.quote(chance.choice(VALUES).format(secret=secret))}; {line}" if "$x" in line else line
        )


def run_confined(line: str, project: Path) -> str:
    """Return the output of a line, run where only the project can be changed."""
    sandbox = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-net"]
    mounts = ["--bind", str(project), str(project), "--chdir", str(project), "--die-with-parent"]
    done = subprocess.run(
        [*sandbox, *mounts, "timeout", "5", "bash", "-c", line],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return done.stdout.decode(errors="replace")


def read_files(project: Path) -> dict[str, bytes]:
    """Return the content of all files but the git index, which git refreshes on every read."""
    found = (path for path in sorted(project.rglob("*")) if path.is_file() and path.name != "index")
    return {str(path.relative_to(project)): path.read_bytes() for path in found}


@pytest.mark.sampled(1)
@pytest.mark.spec("PRM-05")
@pytest.mark.parametrize("seed", range(4))
def test_commands_allowed_without_asking_change_no_file_and_reveal_no_outside_content(
    project: Path, seed: int
) -> None:
    engine = PermissionEngine(LocalWorkspace(project))
    before, allowed = read_files(project), 0
    command_lines = generate_lines(random.Random(seed), str(project.parent / "secret"))
    while allowed < 60:
        line = next(command_lines)
        call = ToolUseBlock(id="c", name="Bash", input={"command": line})
        if isinstance(
            engine.decide_tool_call(call, None, AgentIdentity(session=SessionId("s"))), AllowDecision
        ):
            allowed += 1
            assert SECRET not in run_confined(line, project), line
            assert read_files(project) == before, line
