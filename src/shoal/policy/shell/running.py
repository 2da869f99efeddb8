"""Expansion of one found command: itself, the command behind a wrapper, or a script in its words."""

from __future__ import annotations

from typing import Protocol, cast

from msgspec import Struct
from msgspec.structs import replace

from shoal.policy.shell.commands import verdict_on
from shoal.policy.shell.known import HARMLESS_VARIABLES, RESERVED, STATE_CHANGERS
from shoal.policy.shell.parts import Part
from shoal.policy.shell.places import Places
from shoal.policy.shell.syntax import Unjudgeable
from shoal.policy.shell.words import Word
from shoal.policy.shell.wrappers import SHELLS, WRAPPERS, found_commands, shell_script, unwrapped

_DEEPEST_WRAPPING = 12
_SYSTEM = ("/bin/", "/usr/bin/")


class Found(Struct, frozen=True, kw_only=True):
    """Simple command as found by the walk: its words, variables set for it, and redirections."""

    text: str
    words: tuple[Word, ...]
    via: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    """Those of `writes` that its arguments name."""


class Walking(Protocol):
    parts: list[Part]
    places: Places
    repeated: int
    """Number of enclosing loops and functions, whose commands may run any number of times."""
    trapped: bool
    """True if a trap was set; its command was judged from the directory at that time."""

    def script(self, text: str, via: tuple[str, ...] = ()) -> None: ...


def run(found: Found, walk: Walking) -> None:
    """Add the simple commands that a found command leads to."""
    if len(found.via) > _DEEPEST_WRAPPING:
        raise Unjudgeable("commands are wrapped too deeply")
    if not found.words:
        _add(
            found,
            walk,
            read_only=not found.sets,
            why="it redirects" if not found.sets else "it sets variables",
        )
        return
    name = _name(found.words[0])
    if name is None:
        _add(found, walk, read_only=False, why="its name is only known when it runs", doubt=True)
    elif name in RESERVED and name != "[[":
        raise Unjudgeable(f"{name} is a construct that is not judged")
    elif name in STATE_CHANGERS:
        raise Unjudgeable(f"{name} changes what later words mean")
    elif name in WRAPPERS:
        _run_wrapper(name, found, walk)
    elif name in SHELLS:
        _run_shell(name, found, walk)
    elif name in ("eval", "trap"):
        _run_text(name, found, walk)
    else:
        _run_plain(name, found, walk)


def _name(word: Word) -> str | None:
    name = word.value
    if name is not None and name.startswith(_SYSTEM):
        return name.rpartition("/")[2] if name.count("/") == (2 if name.startswith("/bin/") else 3) else name
    return name


def _run_plain(name: str, found: Found, walk: Walking) -> None:
    rest = found.words[1:]
    if name in ("cd", "pushd", "popd", "chdir") and (walk.repeated or walk.trapped):
        again = "again and again" if walk.repeated else "under a trap, which runs later"
        raise Unjudgeable(f"it changes the directory {again}")
    if name == "cd":
        _change_directory(found, walk)
        return
    if name in ("pushd", "popd", "chdir"):
        walk.places.move(Word(None))
    if name == "[[":
        _add(found, walk, read_only=True, why="it only compares")
        return
    verdict = verdict_on(name, rest, moved=walk.places.moved)
    if verdict.reads or verdict.writes:
        changes = walk.places.paths(verdict.writes)
        found = Found(
            text=found.text,
            words=found.words,
            via=found.via,
            sets=found.sets,
            reads=(*found.reads, *walk.places.paths(verdict.reads)),
            writes=(*found.writes, *changes),
            changes=changes,
        )
    _add(found, walk, read_only=verdict.read_only, why=verdict.why, doubt=bool(verdict.doubt))
    if name == "find":
        for command in found_commands(rest):
            run(Found(text=found.text, words=command, via=(*found.via, "find"), sets=found.sets), walk)


