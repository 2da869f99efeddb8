"""Protected files that a command brings in without naming them: from archives, patches and directories."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from shoal.core.text.filenames import escape_filename
from shoal.policy.command_rules import skip_git_flags
from shoal.policy.policy_texts import format_policy_notice
from shoal.policy.protected_files import is_protected_path
from shoal.policy.shell.command_analysis import SimpleShellCommand
from shoal.policy.unreadable_files import get_program_name

_TARS = frozenset({"tar", "bsdtar", "gtar"})
_UNREADABLE_UNPACKERS = {
    **dict.fromkeys(("7z", "7za", "7zr", "7zz", "unrar", "rar"), re.compile("[xe]")),
    "cpio": re.compile(r"-[A-Za-z]*i[A-Za-z]*|--ex.*"),
    "pax": re.compile(r"-[A-Za-z]*r[A-Za-z]*"),
    "ar": re.compile(r"-?[A-Za-z]*x[A-Za-z]*"),
    "unar": re.compile(".*"),
}
"""Programs whose archives are not read, and the word with which they unpack one."""
_TAR_RENAMING = re.compile(r"--(?:tr|xf|one-top|to-c|abs|files-f|wild|rec).*|-[A-Za-z]*[PTs].*")
"""Flags with which tar writes other names than those in the archive, or outside its directory."""
_TAR_EXTRACTION = re.compile(r"-?[A-Za-z]*x[A-Za-z]*|-[^-fCbTXIgKNVLHF]*x.*|--ex.*|--ge.*", re.DOTALL)
"""Flags that unpack; a value may follow the letters, as in `-xfa.tar`, and others take it before."""
_PATCHED_FILE = re.compile(
    rb"^(?:\+\+\+|---|\*\*\*|rename to|rename from|copy to|diff --git|Index:) ([^\t\n]+)", re.MULTILINE
)
_OUTSIDE_FLAGS = {"unzip": re.compile(r"-[A-Za-z]*:.*"), "git": re.compile(r"--unsafe.*")}
"""Flags with which a program writes to paths outside the directory that it runs in."""
_MAX_ARCHIVE_BYTES = 8_000_000
_MAX_MEMBERS = 20_000


class _UnpackedArchive(Struct, frozen=True):
    """Archive that a command unpacks, if it is known before it runs; `only` are the members that it names."""

    path: str | None
    only: tuple[str, ...] = ()


def find_unpacking_objection(
    part: SimpleShellCommand, resolve: Callable[[str], tuple[str, bool]], *, are_files_final: bool
) -> str | None:
    """Return why a command must be asked that writes files it does not name, or None.

    Without `are_files_final`, other commands of the line may write the archive first. `resolve` raises
    `WorkspaceError`.
    """
    words = part.words or part.argv or ()
    name = get_program_name(words) if words else ""
    if name in ("cp", "rsync"):
        return _check_copied_directories(words, resolve)
    archive = _find_archive(name, words, part)
    if archive is None:
        return None
    outside = _OUTSIDE_FLAGS.get(name)
    if (outside is not None and any(map(outside.fullmatch, filter(None, words)))) or any(
        word and is_protected_path(f"/{word.strip('/')}") for word in words[4:] if name.startswith("python")
    ):
        return format_policy_notice("unclear_archive")
    if archive.path is None or not are_files_final or part.places != ("",):
        return format_policy_notice("unclear_archive")
    real, _ = resolve(archive.path)
    try:
        if name in ("patch", "git"):
            return _find_protected_name(_iter_patched_files(real))
        names, problem = _list_members(name, real)
    except FileNotFoundError:
        # The command fails.
        return None
    except (OSError, ValueError, EOFError, RuntimeError, ImportError):
        return format_policy_notice("unclear_archive")
    if archive.only:
        names = [each for each in names if f"{each}/".startswith(archive.only)]
    return problem or _find_protected_name(names)


def unpacks_files(part: SimpleShellCommand) -> bool:
    """Return True if a command writes files that an archive or patch names."""
    words = part.words or part.argv or ()
    return bool(words) and _find_archive(get_program_name(words), words, part) is not None


def _find_archive(
    name: str, words: Sequence[str | None], part: SimpleShellCommand
) -> _UnpackedArchive | None:
    """Return the archive or patch of a command, or None if it unpacks nothing."""
    if name in _TARS:
        return _find_tar_archive(words)
    if name == "unzip":
        operands = [word for word in words[1:] if word is None or not word.startswith("-")]
        return _UnpackedArchive(operands[0] if operands else None)
    if (sign := _UNREADABLE_UNPACKERS.get(name)) is not None:
        return (
            _UnpackedArchive(None)
            if any(word is None or sign.fullmatch(word) for word in words[1:])
            else None
        )
    if name == "jar" and any(
        word is None or re.fullmatch(r"-?[a-z]*x[a-z]*|--extract", word) for word in words[1:]
    ):
        return _UnpackedArchive(
            next((word for word in words[1:] if word and word.endswith((".jar", ".zip"))), None)
        )
    if name.startswith("python") and words[1:2] == ("-m",) and words[2:3] in (("tarfile",), ("zipfile",)):
        extracts = any(word is None or word.startswith(("-e", "--e")) for word in words[3:])
        return _UnpackedArchive(words[4] if len(words) > 4 else None) if extracts else None
    if name == "patch":
        return _UnpackedArchive(part.reads[0] if len(part.reads) == 1 else _find_patch_file(words))
    if name == "git" and not {"apply", "am"}.isdisjoint((*words[1:5], *skip_git_flags(tuple(words))[1:2])):
        files = [word for word in words[2:] if word is None or not word.startswith("-")]
        return _UnpackedArchive(files[0] if len(files) == 1 and not part.reads else None)
    return None


def _find_tar_archive(words: Sequence[str | None]) -> _UnpackedArchive | None:
    bundle = words[1] if len(words) > 1 else None
    options = [word for word in words[1:] if word is None or word.startswith("-")]
    if bundle is not None and not bundle.startswith("-"):
        options = [f"-{bundle}", *options]
    if not any(word is None or _TAR_EXTRACTION.fullmatch(word) for word in options):
        return None
    if None in words or any(_TAR_RENAMING.fullmatch(word or "") for word in options):
        return _UnpackedArchive(None)
    known = [word or "" for word in words]
    path: str | None = None
    operands: list[str] = []
    index = 1
    while index < len(known):
        word = known[index]
        index += 1
        is_bundle = word == bundle and index == 2
        if word.startswith("--file="):
            path = word.partition("=")[2]
        elif word == "--file" or ((is_bundle or word[:1] == "-") and word[:2] != "--" and word.endswith("f")):
            path = known[index] if index < len(known) else None
            index += 1
        elif word in ("-C", "--directory"):
            index += 1
        elif word[:1] != "-" and not is_bundle:
            operands.append(word)
        elif word[:2] != "--" and "f" in word:
            return _UnpackedArchive(None)
    return _UnpackedArchive(path if path != "-" else None, tuple(f"{each.rstrip('/')}/" for each in operands))


def _find_patch_file(words: Sequence[str | None]) -> str | None:
    for index, word in enumerate(words):
        if word in ("-i", "--input"):
            return words[index + 1] if index + 1 < len(words) else None
        if word and word.startswith("--input="):
            return word.partition("=")[2]
    return None


def _list_members(name: str, path: str) -> tuple[list[str], str | None]:
    """Return the names in an archive, and an objection to all of it."""
    file = Path(path)
    if name == "unzip" and not file.exists():
        file = file.with_name(f"{file.name}.zip")
    if file.stat().st_size > _MAX_ARCHIVE_BYTES:
        return [], format_policy_notice("large_archive")
    return _list_tar_members(file) if name in _TARS else _list_other_members(file)


def _list_other_members(file: Path) -> tuple[list[str], str | None]:
    import zipfile

    if not zipfile.is_zipfile(file):
        return _list_tar_members(file)
    with zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
    if len(infos) > _MAX_MEMBERS:
        return [], format_policy_notice("large_archive")
    has_links = any(info.external_attr >> 28 == 0o12 for info in infos)
    return [info.filename for info in infos], format_policy_notice("unclear_archive") if has_links else None


def _list_tar_members(file: Path) -> tuple[list[str], str | None]:
    import tarfile

    names: list[str] = []
    links: list[str] = []
    try:
        with tarfile.open(file) as archive:
            for member in archive:
                names.append(member.name)
                if member.issym() or member.islnk():
                    links.append(f"{member.name}/")
                    names.append(os.path.normpath(f"{member.name.rpartition('/')[0]}/{member.linkname}"))
                if len(names) > _MAX_MEMBERS:
                    return [], format_policy_notice("large_archive")
    except tarfile.TarError:
        return [], format_policy_notice("unclear_archive")
    # A file behind a link of the archive is written to the target of the link.
    is_behind_link = bool(links) and any(name.startswith(tuple(links)) for name in names)
    return names, format_policy_notice("unclear_archive") if is_behind_link else None


def _iter_patched_files(path: str) -> Iterator[str]:
    file = Path(path)
    if file.stat().st_size > _MAX_ARCHIVE_BYTES:
        raise ValueError(file)
    for match in _PATCHED_FILE.finditer(file.read_bytes()):
        for word in os.fsdecode(match[1]).split():
            yield word.strip('"')


def _find_protected_name(names: Iterable[str]) -> str | None:
    for name in names:
        steps = name.replace("\\", "/").split("/")
        if is_protected_path(f"/{'/'.join(step for step in steps if step not in ('', '.'))}"):
            return format_policy_notice("protected_member", path=escape_filename(name[:200]))
    return None


def _check_copied_directories(
    words: Sequence[str | None], resolve: Callable[[str], tuple[str, bool]]
) -> str | None:
    """Return why a copy of directories must be asked: there are protected files in one of them."""
    operands = [word for word in words[1:] if word is not None and not word.startswith("-")]
    excluded = frozenset(
        word.partition("=")[2].strip("/") for word in words[1:] if word and "exclude=" in word
    )
    for operand in operands[:-1]:
        if ":" in operand.partition("/")[0]:
            return format_policy_notice("unclear_archive")
        real, is_directory = resolve(operand)
        if is_directory and (objection := _find_protected_file_below(real, excluded)) is not None:
            return objection
    return None


def _find_protected_file_below(directory: str, excluded: frozenset[str]) -> str | None:
    count = 0
    for parent, names, files in os.walk(directory):
        names[:] = [name for name in names if name not in excluded]
        count += len(names) + len(files)
        if count > _MAX_MEMBERS:
            return format_policy_notice("large_copy")
        below = parent[len(directory) :]
        if objection := _find_protected_name(
            f"{below}/{name}" for name in (*names, *files) if name not in excluded
        ):
            return objection
    return None
