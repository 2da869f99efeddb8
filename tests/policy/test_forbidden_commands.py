"""Deny and ask rules about commands hold in every mode, whatever the analysis can read."""

from __future__ import annotations

from pathlib import Path

import pytest
from permission_helpers import create_engine, decide_command

from command_corpora import load_evasions, load_harmless
from shoal.core.permissions.permission_changes import PermissionMode

MODES: tuple[PermissionMode, ...] = ("default", "acceptEdits", "dontAsk", "bypassPermissions", "delegate")
DAILY = r"""
export FOO=bar; python x.py
for d in a b; do cd $d; make; cd ..; done
cat > f.py <<'EOF'⏎print("$(rm x)")⏎EOF
cat > cfg <<EOF⏎home=$HOME user=${USER} date=$(date +%s)⏎EOF
git commit -m "$(cat <<'EOF'⏎Drop old calls⏎⏎The rm was wrong.⏎EOF⏎)"
i=0; while [ $i -lt 3 ]; do echo $i; i=$((i+1)); done
n=$(wc -l < f); if (( n > 3 )); then echo many; fi
for ((i=0; i<3; i++)); do echo $i; done
arr=(a b c); for x in "${arr[@]}"; do echo "$x ${#arr[@]}"; done
declare -A m=([a]=1); echo "${m[a]}"
set -euo pipefail; npm ci && npm test -- --watch=false
PATH=$PWD/bin:$PATH make -j$(nproc)
FOO=$BAR python3 -m pytest -q tests/ | tail -5
python3 - <<'EOF'⏎print(1)⏎EOF
docker build -t x . && docker run x ls
sed -i "s/a/$x/" f.txt; sed -i 's/rm/del/g' src/*.py
awk -F, '{print $1}' "$f"
find . -type f | xargs grep -l foo
git add -A && git commit -m "rm old files" && git push
source .venv/bin/activate && pytest
if [[ -f x && "$y" =~ ^[0-9]+$ ]]; then echo ok; fi
if [[ $# -eq 0 ]]; then echo none; fi
ssh host uptime; kubectl exec pod -- ls
python3 -c "print(1)"; node -e "console.log(1)"
nohup python server.py > log 2>&1 &
timeout 60 bash run.sh; bash scripts/build.sh --release
shopt -s globstar; ls **/*.py
unset FOO; let x=1; coproc sleep 1
[ "$n" -gt 3 ] && printf '%s\n' "$x"
while read -r line; do echo "$line"; done < f
trap 'echo bye' EXIT; make
git -C sub status; git --no-pager log -3
echo "${x:-default} ${y%.txt} ${z//a/b} ${x:0:3} ${y:-$(date)}"
GIT_AUTHOR_NAME=x git commit -m y; ENV=prod ./deploy.sh
apt-get install -y curl; which curl; command -v curl
grep -rn "rm " src; echo rm curl
"""


@pytest.mark.spec("PRM-06")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["deny", "ask"])
def test_no_spelling_of_a_forbidden_command_runs_unasked(tmp_path: Path, mode: PermissionMode, kind: str):
    attempts = load_evasions()
    assert len(set(attempts)) >= 200
    engines = {
        rules: create_engine(tmp_path, mode, allow="Bash", **{kind: ", ".join(rules)})
        for rules, _ in attempts
    }
    passed = [each for each in attempts if decide_command(engines[each[0]], each[1]) == "allow"]
    assert passed == []


@pytest.mark.parametrize("command", [line.replace("⏎", "\n") for line in DAILY.strip().split("\n")])
def test_a_deny_rule_does_not_stop_other_commands(tmp_path: Path, command: str):
    engine = create_engine(tmp_path, "bypassPermissions", deny="Bash(rm:*) Bash(curl:*)")
    assert decide_command(engine, command) == "allow"


def test_a_deny_rule_stops_no_everyday_command(tmp_path: Path):
    engine = create_engine(tmp_path, "bypassPermissions", deny="Bash(rm:*) Bash(curl:*)")
    assert [command for command in load_harmless() if decide_command(engine, command) != "allow"] == []


@pytest.mark.parametrize("command", ["echo ${x@Z}; cat .env", "cat <<E\n$(( $(cat .env) ))\nE", "ls '"])
def test_a_command_that_cannot_be_read_may_reach_a_forbidden_file(tmp_path: Path, command: str):
    for rule in ("Read(.env)", "Edit(.env)"):
        assert decide_command(create_engine(tmp_path, "bypassPermissions", deny=rule), command) == "ask"
    assert decide_command(create_engine(tmp_path, "bypassPermissions", deny="WebFetch"), command) == "allow"


def test_files_in_a_loop_that_changes_the_directory_are_unknown(tmp_path: Path):
    engine = create_engine(tmp_path, "bypassPermissions", deny="Read(sub/x)")
    assert decide_command(engine, "for i in 1 2; do cat x; cd sub; done") == "deny"
    assert decide_command(engine, "for i in $y; do cat x; cd sub; done") == "ask"


@pytest.mark.spec("PRM-02")
@pytest.mark.parametrize(
    ("pattern", "command", "allowed", "denied"),
    [
        ("git push --force*", "git push --force", True, True),
        ("git push --force*", "git push --force origin x", True, True),
        ("git push --force*", "git push --force-with-lease", False, True),
        ("git push --force*", "git push", False, False),
        ("git push*", "git push origin", True, True),
        ("git push*", "git pushx", False, True),
        ("git push:*", "git pushx", False, False),
        ("git push *", "git pushx", False, False),
        ("git push origin-*", "git push origin-2", True, True),
        ("git push origin-*", "git push origin-2 x", False, True),
        ("git pu\\*", "git push", False, False),
    ],
)
def test_a_star_at_the_end_is_a_prefix_to_a_deny_rule_and_a_word_boundary_to_an_allow_rule(
    tmp_path: Path, pattern: str, command: str, allowed: bool, denied: bool
):
    rule = f"Bash({pattern})"
    assert decide_command(create_engine(tmp_path, allow=rule), command) == ("allow" if allowed else "ask")
    expected = "deny" if denied else "allow"
    assert decide_command(create_engine(tmp_path, deny=rule, allow="Bash"), command) == expected
