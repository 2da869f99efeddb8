"""Expansion of one found command: itself, the command behind a wrapper, or a script in its words."""

from __future__ import annotations

from typing import Protocol, cast

from msgspec import Struct
from msgspec.structs import replace

from shoal.policy.shell.command_judge import judge_shell_command
from shoal.policy.shell.known_commands import HARMLESS_VARIABLES, RESERVED_WORDS, STATE_CHANGING_BUILTINS
from shoal.policy.shell.shell_directories import PossibleShellDirectories
from shoal.policy.shell.shell_syntax import UnjudgeableShellCommandError
from shoal.policy.shell.shell_words import ShellWord
from shoal.policy.shell.simple_commands import SimpleShellCommand
from shoal.policy.shell.wrapper_commands import (
    SHELLS,
    WRAPPERS,
    get_shell_dash_c_script,
    parse_find_exec_commands,
    unwrap_command,
)

_MAX_WRAPPING = 12
_SYSTEM_DIRECTORIES = ("/bin/", "/usr/bin/")


class UnexpandedShellCommand(Struct, frozen=True, kw_only=True):
    """Simple command as found by the walk: its words, variables set for it, and redirections."""

    text: str
    words: tuple[ShellWord, ...]
    via: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    """Those of `writes` that its arguments name."""


class ShellSyntaxWalkState(Protocol):
    parts: list[SimpleShellCommand]
    directories: PossibleShellDirectories
    repeated: int
    """Number of enclosing loops and functions, whose commands may run any number of times."""
    trapped: bool
    """True if a trap was set; its command was judged from the directory at that time."""

    def walk_script(self, text: str, via: tuple[str, ...] = ()) -> None: ...


def expand_found_command(found: UnexpandedShellCommand, walk: ShellSyntaxWalkState) -> None:
    """Add the simple commands that a found command leads to."""
    if len(found.via) > _MAX_WRAPPING:
        raise UnjudgeableShellCommandError("commands are wrapped too deeply")
    if not found.words:
        _append_simple_command(
            found,
            walk,
            read_only=not found.sets,
            reason="it redirects" if not found.sets else "it sets variables",
        )
        return
    name = _get_command_name(found.words[0])
    if name is None:
        _append_simple_command(
            found, walk, read_only=False, reason="its name is only known when it runs", doubt=True
        )
    elif name in RESERVED_WORDS and name != "[[":
        raise UnjudgeableShellCommandError(f"{name} is a construct that is not judged")
    elif name in STATE_CHANGING_BUILTINS:
        raise UnjudgeableShellCommandError(f"{name} changes what later words mean")
    elif name in WRAPPERS:
        _expand_wrapper_command(name, found, walk)
    elif name in SHELLS:
        _expand_shell_invocation(name, found, walk)
    elif name in ("eval", "trap"):
        _expand_eval_or_trap_command(name, found, walk)
    else:
        _expand_plain_command(name, found, walk)


def _get_command_name(word: ShellWord) -> str | None:
    name = word.value
    if name is not None and name.startswith(_SYSTEM_DIRECTORIES):
        return name.rpartition("/")[2] if name.count("/") == (2 if name.startswith("/bin/") else 3) else name
    return name


def _expand_plain_command(name: str, found: UnexpandedShellCommand, walk: ShellSyntaxWalkState) -> None:
    rest = found.words[1:]
    if name in ("cd", "pushd", "popd", "chdir") and (walk.repeated or walk.trapped):
        when = "again and again" if walk.repeated else "under a trap, which runs later"
        raise UnjudgeableShellCommandError(f"it changes the directory {when}")
    if name == "cd":
        _expand_cd_command(found, walk)
        return
    if name in ("pushd", "popd", "chdir"):
        walk.directories.add_cd_target(ShellWord(None))
    if name == "[[":
        _append_simple_command(found, walk, read_only=True, reason="it only compares")
        return
    verdict = judge_shell_command(name, rest, moved=walk.directories.may_have_moved)
    if verdict.reads or verdict.writes:
        changes = walk.directories.resolve_paths(verdict.writes)
        found = UnexpandedShellCommand(
            text=found.text,
            words=found.words,
            via=found.via,
            sets=found.sets,
            reads=(*found.reads, *walk.directories.resolve_paths(verdict.reads)),
            writes=(*found.writes, *changes),
            changes=changes,
        )
    _append_simple_command(
        found, walk, read_only=verdict.read_only, reason=verdict.why, doubt=bool(verdict.doubt)
    )
    if name == "find":
        for command in parse_find_exec_commands(rest):
            expand_found_command(
                UnexpandedShellCommand(
                    text=found.text, words=command, via=(*found.via, "find"), sets=found.sets
                ),
                walk,
            )


