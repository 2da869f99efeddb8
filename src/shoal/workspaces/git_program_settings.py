"""Settings in a repository's own git configuration that name programs, and harmless values for them.

An agent that writes in a checkout can write its configuration too. What the user configured for all
repositories (system and global scope) stays in effect.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

_USER_SCOPES = frozenset({"system", "global"})
_OWN_SCOPE = "command"
_TEXT_MERGE = "git merge-file --marker-size=%L %A %O %B"
"""The merge that git does without a driver; an empty driver would silently take one side."""
# By section and last word of the key. "*" stands for every section, and for every last word.
_HARMLESS_VALUES: Mapping[tuple[str, str], str] = {
    ("filter", "clean"): "",
    ("filter", "smudge"): "",
    ("filter", "process"): "",
    ("filter", "required"): "false",
    ("merge", "driver"): _TEXT_MERGE,
    ("diff", "external"): "true",
    ("diff", "command"): "true",
    ("diff", "textconv"): "cat",
    ("diff", "trustexitcode"): "false",
    ("core", "fsmonitor"): "false",
    ("core", "hookspath"): os.devnull,
    ("core", "pager"): "cat",
    ("core", "editor"): "true",
    ("core", "askpass"): "",
    ("core", "sshcommand"): "ssh",
    ("core", "alternaterefscommand"): "true",
    ("sequence", "editor"): "true",
    ("pager", "*"): "false",
    ("alias", "*"): "version",
    ("gpg", "program"): "false",
    ("gpg", "defaultkeycommand"): "false",
    ("gc", "recentobjectshook"): "true",
    ("remote", "uploadpack"): "git-upload-pack",
    ("remote", "receivepack"): "git-receive-pack",
    ("hook", "command"): "true",
    ("hook", "enabled"): "false",
    ("submodule", "update"): "none",
    ("uploadpack", "packobjectshook"): "",
    # Programs that the user's git-lfs would start.
    ("lfs", "path"): "false",
    ("lfs", "args"): "",
    ("lfs", "clean"): "cat",
    ("lfs", "smudge"): "cat",
    ("lfs", "standalonetransferagent"): "",
    # Programs of commands that Shoal does not run, and of sections that git gets later.
    ("*", "cmd"): "true",
    ("*", "command"): "true",
    ("*", "program"): "false",
}


_TOLERATED_DEFECTS = (
    *("badDate", "badDateOverflow", "badEmail", "badName", "badTimezone", "missingEmail"),
    *("missingNameBeforeEmail", "missingSpaceBeforeDate", "missingSpaceBeforeEmail", "zeroPaddedDate"),
    *("badFilemode", "zeroPaddedFilemode", "missingTaggerEntry", "badTagName", "nulInCommit"),
)
"""Defects of old commits, which many projects have and which harm nobody."""
CHECK_FETCHED_OBJECTS = (
    "fetch.fsckObjects=true",
    *(f"fetch.fsck.{name}=ignore" for name in _TOLERATED_DEFECTS),
)


class GitSetting(Struct, frozen=True):
    """One value of git's configuration. `key` has the section and the variable in lowercase."""

    scope: str
    key: str
    value: str

    @property
    def section(self) -> str:
        return self.key.partition(".")[0]

    @property
    def name(self) -> str:
        return self.key.rpartition(".")[2]

    @property
    def is_from_repository(self) -> bool:
        """True unless the user or Shoal set it; an unknown scope counts as the repository's."""
        return self.scope not in _USER_SCOPES and self.scope != _OWN_SCOPE


class GitProgramSettings(Struct, frozen=True, kw_only=True):
    """Settings that replace the programs of a repository."""

    replacements: tuple[tuple[str, str], ...] = ()
    """Key and value, in the order in which git must read them."""
    disabled_filters: tuple[str, ...] = ()
    """Filters of the repository without which its files are not usable."""


def parse_git_settings(listing: bytes) -> tuple[GitSetting, ...]:
    """Parse `git config --list --show-scope -z`. Raises `ValueError` if it has another form."""
    fields = [os.fsdecode(field) for field in listing.split(b"\0")]
    if fields.pop() or len(fields) % 2:
        raise ValueError("not a list of scopes and values")
    return tuple(
        GitSetting(scope, *_split_git_setting(text))
        for scope, text in zip(fields[::2], fields[1::2], strict=True)
    )


def replace_repository_programs(settings: Sequence[GitSetting]) -> GitProgramSettings:
    """Return settings with which git runs no program that the repository names."""
    own = [each for each in settings if each.is_from_repository]
    user = [each for each in settings if each.scope in _USER_SCOPES]
    user_values = {each.key: each.value for each in user}
    replacements: dict[str, str] = {}
    for each in own:
        harmless = _get_harmless_value(each)
        if harmless is not None:
            replacements[each.key] = user_values.get(each.key, harmless)
    helpers = _iter_credential_helpers(own, user)
    return GitProgramSettings(
        replacements=(*replacements.items(), *helpers),
        disabled_filters=tuple(sorted(_iter_disabled_filters(own, user_values))),
    )


def _get_harmless_value(setting: GitSetting) -> str | None:
    for key in ((setting.section, setting.name), (setting.section, "*"), ("*", setting.name)):
        if key in _HARMLESS_VALUES:
            return _HARMLESS_VALUES[key]
    return None


def _iter_credential_helpers(
    own: Sequence[GitSetting], user: Sequence[GitSetting]
) -> Iterator[tuple[str, str]]:
    """Yield the user's helpers after an empty one, which makes git forget those it read before."""
    if any(_is_credential_helper(each) for each in own):
        yield "credential.helper", ""
        yield from ((each.key, each.value) for each in user if _is_credential_helper(each))


def _is_credential_helper(setting: GitSetting) -> bool:
    return setting.section == "credential" and setting.name == "helper"


def _iter_disabled_filters(own: Sequence[GitSetting], user_values: Mapping[str, str]) -> Iterator[str]:
    for each in own:
        if each.section == "filter" and each.name == "required" and _is_git_true(each.value):
            prefix = each.key.removesuffix("required")
            if not any(f"{prefix}{name}" in user_values for name in ("process", "clean", "smudge")):
                yield prefix.removeprefix("filter.").removesuffix(".")


def _is_git_true(value: str) -> bool:
    """Return False only for words that git takes for false, so that an unknown word blocks."""
    return value.strip().lower() not in ("false", "no", "off", "0")


def _split_git_setting(text: str) -> tuple[str, str]:
    key, _, value = text.partition("\n")
    return key, value
