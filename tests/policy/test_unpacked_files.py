"""No allow rule covers protected files that a command brings in: from an archive, a patch or a directory."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from permission_helpers import create_engine, decide_command

RULES = ",".join(
    f"Bash({name}:*)" for name in ("tar", "unzip", "patch", "git apply", "cp", "rsync", "7z", "mkdir")
)
PATCH = "--- a/{0}\n+++ b/{0}\n@@ -0,0 +1 @@\n+x\n"


def create_tar(file: Path, *names: str, link: tuple[str, str] | None = None) -> None:
    with tarfile.open(file, "w:gz") as archive:
        if link is not None:
            member = tarfile.TarInfo(link[0])
            member.type, member.linkname = tarfile.SYMTYPE, link[1]
            archive.addfile(member)
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 1
            archive.addfile(member, io.BytesIO(b"x"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    create_tar(tmp_path / "good.tgz", "src/a.py", "docs/b.md")
    create_tar(tmp_path / "bad.tgz", "src/a.py", ".git/hooks/pre-commit")
    create_tar(tmp_path / "nested.tgz", "pkg/.claude/settings.json")
    create_tar(tmp_path / "behind.tgz", "l/hooks/pre-commit", link=("l", ".git"))
    for name, member in (("good.zip", "src/a.py"), ("bad.zip", ".envrc")):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr(member, "x")
    with zipfile.ZipFile(tmp_path / "link.zip", "w") as archive:
        info = zipfile.ZipInfo("l")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, ".git")
    (tmp_path / "broken.tgz").write_text("x")
    (tmp_path / "many.diff").write_text(PATCH.format("src/a.py") + PATCH.format(".envrc"))
    (tmp_path / "good.diff").write_text(PATCH.format("src/a.py"))
    (tmp_path / "bad.diff").write_text(PATCH.format(".husky/pre-commit"))
    for name in ("tree/src/a.py", "evil/.vscode/tasks.json"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("x")
    return tmp_path


@pytest.mark.parametrize(
    "command",
    ["tar xzf bad.tgz", "tar -xzf bad.tgz -C .", "tar --extract --file=bad.tgz", "tar xf nested.tgz",
     "tar xzf nested.tgz --strip-components=1", "tar xf behind.tgz",
     "tar xz < bad.tgz", "tar xf - < good.tgz", "tar xPf good.tgz", "tar xf good.tgz --transform s/a/b/",
     "tar -xf bad.tgz", "tar -x -f bad.tgz", "tar --get -f bad.tgz", "tar --extract --file bad.tgz",
     "tar zfx bad.tgz", "tar -C src -xf good.tgz -P", "tar --directory src -xf bad.tgz", "tar xf", "tar -x",
     "tar -xfbad.tgz", "tar -zxfbad.tgz", "tar -xf./bad.tgz", "tar -f bad.tgz -x", "tar -fbad.tgz -x",
     "tar -xvf bad.tgz .git", "tar xf good.tgz $x", "tar $x good.tgz", "bsdtar xf bad.tgz",
     "tar xf broken.tgz", "tar --ge -f bad.tgz",
     "unzip bad.zip", "unzip -o bad", "unzip $x", "unzip link.zip",
     "7z x good.7z", "7za e a.7z", "unrar x a.rar", "cpio -i", "ar x a.a", "7z $x a.7z",
     "jar xf bad.zip", "jar -xf bad.zip", "jar --extract --file bad.zip", "jar xf $x",
     "python3 -m tarfile -e bad.tgz", "python3 -m zipfile --extract bad.zip .", "python3 -m zipfile -e",
     "patch", "patch -i", "patch -i bad.diff", "patch --input bad.diff", "patch --input=bad.diff",
     "git am bad.diff", "git apply many.diff", "git apply good.diff bad.diff", "git apply $x",
     "rsync -a h:tree/ src", "rsync -a --exclude=src evil/ src", "cp -r evil src",
     "patch -p1 < bad.diff", "patch -p1 -i bad.diff", "git apply bad.diff", "patch -p1",
     "cp -r evil/. .", "rsync -a evil/ .", "cp -a evil/. src", "cp bad.tgz x.tgz; tar xf x.tgz"],
)  # fmt: skip
@pytest.mark.parametrize("rules", [RULES, "Bash"])
def test_unpacking_protected_files_is_asked_despite_an_allow_rule(
    project: Path, command: str, rules: str
) -> None:
    assert decide_command(create_engine(project, allow=rules), command) == "ask"


def test_archives_that_are_too_large_to_be_read_are_asked_about(project: Path) -> None:
    engine = create_engine(project, allow="Bash")
    with (project / "good.zip").open("ab") as file:
        file.truncate(8_000_001)
    assert decide_command(engine, "unzip good.zip") == "ask"
    with (project / "good.diff").open("ab") as file:
        file.truncate(8_000_001)
    assert decide_command(engine, "patch < good.diff") == "ask"


@pytest.mark.parametrize(
    "command",
    ["tar xzf good.tgz", "tar xf good.tgz -C src", "tar xzf bad.tgz src/a.py", "unzip good.zip",
     "mkdir -p out && tar xf good.tgz -C out", "unzip -o good -d out", "patch -p1 < good.diff",
     "patch -p1 -i good.diff", "git apply good.diff", "cp -r tree/. src", "rsync -a tree/ src",
     "tar -x -f good.tgz", "tar -C src -xf good.tgz", "tar --directory src -xf good.tgz",
     "tar -xvf bad.tgz src/", "tar xf bad.tgz src", "tar xvf good.tgz src docs",
     "tar -cfx.tgz src",
     "unzip", "unzip -q good.zip", "jar xf good.zip", "jar tf bad.zip", "jar cf x.jar src",
     "python3 -m tarfile -e good.tgz", "python3 -m tarfile -l bad.tgz", "python3 -m zipfile -e good.zip .",
     "patch --input good.diff", "patch --input=good.diff", "git am good.diff",
     "rsync -a --exclude=.vscode evil/ src", "cp -r evil/x src", "unrar l a.rar", "7z l a.7z", "cpio -o",
     "ar t a.a",
     "tar czf x.tgz src", "tar tf bad.tgz", "tar xf missing.tgz", "unzip missing.zip"],
)  # fmt: skip
def test_unpacking_other_files_is_not_asked(project: Path, command: str) -> None:
    (project / "src").mkdir(exist_ok=True)
    engine = create_engine(project, "acceptEdits", allow="Bash")
    assert decide_command(engine, command) == "allow"