def _expand_cd_command(found: UnexpandedShellCommand, walk: ShellSyntaxWalkState) -> None:
    operands = [word for word in found.words[1:] if word.value not in ("-L", "-P", "--")]
    is_plain = len(operands) <= 1 and not any(word.many or word.may_be_flag for word in operands)
    reads = (
        walk.directories.resolve_paths(operands)
        if is_plain
        else walk.directories.resolve_paths((ShellWord(None),))
    )
    walk.directories.add_cd_target((operands[0] if operands else None) if is_plain else ShellWord(None))
    _append_simple_command(
        replace(found, reads=(*found.reads, *reads)),
        walk,
        read_only=is_plain,
        reason="it changes the directory",
    )


def _expand_wrapper_command(name: str, found: UnexpandedShellCommand, walk: ShellSyntaxWalkState) -> None:
    rest = found.words[1:]
    if name == "command" and rest and rest[0].value in ("-v", "-V"):
        _append_simple_command(found, walk, read_only=True, reason="it only tells where a command is")
        return
    inner = unwrap_command(name, rest)
    if inner.trouble:
        _append_simple_command(found, walk, read_only=False, reason=inner.trouble, doubt=True)
        _append_unknown_command(name, found, walk)
        return
    if not inner.words:
        _append_simple_command(
            found, walk, read_only=name in ("exec", "time"), reason=f"{name} without a command"
        )
        return
    if WRAPPERS[name].rights:
        _append_simple_command(found, walk, read_only=False, reason=f"{name} runs it with other rights")
    inner_found = replace(found, words=inner.words, via=(*found.via, name), sets=(*found.sets, *inner.sets))
    if name == "exec" and inner.words[0].value is None and inner.words[0].many:
        _append_simple_command(
            found, walk, read_only=False, reason="its name is only known when it runs", doubt=True
        )
        return
    expand_found_command(inner_found, walk)


def _expand_shell_invocation(name: str, found: UnexpandedShellCommand, walk: ShellSyntaxWalkState) -> None:
    script = get_shell_dash_c_script(found.words[1:])
    if script is None or script.value is None or found.sets:
        verdict = judge_shell_command(name, found.words[1:], moved=False)
        has_script_flag = any(_is_script_flag(word) for word in found.words[1:])
        _append_simple_command(
            found,
            walk,
            read_only=verdict.read_only,
            reason=f"{name} runs a script that is not seen",
            doubt=has_script_flag,
        )
        if has_script_flag:
            _append_unknown_command(name, found, walk)
        return
    if found.reads or found.writes:
        _append_simple_command(replace(found, words=()), walk, read_only=True, reason="it redirects")
    saved_directories = PossibleShellDirectories(walk.directories.candidates)
    walk.walk_script(script.value, (*found.via, name))
    walk.directories = saved_directories


def _is_script_flag(word: ShellWord) -> bool:
    return word.value is None or (word.value.startswith("-") and "c" in word.value)


def _expand_eval_or_trap_command(
    name: str, found: UnexpandedShellCommand, walk: ShellSyntaxWalkState
) -> None:
    rest = found.words[1:]
    values = [word.value for word in rest]
    if name == "trap":
        values = values[:1]
    if not values or None in values or any(word.many for word in rest) or found.sets:
        _append_simple_command(
            found,
            walk,
            read_only=False,
            reason=f"{name} runs text that is only known when it runs",
            doubt=True,
        )
        _append_unknown_command(name, found, walk)
        return
    if found.reads or found.writes:
        _append_simple_command(replace(found, words=()), walk, read_only=True, reason="it redirects")
    walk.trapped = walk.trapped or name == "trap"
    walk.walk_script(" ".join(value for value in values if value is not None), (*found.via, name))


def _append_unknown_command(name: str, found: UnexpandedShellCommand, walk: ShellSyntaxWalkState) -> None:
    """Add a placeholder for an unknown inner command, which a rule may forbid."""
    unknown = UnexpandedShellCommand(
        text=found.text, words=(ShellWord(None),), via=(*found.via, name), sets=found.sets
    )
    _append_simple_command(
        unknown, walk, read_only=False, reason=f"what {name} runs is only known when it runs", doubt=True
    )


def _append_simple_command(
    found: UnexpandedShellCommand,
    walk: ShellSyntaxWalkState,
    *,
    read_only: bool,
    reason: str,
    doubt: bool = False,
) -> None:
    words = tuple([word.value if word.value is not None else _get_glob_text(word) for word in found.words])
    argv = None if doubt else _return_words_if_all_known(words)
    if found.sets:
        risky_variables = [name for name in found.sets if name not in HARMLESS_VARIABLES]
        if risky_variables:
            argv, read_only, reason = None, False, f"it is given {risky_variables[0]}, which it may obey"
    walk.parts.append(
        SimpleShellCommand(
            text=found.text,
            argv=argv,
            via=found.via,
            reads=found.reads,
            writes=found.writes,
            changes=found.changes,
            read_only=read_only,
            why=reason,
            words=words,
        )
    )


def _return_words_if_all_known(words: tuple[str | None, ...]) -> tuple[str, ...] | None:
    return None if None in words else cast("tuple[str, ...]", words)


def _get_glob_text(word: ShellWord) -> str | None:
    """Return a glob's own text if it can be neither a flag nor the command name."""
    return word.pattern if word.prefix and not word.may_be_flag else None