def _change_directory(found: Found, walk: Walking) -> None:
    operands = [word for word in found.words[1:] if word.value not in ("-L", "-P", "--")]
    plain = len(operands) <= 1 and not any(word.many or word.may_be_flag for word in operands)
    reads = walk.places.paths(operands) if plain else walk.places.paths((Word(None),))
    walk.places.move((operands[0] if operands else None) if plain else Word(None))
    _add(replace(found, reads=(*found.reads, *reads)), walk, read_only=plain, why="it changes the directory")


def _run_wrapper(name: str, found: Found, walk: Walking) -> None:
    rest = found.words[1:]
    if name == "command" and rest and rest[0].value in ("-v", "-V"):
        _add(found, walk, read_only=True, why="it only tells where a command is")
        return
    inner = unwrapped(name, rest)
    if inner.trouble:
        _add(found, walk, read_only=False, why=inner.trouble, doubt=True)
        _add_unseen(name, found, walk)
        return
    if not inner.words:
        _add(found, walk, read_only=name in ("exec", "time"), why=f"{name} without a command")
        return
    if WRAPPERS[name].rights:
        _add(found, walk, read_only=False, why=f"{name} runs it with other rights")
    behind = replace(found, words=inner.words, via=(*found.via, name), sets=(*found.sets, *inner.sets))
    if name == "exec" and inner.words[0].value is None and inner.words[0].many:
        _add(found, walk, read_only=False, why="its name is only known when it runs", doubt=True)
        return
    run(behind, walk)


def _run_shell(name: str, found: Found, walk: Walking) -> None:
    script = shell_script(found.words[1:])
    if script is None or script.value is None or found.sets:
        verdict = verdict_on(name, found.words[1:], moved=False)
        opaque = any(_is_script_flag(word) for word in found.words[1:])
        _add(
            found,
            walk,
            read_only=verdict.read_only,
            why=f"{name} runs a script that is not seen",
            doubt=opaque,
        )
        if opaque:
            _add_unseen(name, found, walk)
        return
    if found.reads or found.writes:
        _add(replace(found, words=()), walk, read_only=True, why="it redirects")
    kept = Places(walk.places.known)
    walk.script(script.value, (*found.via, name))
    walk.places = kept


def _is_script_flag(word: Word) -> bool:
    return word.value is None or (word.value.startswith("-") and "c" in word.value)


def _run_text(name: str, found: Found, walk: Walking) -> None:
    rest = found.words[1:]
    values = [word.value for word in rest]
    if name == "trap":
        values = values[:1]
    if not values or None in values or any(word.many for word in rest) or found.sets:
        _add(
            found, walk, read_only=False, why=f"{name} runs text that is only known when it runs", doubt=True
        )
        _add_unseen(name, found, walk)
        return
    if found.reads or found.writes:
        _add(replace(found, words=()), walk, read_only=True, why="it redirects")
    walk.trapped = walk.trapped or name == "trap"
    walk.script(" ".join(value for value in values if value is not None), (*found.via, name))


def _add_unseen(name: str, found: Found, walk: Walking) -> None:
    """Add a placeholder for an unknown inner command, which a rule may forbid."""
    unseen = Found(text=found.text, words=(Word(None),), via=(*found.via, name), sets=found.sets)
    _add(unseen, walk, read_only=False, why=f"what {name} runs is only known when it runs", doubt=True)


def _add(found: Found, walk: Walking, *, read_only: bool, why: str, doubt: bool = False) -> None:
    words = tuple([word.value if word.value is not None else _shown(word) for word in found.words])
    argv = None if doubt else _all_known(words)
    if found.sets:
        risky = [name for name in found.sets if name not in HARMLESS_VARIABLES]
        if risky:
            argv, read_only, why = None, False, f"it is given {risky[0]}, which it may obey"
    walk.parts.append(
        Part(
            text=found.text,
            argv=argv,
            via=found.via,
            reads=found.reads,
            writes=found.writes,
            changes=found.changes,
            read_only=read_only,
            why=why,
            words=words,
        )
    )


def _all_known(words: tuple[str | None, ...]) -> tuple[str, ...] | None:
    return None if None in words else cast("tuple[str, ...]", words)


def _shown(word: Word) -> str | None:
    """Return a glob's own text if it can be neither a flag nor the command name."""
    return word.pattern if word.prefix and not word.may_be_flag else None
