"""Rules about shell commands, matched against the simple commands that a command line runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import accumulate, pairwise
from operator import or_
from typing import TYPE_CHECKING, Literal, TypeAlias

from shoal.policy.permission_rules import ToolPermissionRule
from shoal.policy.program_names import get_standard_name
from shoal.policy.shell.command_analysis import ShellCommandAnalysis, SimpleShellCommand
from shoal.policy.shell.git_judge import is_flag_word
from shoal.policy.shell.known_commands import (
    FIND_CHANGING_FLAGS,
    GIT_READERS,
    INTERPRETERS,
    LISTING_FLAGS,
    OPEN_SUBCOMMANDS,
    OPEN_WRAPPERS,
    READER_OUTPUT_FLAGS,
)
from shoal.policy.shell.wrapper_commands import SHELLS

if TYPE_CHECKING:
    from shoal.policy.other_spellings import OtherSpellings

RuleMatch: TypeAlias = Literal["yes", "maybe", "no"]

TRANSPARENT_WRAPPERS = frozenset(
    {"time", "nohup", "nice", "ionice", "timeout", "command", "stdbuf", "setsid", "builtin"}
)
"""Wrappers that do not change what a command does; a rule about the command also covers the wrapped
command."""
_STAR = re.compile(r"(?<!\\)\*")
_GLOB = re.compile(r"[*?\[]")
_LONG_FLAG = re.compile(r"--[a-z][\w-]+")
_GIT_PLUMBING = {"send-pack": "push", "http-push": "push", "fetch-pack": "fetch", "commit-tree": "commit"}
"""Git commands that do the work of another git command."""
_WITHOUT_QUOTES = str.maketrans("", "", "\"'\\")
_MAX_PROGRAMS = 1_000
_MAKE_CODE = re.compile(
    r"--ev|-[A-Za-z]*E|(?:SHELL|\.SHELLFLAGS|MAKEFILES|MAKEFLAGS)\s*[:+?!]*=|[^=-][^=]*=.*[;`$|&<>\n]"
    r"|[^=-][^=]*!=|(?:-[A-Za-z]*f|--(?:fi|mak)[a-z]*=)(?:-|/dev/(?:stdin|fd/.*)|/proc/.*)$",
    re.DOTALL,
)
"""Words with which make runs code that is not in its files."""
_DEBUGGERS = frozenset({"gdb", "lldb"})
_SCRIPT_RUNNERS = SHELLS | INTERPRETERS | {"source", ".", "fish", "ash", "mksh", "yash"}
_GIT_PROGRAM = "git-"
_GIT_ALIAS = re.compile(r"(?:^|=)(?:alias|include)", re.IGNORECASE)
"""Git settings that can make a subcommand mean another one."""
_PLAIN_GIT_SETTING = re.compile(
    r"(?:user|color|author|committer|advice|init|gc|pack|http|i18n|log|format|column|help|status)\..*",
    re.IGNORECASE,
)
"""Settings of git that cannot do what a flag of a subcommand does."""
_GIT_FLAGS_WITH_VALUE = frozenset(
    {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--super-prefix", "--attr-source"}
)
"""Flags that precede the git subcommand and take their value from the next word."""


class ShellCommandRule:
    """Rule such as `Bash(git log:*)` or `Bash(git log *)` (first words) or `Bash(make test)` (whole command).

    A `*` inside a word matches any characters, a word `*` matches any number of words; `\\*` is a literal
    star. In a forbidding rule every `*` also matches across words, as in `Bash(*--no-verify*)`. In an allow
    rule a `*` at the end of the final word stays within the word, and after a letter or digit it stands for
    further words only.
    """

    def __init__(self, rule: ToolPermissionRule) -> None:
        pattern = rule.pattern or ""
        self.rule = rule
        self._is_prefix = pattern.endswith(":*")
        if self._is_prefix:
            pattern = pattern[:-2]
        self.text = pattern.replace("\\*", "*")
        self.has_wildcards = _STAR.search(pattern) is not None
        self._words = _split_rule_words(pattern if self.has_wildcards else self.text)
        if self._is_prefix:
            self._words = (*self._words, "*")
        self.first = self._words[0] if self._words else ""
        self._path_end = f"/{self.first}"
        self._plain_first = get_standard_name(self.first)
        self.names_file = "/" in self.first or "." in self.first[1:]
        self._allowed_words = self._words
        last = self._words[-1] if self._words else ""
        if self.has_wildcards and last not in ("", "*") and last.endswith("*") and not last.endswith("\\*"):
            if last[-2].isalnum():
                self._allowed_words = (*self._words[:-1], last[:-1], "*")
            self._words = (*self._words, "*")
        self._spellings: OtherSpellings | None = None
        self._text_parts = _split_text_pattern(self._words) if self.has_wildcards else ()
        name = "" if "*" in self.first else re.escape(_get_program_base_name(self.first))
        # The text may be quoted, so that a name follows the letter of an escape such as `\\n`.
        self._mention = re.compile(
            rf"(?:(?<![\w.-])|(?<=\\[abefnrtv])){name}(?:(?![\w.-])|(?=\._|\.main))" if name else ""
        )

    def is_exact_command(self, command: str) -> bool:
        """Return True if the rule is exactly this command line, so the user has seen it in full."""
        return not self._is_prefix and not self.has_wildcards and self.text.strip() == command.strip()

    def covers_command(self, part: SimpleShellCommand) -> bool:
        """Return True if the rule certainly allows this simple command."""
        if part.places != ("",) and "/" in self.first and not self.first.startswith("/"):
            # In another directory the relative path is another program.
            return False
        if part.argv is None or not (self.has_wildcards or part.via or part.argv[:1] == self._words[:1]):
            return False
        return self._names_allowed_words(part.argv, part.via) and not self._leaves_effect_open(part.argv)

    def _names_allowed_words(self, argv: tuple[str, ...], via: tuple[str, ...]) -> bool:
        if (not via or all(wrapper in TRANSPARENT_WRAPPERS for wrapper in via)) and self._is_match_for_words(
            argv, self._allowed_words
        ):
            return True
        # A rule about `find` or `env` allows these programs, but not the commands that they run.
        names_command = len(self._allowed_words) - (self._allowed_words[-1:] == ("*",)) > len(via)
        return bool(via) and names_command and self._is_match_for_words((*via, *argv), self._allowed_words)

    def _leaves_effect_open(self, words: tuple[str, ...]) -> bool:
        """Return True if a rule with wildcards does not name what the words run, remove or write."""
        if not (self._is_prefix or self.has_wildcards) or self._words == ("*",) or not words:
            return False
        name = _get_program_base_name(words[0])
        if name == "find":
            return any(word in FIND_CHANGING_FLAGS and word not in self._words for word in words)
        if name in LISTING_FLAGS:
            return not LISTING_FLAGS[name].issuperset(words[1:])
        if name in ("make", "gmake") and (
            any(map(_MAKE_CODE.match, words[1:])) or any(map(_is_input_makefile, pairwise(words)))
        ):
            return not any(map(_MAKE_CODE.match, self._words))
        if _names_reader_output(name, words, self._words):
            return True
        named = OPEN_SUBCOMMANDS.get(name)
        if named is not None and any(
            word.partition("=")[0] in named and word not in self._words for word in words[1:]
        ):
            return True
        return name in OPEN_WRAPPERS or (name in _DEBUGGERS and _runs_in_debugger(name, words))

    def match_as_forbidding_rule(self, part: SimpleShellCommand) -> RuleMatch:
        """Return how a forbidding rule matches this simple command, under any path or wrapper."""
        if part.argv and not (self.has_wildcards or part.via or part.globs or part.code):
            name = part.argv[0]
            if (
                name != self.first
                and not name.endswith(self._path_end)
                and _GIT_PROGRAM not in name
                and not _has_other_names(name)
                and get_standard_name(name) != self._plain_first
                and not self._is_same_file_name(name)
                and not self._get_script_words(part.argv)
            ):
                return "no"
            if name == self.first and not part.outer and self._is_certainly_other(part.argv):
                return "no"
        found = self._match_forbidden_command(part)
        if (
            found == "no"
            and part.code
            and any(text is None or self._is_mentioned(text) for text in part.code)
        ):
            return "maybe"
        return found

    def _is_certainly_other(self, words: tuple[str, ...]) -> bool:
        """Return True if a command without wildcards is another subcommand than that of the rule."""
        if self._spellings is None:
            from shoal.policy.other_spellings import OtherSpellings

            self._spellings = OtherSpellings(self._words)
        return self._spellings.is_other_subcommand(words[1] if len(words) > 1 else None)

    def _is_same_file_name(self, name: str) -> bool:
        """Return True if a rule names a program by its path, and this is a program with that file name."""
        return "/" in self.first and _get_program_base_name(name) == _get_program_base_name(self.first)

    def _get_script_words(self, words: tuple[str | None, ...]) -> tuple[str | None, ...]:
        """Return `./deploy.sh prod` for `bash deploy.sh prod` if the rule names that file, or nothing."""
        if not self.names_file or not words[0] or not _runs_scripts(_get_program_base_name(words[0])):
            return ()
        script = _get_program_base_name(self.first)
        for index, word in enumerate(words[1:], 1):
            if word is not None and _get_program_base_name(word) == script:
                return (self.first, *words[index + 1 :])
        return ()

    def _is_mentioned(self, text: str) -> bool:
        """Return True if a text names the program, perhaps with quotes inside the name."""
        return bool(self._mention.search(text) or self._mention.search(text.translate(_WITHOUT_QUOTES)))

    def _match_forbidden_command(self, part: SimpleShellCommand) -> RuleMatch:
        if self.first in part.via and (len(self._words) == 1 or self._words[1:] == ("*",)):
            return "yes"
        known_words: tuple[str | None, ...] = part.argv if part.argv is not None else part.words
        if not known_words:
            return "no" if part.argv is not None or not part.text else "maybe"
        matches = [self._match_forbidden_words(known_words, part.globs)]
        matches.extend(self._match_forbidden_words(words, ()) for words in part.outer)
        if module_words := _get_module_words(known_words):
            matches.append(self._match_forbidden_words(module_words, ()))
        if (script_words := self._get_script_words(known_words)) and (
            self._match_forbidden_words(script_words, ()) != "no"
        ):
            matches.append("maybe")
        return "yes" if "yes" in matches else "maybe" if "maybe" in matches else "no"

    def _match_forbidden_words(
        self, known_words: tuple[str | None, ...], globs: tuple[int, ...]
    ) -> RuleMatch:
        known_words = _split_git_program(known_words)
        if len(known_words) > 1 and known_words[1] in _GIT_PLUMBING:
            known_words = (known_words[0], _GIT_PLUMBING[known_words[1] or ""], *known_words[2:])
        elif len(known_words) > 2 and known_words[1] == "subtree":
            known_words = (known_words[0], *known_words[2:])
        if None in known_words or globs:
            found = self._match_partly_known_words(known_words, globs)
        else:
            words = tuple(word for word in known_words if word is not None)
            plain_words = (_get_program_base_name(words[0]), *words[1:])
            is_match = self._is_match_for_words(words, self._words) or self._is_match_for_words(
                plain_words, self._words
            )
            if not is_match and self._text_parts:
                is_match = any(
                    _is_text_match(" ".join(each), self._text_parts, is_prefix=self._words[-1] == "*")
                    for each in (words, plain_words)
                )
            found = "yes" if is_match else "no"
        if found == "no" and len(self._words) > 1 and (known_words[1:2] or ("",))[0] is not None:
            found = self._match_behind_flags(known_words)
        name = known_words[0]
        if found == "no" and name and name != self.first and self._is_same_file_name(name):
            # Another spelling of the path, such as `src/../deploy.sh`.
            same = self._match_forbidden_words((self.first, *known_words[1:]), globs)
            return "no" if same == "no" else "maybe"
        return "maybe" if found == "no" and self._may_be_other_spelling(known_words) else found

    def _may_be_other_spelling(self, known_words: tuple[str | None, ...]) -> bool:
        # Imported for the first command of a program that a rule names: its tables are large.
        from shoal.policy import other_spellings

        if "*" in self.first:
            if known_words[0] is None:
                return False
            commands = [self._complete_flags(known_words)]
            if self.first != "*":
                commands.extend(other_spellings.iter_equivalent_commands(known_words))
            return any(
                _is_text_match(
                    " ".join(filter(None, each)), self._text_parts, is_prefix=self._words[-1] == "*"
                )
                for each in commands
            )
        if self._spellings is None:
            self._spellings = other_spellings.OtherSpellings(self._words)
        if not self._spellings.may_include(known_words):
            return False
        if self._is_prefix or self.has_wildcards or None in known_words:
            return True
        # The rule is a whole command; a longer one is another command.
        return not other_spellings.has_more_words(known_words, self._words)

    def _complete_flags(self, words: tuple[str | None, ...]) -> tuple[str | None, ...]:
        """Return the words with the long flags that the rule names instead of their abbreviations."""
        long_flags = [flag for text in self._text_parts for flag in _LONG_FLAG.findall(text)]
        return tuple(
            next((flag for flag in long_flags if word and len(word) > 3 and flag.startswith(word)), word)
            for word in words
        )

    def _match_behind_flags(self, known_words: tuple[str | None, ...]) -> RuleMatch:
        """Match a subcommand that flags of the program precede, as in `git -C x push`."""
        name, second = known_words[0], known_words[1] if len(known_words) > 1 else None
        if name is None or second is None or second[:1] != "-" or self._words[1][:1] == "-":
            return "no"
        if _get_program_base_name(name) == "git":
            rest = skip_git_flags(known_words)
            flags = known_words[1 : len(known_words) - len(rest) + 1]
            if any(_GIT_ALIAS.search(word or "") for word in flags):
                return "maybe"
            found = "no" if len(rest) == len(known_words) else self._match_forbidden_words(rest, ())
            is_changed = found == "no" and rest[1:2] == self._words[1:2] and _sets_git_options(flags)
            return "maybe" if is_changed else found
        matches = {
            self._match_partly_known_words((name, *known_words[index:]), ())
            for index in range(2, len(known_words))
            if known_words[index] is None
            or self._is_pattern_word_match(self._words[1], known_words[index] or "")
        }
        return "no" if matches <= {"no"} else "maybe"

    def _match_partly_known_words(
        self, known_words: tuple[str | None, ...], globs: tuple[int, ...]
    ) -> RuleMatch:
        for index, (pattern_word, word) in enumerate(zip(self._words, known_words, strict=False)):
            if pattern_word == "*" and index == len(self._words) - 1:
                return "yes"
            # An unknown word may expand to no word or to several, so nothing after it is certain either.
            # In the text of a command a star inside a word may reach any later word.
            if word is None or pattern_word == "*" or (index not in globs and "*" in pattern_word[:-1]):
                return "maybe"
            if index in globs:
                # A program under an unknown name may be a shell or another program that runs the rest.
                return "maybe" if index == 0 or _may_glob_become(word, pattern_word) else "no"
            if not self._is_pattern_word_match(pattern_word, word) and not self._is_pattern_word_match(
                pattern_word, _get_program_base_name(word)
            ):
                return "no"
        return "maybe"

    def _is_pattern_word_match(self, pattern_word: str, word: str) -> bool:
        return (
            fnmatchcase(word, _escape_all_but_star(pattern_word))
            if self.has_wildcards
            else pattern_word == word
        )

    def _is_match_for_words(self, words: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
        if not self.has_wildcards and not self._is_prefix:
            return words == pattern
        if not self.has_wildcards:
            return words[: len(pattern) - 1] == pattern[:-1]
        return _is_word_pattern_match(pattern, words)


class ShellCommandRules:
    """Rules of one strength; in the usual case a single lookup shows that no rule matches a command."""

    def __init__(self, rules: Iterable[ToolPermissionRule]) -> None:
        self.rules = tuple(map(ShellCommandRule, rules))
        self._first_words = frozenset(rule.first for rule in self.rules)
        self._plain_names = frozenset(get_standard_name(rule.first) for rule in self.rules)
        self._programs: dict[str, bool] = {}
        """Programs, and whether a rule may be about them."""
        self._whole_commands = frozenset(rule.text.strip() for rule in self.rules)
        self._have_no_wildcards = not any(rule.has_wildcards for rule in self.rules)
        # A name with a slash matches the end of longer names, and shells run scripts.
        self._can_look_up = not any(rule.has_wildcards or rule.names_file for rule in self.rules)

    def find_exact_rule(self, command: str) -> ToolPermissionRule | None:
        """Return the rule that is exactly this command line, or None."""
        if not self.rules or command.strip() not in self._whole_commands:
            return None
        return next((each.rule for each in self.rules if each.is_exact_command(command)), None)

    def find_covering_rule(self, part: SimpleShellCommand) -> ToolPermissionRule | None:
        """Return the rule that certainly allows this simple command, or None."""
        argv = part.argv
        if argv is None:
            return None
        if self._have_no_wildcards and not part.via and (not argv or argv[0] not in self._first_words):
            return None
        return next((each.rule for each in self.rules if each.covers_command(part)), None)

    def is_certain_no_match(self, command: str, analysis: ShellCommandAnalysis) -> bool:
        """Return True if certainly no rule matches the command; False if one may."""
        if not self.rules:
            return True
        if not self._can_look_up or not analysis.is_complete or command.strip() in self._whole_commands:
            return False
        programs = self._programs
        for part in analysis.parts:
            words = part.words if part.argv is None else part.argv
            if part.via or part.code or (part.globs and 0 in part.globs):
                return False
            if words:
                name = words[0]
                if name is None or (programs.get(name) is not False and self._may_be_about(name)):
                    return False
            elif part.argv is None:
                return False
        return True

    def _may_be_about(self, name: str) -> bool:
        """Return False if certainly no rule is about the program."""
        found = self._programs.get(name)
        if found is None:
            plain_name = "git" if _GIT_PROGRAM in name else name
            found = (
                _get_program_base_name(plain_name) in self._first_words
                or _has_other_names(plain_name)
                or get_standard_name(plain_name) in self._plain_names
                or plain_name is not name
            )
            if len(self._programs) >= _MAX_PROGRAMS:
                self._programs.clear()
            self._programs[name] = found
        return found


def _runs_scripts(name: str) -> bool:
    """Return True for shells and other interpreters."""
    return name in _SCRIPT_RUNNERS or name.startswith("python")


def _runs_in_debugger(name: str, words: tuple[str, ...]) -> bool:
    """Return True if the commands of a debugger may run a program other than the one that it debugs."""
    # Imported for the first debugger: hardly any session runs one.
    from shoal.policy.shell.interpreter_code import may_run_programs

    return any(may_run_programs(name, word) for word in words[1:])


def _is_word_pattern_match(pattern: tuple[str, ...], words: tuple[str, ...]) -> bool:
    for index, pattern_word in enumerate(pattern):
        if pattern_word == "*":
            return index <= len(words) and _is_word_match_after_star(pattern[index:], words[index:])
        if index >= len(words) or not fnmatchcase(words[index], _escape_all_but_star(pattern_word)):
            return False
    return len(pattern) == len(words)


def _is_word_match_after_star(pattern: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """Match from the end, visiting each word once per pattern part; backtracking would be exponential."""
    # For each position: does the rest of the pattern match the words from there on?
    matches = [False] * len(words) + [True]
    for index, pattern_word in reversed(list(enumerate(pattern))):
        if pattern_word != "*":
            glob = _escape_all_but_star(pattern_word)
            matches = [
                after and fnmatchcase(word, glob) for word, after in zip(words, matches[1:], strict=True)
            ]
            matches.append(False)
        elif index == len(pattern) - 1:
            matches = [True] * (len(words) + 1)
        else:
            # Something follows, which needs at least one word.
            matches[-1] = False
            matches = list(accumulate(reversed(matches), or_))[::-1]
    return matches[0]


def _split_text_pattern(pattern: tuple[str, ...]) -> tuple[str, ...]:
    """Split the words of a rule at its stars, for the whole text of a command."""
    return tuple(part.replace("\\*", "*") for part in _STAR.split(" ".join(pattern).removesuffix(" *")))


def _is_text_match(text: str, parts: tuple[str, ...], *, is_prefix: bool) -> bool:
    """Match a text with the parts between stars, each at its first position; backtracking is not needed."""
    if not text.startswith(parts[0]):
        return False
    position = len(parts[0])
    for part in parts[1:-1]:
        found = text.find(part, position)
        if found < 0:
            return False
        position = found + len(part)
    rest, last = text[position:], parts[-1] if len(parts) > 1 else ""
    if not is_prefix:
        return rest.endswith(last) if len(parts) > 1 else not rest
    if len(parts) == 1:
        return not rest or rest.startswith(" ")
    # The last part ends a word, and any words may follow.
    return not last or f"{last} " in f"{rest} "


def _escape_all_but_star(pattern_word: str) -> str:
    """Escape everything but the star."""
    return re.sub(r"[\[?]", lambda found: f"[{found[0]}]", pattern_word).replace("\\*", "[*]")


def _split_rule_words(pattern: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(pattern.replace("\\*", "\\\\*")))
    except ValueError:
        return tuple(pattern.split())


def _may_glob_become(glob: str, pattern_word: str) -> bool:
    """Return True if a wildcard pattern may expand to a word that a rule names, under any path."""
    match = _GLOB.search(glob)
    start = glob if match is None else glob[: match.start()]
    rest = "" if match is None else glob[match.start() :]
    if "/" in rest or "*" in pattern_word:
        return True
    return pattern_word.startswith((start, _get_program_base_name(start)))


def _sets_git_options(flags: Sequence[str | None]) -> bool:
    """Return True if a setting in front of a git subcommand may have the effect of a flag."""
    for flag, value in pairwise((*flags, "")):
        setting = value if flag in ("-c", "--config-env") else (flag or "").removeprefix("--config-env=")
        is_setting = flag in ("-c", "--config-env") or (flag or "").startswith(("-c", "--config-env="))
        if is_setting and not _PLAIN_GIT_SETTING.fullmatch((setting or "").removeprefix("-c")):
            return True
    return False


def skip_git_flags(words: tuple[str | None, ...]) -> tuple[str | None, ...]:
    """Return the words of git without the flags before its subcommand."""
    index = 1
    while index < len(words) and (word := words[index]) is not None and word.startswith("-"):
        index += 2 if word in _GIT_FLAGS_WITH_VALUE else 1
    return (words[0], *words[index:])


def _split_git_program(words: tuple[str | None, ...]) -> tuple[str | None, ...]:
    """Return `git push` for the program `git-push`, which git keeps with its others."""
    if not words or words[0] is None or _GIT_PROGRAM not in words[0]:
        return words
    name = _get_program_base_name(words[0])
    return ("git", name.removeprefix(_GIT_PROGRAM), *words[1:]) if name.startswith(_GIT_PROGRAM) else words


def _has_other_names(name: str) -> bool:
    """Return True for Python, which runs a program as a module, and for uv, which works as pip."""
    return _get_program_base_name(name).startswith(("python", "uv", "pip"))


def _get_module_words(words: tuple[str | None, ...]) -> tuple[str | None, ...]:
    """Return `pip install` for `python3 -m pip install`, and nothing for other commands."""
    if not words or words[0] is None or not _has_other_names(words[0]):
        return ()
    for index, word in enumerate(words[1:], 1):
        if word == "-m":
            return words[index + 1 :]
        if word is None or not word.startswith("-"):
            return ()
        if word.startswith("-m"):
            return (word[2:], *words[index + 1 :])
    return ()


def _get_program_base_name(word: str) -> str:
    return word[word.rfind("/") + 1 :]


def _is_input_makefile(words: tuple[str, str]) -> bool:
    """Return True if a flag of make and the word after it name the input as the makefile."""
    flag, value = words
    is_flag = re.fullmatch(r"-[A-Za-z]*f|--(?:fi|mak)[a-z]*", flag) is not None
    return is_flag and (value == "-" or value.startswith(("/dev/", "/proc/")))


def _names_reader_output(name: str, words: Sequence[str], rule_words: Sequence[str]) -> bool:
    """Return True if a program that reads is told to write a file, and the rule does not name the flag."""
    flags = READER_OUTPUT_FLAGS.get(name, ())
    if not flags or (name == "git" and GIT_READERS.isdisjoint(words[1:4])):
        return False
    return any(is_flag_word(word, flags) for word in words[1:]) and not any(
        is_flag_word(word, flags) for word in rule_words[1:]
    )
