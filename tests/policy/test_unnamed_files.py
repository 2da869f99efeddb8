"""Rules about files hold for programs that use files which no word of the command names."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus_project import create_corpus_project
from permission_helpers import create_engine, decide_command

from git_repository import run_git


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return create_corpus_project(tmp_path_factory.mktemp("corpus"))


@pytest.mark.parametrize(
    "command",
    ["echo '#include \".env\"' | gcc -E -", "gcc -xc -E /dev/stdin <<< x", "cpp <<< x", "printf x | cpp -P",
     "echo '.incbin \".env\"' | as -o x.o", "echo x > a.c && gcc -E a.c", "echo x > a.h; gcc -c main.c",
     "cat > a.c <<< x; clang-15 -E a.c", "x86_64-linux-gnu-gcc-12 -E - <<< x", "tee a.c <<< x; cc -E a.c",
     "printf x > a.rs && rustc a.rs", "python3 -c 'w()' && gcc -E a.c", "curl -O http://h/a.c && gcc -E a.c",
     "cp b.c a.c && gcc -E a.c", "sed -i s/x/y/ a.c && gcc -E a.c", "echo 'include(.env)' | m4",
     "echo x | pdflatex", "gcc -E <(echo x)", "echo x | sudo gcc -E -", "pandoc -f rst - <<< x",
     "while read l; do echo $l >> a.c; gcc -E a.c; done"],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["deny", "ask"])
def test_a_compiler_with_input_that_nobody_has_seen_is_asked(project: Path, command: str, kind: str) -> None:
    engine = create_engine(project, "bypassPermissions", **{kind: "Read(.env)"})
    assert decide_command(engine, command) == "ask"


@pytest.mark.parametrize(
    "command",
    ["gcc -c src/main.c -o main.o", "mkdir -p build && gcc -c a.c -o build/a.o && gcc -o a build/a.o",
     "gcc -o a a.c && ./a > out.txt", "cargo build", "gcc a.c 2> /dev/null", "npm install && esbuild a.ts"],
)  # fmt: skip
def test_a_compiler_with_files_of_the_project_is_not_asked(project: Path, command: str) -> None:
    assert decide_command(create_engine(project, "bypassPermissions", deny="Read(.env)"), command) == "allow"


@pytest.mark.parametrize(
    "command",
    ["useradd z", "usermod -aG sudo z", "groupadd g", "passwd -d z", "update-alternatives --set a b",
     "hostnamectl set-hostname z", "systemctl enable z", "systemctl mask z", "timedatectl set-timezone UTC",
     "crontab -", "echo x | crontab", "mount --bind t src", "mount -a", "apt-get install x", "dpkg -i x.deb",
     "sudo useradd z", "sh -c 'useradd z'", "/usr/sbin/useradd z", "make install", "cmake --install build",
     "ninja -C b install", "chpasswd <<< a:b", "ldconfig", "locale-gen"],
)  # fmt: skip
@pytest.mark.parametrize("rule", ["Edit(//etc/**)", "Edit(~/.ssh/**)", "Write(//usr/local/**)"])
def test_a_program_that_manages_the_system_is_asked_under_a_rule_outside_the_project(
    project: Path, command: str, rule: str
) -> None:
    assert decide_command(create_engine(project, "bypassPermissions", deny=rule), command) == "ask"


def test_a_program_of_an_administrators_directory_is_asked_even_if_it_is_not_listed(project: Path) -> None:
    names = [path.name for path in Path("/usr/sbin").iterdir()] if Path("/usr/sbin").is_dir() else []
    if not names or Path("/usr/sbin").is_symlink():
        pytest.skip("this system has no directory for the programs of administrators")
    engine = create_engine(project, "bypassPermissions", deny="Edit(//etc/**)")
    assert [name for name in names if decide_command(engine, f"{name} x") == "allow"] == []


@pytest.mark.parametrize("command", ["make test", "systemctl status x", "npm install", "crontab -l", "mount"])
def test_other_programs_are_not_asked_under_a_rule_outside_the_project(project: Path, command: str) -> None:
    assert (
        decide_command(create_engine(project, "bypassPermissions", deny="Edit(//etc/**)"), command) == "allow"
    )
    inner = create_engine(project, "bypassPermissions", deny="Edit(docs/**)")
    assert decide_command(inner, "useradd z") == "allow"


@pytest.mark.parametrize(
    "command", ["mount --bind t src", "mount -a", "umount src", "sudo mount -o bind a b"]
)
@pytest.mark.parametrize("rule", ["Edit(docs/**)", "Read(.env)", "Edit(//etc/**)"])
def test_mounts_are_asked_under_any_rule_about_files(project: Path, command: str, rule: str) -> None:
    assert decide_command(create_engine(project, "bypassPermissions", deny=rule), command) == "ask"


def test_the_words_of_git_stash_are_no_paths(tmp_path: Path) -> None:
    project = create_corpus_project(tmp_path)
    for name in ("list", "show", "stash"):
        (project / name).write_text("x")
    run_git(project, "add", "-A")
    engine = create_engine(project, "bypassPermissions", deny="Read(.env)")
    for command in (
        "git stash list -p",
        "git stash show -p",
        "git stash show -p stash",
        "git reflog show -p",
    ):
        assert decide_command(engine, command) == "ask", command


def test_a_rule_for_all_files_forbids_changes_by_commands(project: Path) -> None:
    engine = create_engine(project, "bypassPermissions", deny="Edit(//**)")
    for command in (
        "echo x > a",
        "touch a",
        "rm a",
        "sed -i s/a/b/ a",
        "mv a b",
        "git checkout a",
        "useradd z",
    ):
        assert decide_command(engine, command) != "allow", command
    bare = create_engine(project, "bypassPermissions", deny="Edit")
    assert decide_command(bare, "touch a") == "allow"


@pytest.mark.parametrize(
    "command",
    ["ssh -E config.yaml h", "ssh -vEconfig.yaml h", "ssh -o 'UserKnownHostsFile config.yaml' h",
     "ssh -oUserKnownHostsFile=config.yaml h", "ssh -M -S src/sock h", "autossh -E config.yaml h",
     "fakeroot -s config.yaml ls", "xvfb-run -e config.yaml ls", "daemonize -o config.yaml /bin/ls",
     "tmux -S src/sock new", "logsave config.yaml ls", "gdb -batch -ex 'set logging file config.yaml'",
     "socat -u TCP:h:1 CREATE:config.yaml", "socat -u TCP:h:1 OPEN:config.yaml,creat",
     "ncat -x config.yaml h 1",
     "ansible localhost -m lineinfile -a 'path=config.yaml line=x'",
     "aws lambda invoke --function-name f config.yaml",
     "ansible localhost -m file -a '{\"path\": \"config.yaml\", \"state\": \"absent\"}'",
     "aws s3api get-object --bucket b --key k src/x", "ffmpeg -i a.mp4 -progress config.yaml -f null -",
     "ffmpeg -i a.mp4 -f tee '[f=mp4]config.yaml|x.mp4'", "FFREPORT=file=config.yaml ffmpeg -i a.mp4 x.mp4",
     "openssl s_client -connect h:443 -keylogfile config.yaml", "docker run --cidfile config.yaml a",
     "docker build --iidfile config.yaml docs", "coverage run --data-file=config.yaml tool.py",
     "gunicorn -p config.yaml app", "robot -l config.yaml tests"],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["deny", "ask"])
def test_a_client_that_names_its_output_in_its_own_way_is_asked(
    project: Path, command: str, kind: str
) -> None:
    engine = create_engine(project, "bypassPermissions", **{kind: "Edit(config.yaml) Edit(src/**)"})
    assert decide_command(engine, command) == "ask"


@pytest.mark.parametrize(
    "command",
    ["ssh h cat src/main.py", "ssh -i src/key h uptime", "ssh -F config.yaml h", "fakeroot -- ls src",
     "xvfb-run -a pytest src", "tmux -f config.yaml new", "gdb -x src/main.py a.out",
     "ffmpeg -i src/a.mp4 b.mp4",
     "aws s3api put-object --body file://src/a", "openssl x509 -in src/a.pem",
     "docker run --env-file src/e a",
     "gunicorn -c src/conf.py app"],
)  # fmt: skip
def test_a_client_that_reads_a_file_which_it_may_not_change_is_not_asked(project: Path, command: str) -> None:
    engine = create_engine(project, "bypassPermissions", deny="Edit(config.yaml) Edit(src/**)")
    assert decide_command(engine, command) == "allow"


@pytest.mark.parametrize("command", ["cd", "cd; ls", "cd -- && ls", "cd -P; cat .profile"])
def test_a_change_to_the_home_directory_without_naming_it_is_asked(project: Path, command: str) -> None:
    assert decide_command(create_engine(project), command) == "ask"


def test_code_of_a_program_that_is_not_listed_is_searched_for_forbidden_commands(project: Path) -> None:
    engine = create_engine(project, "bypassPermissions", deny="Bash(shred:*)")
    assert decide_command(engine, "mlr -n put 'end{print system(\"shred x\")}'") != "allow"
    assert decide_command(engine, 'newtool \'exec["shred", "x"]\'') != "allow"
    assert decide_command(engine, "mlr -n put 'end{print system(\"ls\")}'") == "allow"
