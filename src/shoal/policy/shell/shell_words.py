"""Words decoded as bash decodes them, and what is known about words that depend on run time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from shoal.policy.shell.shell_syntax import UnjudgeableCommandError, find_heredoc_of_substitution
from shoal.policy.shell.simple_commands import shell_home

if TYPE_CHECKING:
    from tree_sitter import Node


class ShellWord(Struct, frozen=True):
    """One word of a command.

    `value` is None if it is known only at run time; then `prefix` is the text that it certainly begins with,
    `pattern` is the glob as written, and `many` is True if it may become any number of words. `stream` marks
    a word that is only a process substitution: a path that names no file.
    """

    value: str | None
    prefix: str = ""
    many: bool = False
    pattern: str | None = None
    stream: bool = False

    @property
    def may_be_flag(self) -> bool:
        """True if it, or one of the words it becomes, may begin with a dash."""
        if self.value is not None:
            return self.value[:1] == "-"
        # All words of a glob begin alike; of a split word only the first does.
        return not self.prefix or self.prefix[0] == "-" or (self.many and self.pattern is None)


WORD_NODE_TYPES = frozenset(
    """
    word number string raw_string ansi_c_string concatenation simple_expansion expansion command_substitution
    process_substitution arithmetic_expansion brace_expression
    """.split()  # noqa: SIM905 - reads better than sixteen quotes
)
"""Types of syntax nodes that are words of a command."""
PLAIN_PATTERN = re.compile(r"[A-Za-z0-9_.*?/+=:@-]+|\"[A-Za-z0-9_.*?/ +=:@-]*\"|'[^'\n]*'")
_STREAM = "/dev/fd/"
"""Prefix of the path that a process substitution becomes."""
SIMPLE_WORD = re.compile(r"[A-Za-z0-9_./:@%+,^-][A-Za-z0-9_./:@%+,^=-]*")
_WORD = re.compile(r"(?:[^\s\\\"'`$;&|<>()]|\\[^\n])*")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_QUOTED_TEXT = re.compile(r"(?:[^\"\\$`]|\\.|\$(?![A-Za-z0-9_({\[@*#?$!'\"-]))*", re.DOTALL)
_QUOTED_ESCAPE = re.compile(r"\\([$`\"\\])|\\\n")
_VARIABLE = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9?#@*$!-])")
_EXPANSION = re.compile(
    r"\$\{(?:#?[A-Za-z_][A-Za-z0-9_]*(?:\[(?:[0-9]+|[@*])\])?|[0-9]+|[@*#?])"
    r"(?:(?::?[-+]|%%?|##?|//?|\^\^?|,,?)[A-Za-z0-9_./*: ,=\[\]-]*(?:/[A-Za-z0-9_.: ,=-]*)?"
    r"|:[0-9]+(?::[0-9]+)?)?\}"
)
_SUM = re.compile(r"\$\(\([0-9 \t+*/%()<>=!&|^-]+\)\)")
_ANSI = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|x([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{1,4}))|[^\\]", re.DOTALL
)
_ANSI_LETTERS = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))
_GLOB = re.compile(r"[*?\[]")
_BRACES = re.compile(r"\{[^{}\x01]*(?:,|\.\.)[^{}\x01]*\}")
_ONE_LIST = re.compile(r"([^{}\x01]*)\{([^{}\x01]*,[^{}\x01]*)\}([^{}\x01]*)")
# Replaces each quoted character in the unquoted form of a word, so that none is taken for syntax.
_QUOTED = "\x01"
_WHOLE_VARIABLE = re.compile(r"\"?\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})\"?")
_WHOLE_SUBSTITUTION = re.compile(
    r"\"?\$\(([^()]*(?:\(refname:short\)[^()]*)?)\)((?:\.\.\.?[A-Za-z0-9_/]*)?)\"?"
)
_CAPITALS = frozenset("{ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_SECRET_VARIABLE = re.compile(
    r"\$\{?[#!]?[A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|_PAT(?![A-Z0-9]))[A-Z0-9_]*"
)
_SUBSTITUTIONS = frozenset({"command_substitution", "process_substitution"})


FOUND_PATHS = "./**/*"
"""Pattern that stands for paths under the working directory, at any depth, that a command found."""


class KnownShellWords(Protocol):
    """Values of variables and kinds of output, as far as they are known."""

    def find_variable(self, name: str) -> ShellWord | None: ...

    def find_output(self, commands: str) -> ShellWord | None: ...

    def find_heredoc_text(self, index: int) -> str | None: ...


def decode_shell_words(
    node: Node, source: bytes, nested: list[Node], known: KnownShellWords
) -> list[ShellWord]:
    """Return the words that a node becomes; adds substitutions and unusual expansions to `nested`."""
    text = source[node.start_byte : node.end_byte].decode()
    if SIMPLE_WORD.fullmatch(text):
        return [ShellWord(text)]
    if (found := _find_known_word(text, known)) is not None:
        if text.lstrip('"').startswith("$("):
            nested.append(node.children[1] if node.type == "string" else _get_substitution(node))
        return [found]
    pieces = _ShellWordBuilder(source, nested, known)
    pieces.add_syntax_node(node)
    return list(pieces.build_words())


def _find_known_word(text: str, known: KnownShellWords) -> ShellWord | None:
    """Return the value of a word that is one variable, or one substitution followed by a range of
    revisions."""
    if (match := _WHOLE_VARIABLE.fullmatch(text)) is not None:
        word = known.find_variable(match[1] or match[2])
        if word is None or word.value is not None:
            return None
        return replace(word, many=False) if text[0] == '"' else word
    if (match := _WHOLE_SUBSTITUTION.fullmatch(text)) is None:
        return None
    word = known.find_output(match[1])
    return None if word is None or (match[2] and not word.stream) else word


def _get_substitution(node: Node) -> Node:
    return node.children[0] if node.type == "concatenation" else node


class _ShellWordBuilder:
    """Builds a word: its value, and a form in which quoted characters are masked."""

    def __init__(self, source: bytes, nested: list[Node], known: KnownShellWords) -> None:
        self._known_words = known
        self._source = source
        self._nested = nested
        self._value: list[str] = []
        self._bare: list[str] = []
        self._known = True
        self._many = False
        self._prefix = ""
        self._begun = False
        self._starts_bare = False
        self._stream = False

    def build_words(self) -> Iterator[ShellWord]:
        value, bare = "".join(self._value), "".join(self._bare)
        prefix = value if self._known else self._prefix
        if self._stream and len(self._value) == 1:
            yield ShellWord(None, prefix=prefix, stream=True)
        elif bare.startswith("~") and self._starts_bare:
            yield _expand_tilde_word(value, bare) if self._known else ShellWord(None, prefix="~")
        elif bare.startswith("=") or "=~" in bare or ":~" in bare:
            yield ShellWord(None, prefix=re.split("[=:]", prefix, maxsplit=1)[0], many=self._many)
        elif self._known and (braces := _BRACES.search(bare)):
            yield from self._expand_braces(bare, prefix[: braces.start()])
        elif not self._known:
            yield ShellWord(
                None, prefix=_cut_prefix_at_glob(prefix, bare), many=self._many or bool(_BRACES.search(bare))
            )
        elif _GLOB.search(bare):
            pattern = _escape_quoted_wildcards(value, bare)
            yield ShellWord(None, prefix=_cut_prefix_at_glob(prefix, bare), many=True, pattern=pattern)
        else:
            yield ShellWord(value)

    def _expand_braces(self, bare: str, prefix: str) -> Iterator[ShellWord]:
        match = _ONE_LIST.fullmatch(bare)
        if match is None or _GLOB.search(bare) or "\\" in bare or "~" in bare or "=" in bare:
            yield ShellWord(None, prefix=prefix, many=True)
            return
        for choice in match[2].split(","):
            if value := match[1] + choice + match[3]:
                yield ShellWord(value)

    def add_syntax_node(self, node: Node) -> None:
        kind = node.type
        text = self._source[node.start_byte : node.end_byte].decode()
        match kind:
            case "word" | "number" | "extglob_pattern" | "brace_expression" | "variable_name":
                self._add_unquoted_text(text)
            case "raw_string":
                if text[0] != "'" or text.find("'", 1) != len(text) - 1:
                    raise UnjudgeableCommandError("quoted_end")
                self._add_quoted_text(text[1:-1])
            case "ansi_c_string":
                self._add_quoted_text(_decode_ansi_quoting(text))
            case "string":
                self._add_double_quoted_string(node)
            case "concatenation":
                self._add_concatenation(node)
            case _:
                self._add_expansion(node, kind, text, quoted=False)

    def _add_unquoted_text(self, text: str) -> None:
        if not _WORD.fullmatch(text):
            raise UnjudgeableCommandError("word_characters")
        if not self._begun:
            if text[:1] == "#":
                raise UnjudgeableCommandError("word_or_comment")
            self._begun = self._starts_bare = True
        if "\\" in text:
            self._bare.append(re.sub(r"\\.", _QUOTED, text, flags=re.DOTALL))
            text = _ESCAPE.sub(r"\1", text)
        else:
            self._bare.append(text)
        self._value.append(text)

    def _add_quoted_text(self, text: str) -> None:
        self._begun = True
        self._value.append(text)
        self._bare.append(_QUOTED * len(text))

    def _add_concatenation(self, node: Node) -> None:
        position = node.start_byte
        for child in node.children:
            if child.start_byte != position:
                raise UnjudgeableCommandError("word_form")
            self.add_syntax_node(child)
            position = child.end_byte

    def _add_double_quoted_string(self, node: Node) -> None:
        """Add a quoted string, including text between its children: the grammar has no nodes for blanks."""
        children = node.children
        if children[0].type != '"' or children[-1].type != '"' or len(children) < 2:
            raise UnjudgeableCommandError("quoted_end")
        position = children[0].end_byte
        for child in children[1:-1]:
            if child.type in ("string_content", "$"):
                continue
            # The grammar counts blanks before a second expansion as part of it.
            text = self._source[child.start_byte : child.end_byte].decode()
            bare_text = text.lstrip(" \t\n")
            self._add_double_quoted_text(position, child.start_byte + len(text) - len(bare_text))
            self._add_expansion(child, child.type, bare_text, quoted=True)
            position = child.end_byte
        self._add_double_quoted_text(position, children[-1].start_byte)

    def _add_double_quoted_text(self, start: int, end: int) -> None:
        text = self._source[start:end].decode()
        if not _QUOTED_TEXT.fullmatch(text):
            raise UnjudgeableCommandError("quoted_characters")
        self._add_quoted_text(_QUOTED_ESCAPE.sub(r"\1", text) if "\\" in text else text)

    def _add_known_variable(self, text: str, *, quoted: bool) -> bool:
        match = _WHOLE_VARIABLE.fullmatch(text)
        word = None if match is None else self._known_words.find_variable(match[1] or match[2])
        if word is None or word.value is None or not (quoted or SIMPLE_WORD.fullmatch(word.value)):
            return False
        self._add_quoted_text(word.value)
        return True

    def _add_printed_heredoc(self, node: Node, text: str) -> bool:
        """Add the text of `$(cat <<'EOF' …)`, which bash does not expand."""
        index = find_heredoc_of_substitution(text, self._source, node.start_byte)
        body = None if index is None else self._known_words.find_heredoc_text(index)
        if body is None:
            return False
        self._nested.append(node)
        self._add_quoted_text(body.rstrip("\n"))
        return True

    def _add_expansion(self, node: Node, kind: str, text: str, *, quoted: bool) -> None:
        if self._add_known_variable(text, quoted=quoted):
            return
        if quoted and kind == "command_substitution" and self._add_printed_heredoc(node, text):
            return
        if kind in _SUBSTITUTIONS or (text[1:2] in _CAPITALS and _SECRET_VARIABLE.match(text)):
            self._nested.append(node)
        elif not (
            (kind == "simple_expansion" and _VARIABLE.fullmatch(text))
            or (kind == "expansion" and _EXPANSION.fullmatch(text))
            or (kind == "arithmetic_expansion" and _SUM.fullmatch(text))
        ):
            if kind not in ("expansion", "arithmetic_expansion"):
                raise UnjudgeableCommandError("unknown_expansion", text=text[:60])
            self._nested.append(node)
        self._begun = True
        if self._known:
            self._prefix = "".join(self._value)
        if kind == "process_substitution":
            self._stream = True
            if self._known and not self._prefix:
                self._prefix = _STREAM
        elif not quoted or text[:2] == "$@" or "@" in text:
            self._many = True
        self._known = False
        self._value.append(_QUOTED)
        self._bare.append(_QUOTED)


def _expand_tilde_word(value: str, bare: str) -> ShellWord:
    home = shell_home.get() if value == "~" or value.startswith("~/") else None
    expanded = None if home is None else str(Path(home + value[1:]))
    if _BRACES.search(bare):
        return ShellWord(None, prefix="/", many=True)
    if _GLOB.search(bare):
        return ShellWord(None, prefix="/", many=True, pattern=expanded)
    return ShellWord(None, prefix="~") if expanded is None else ShellWord(expanded)


def _escape_quoted_wildcards(value: str, bare: str) -> str:
    """Return the pattern of a word; a quoted `*` becomes `[*]`."""
    if _QUOTED not in bare or len(bare) != len(value):
        return value
    return "".join(
        f"[{character}]" if mask == _QUOTED and character in "*?[" else character
        for character, mask in zip(value, bare, strict=True)
    )


def _cut_prefix_at_glob(prefix: str, bare: str) -> str:
    if bare == _QUOTED:
        return prefix
    glob = _GLOB.search(bare)
    brace = bare.find("{")
    ends = [len(prefix), *([glob.start()] if glob else []), *([brace] if brace >= 0 else [])]
    return prefix[: min(ends)]


def _decode_ansi_quoting(text: str) -> str:
    body = text[2:-1]
    parts: list[str] = []
    position = 0
    for match in _ANSI.finditer(body):
        if match.start() != position:
            break
        position = match.end()
        letter, hexadecimal, octal, point = match.groups()
        if letter:
            parts.append(_ANSI_LETTERS[letter])
        elif code := hexadecimal or octal or point:
            number = int(code, 8 if octal else 16)
            if number == 0 or (number > 127 and not point):
                raise UnjudgeableCommandError("ansi_byte")
            parts.append(chr(number))
        else:
            parts.append(match[0])
    if position != len(body) or "'" in _ESCAPE.sub("", body):
        raise UnjudgeableCommandError("ansi_form")
    return "".join(parts)


def list_globbed_directories(words: Iterable[ShellWord]) -> tuple[ShellWord, ...]:
    """Return what the shell lists for the wildcards of words that a command only prints."""
    patterns = [word.pattern for word in words if word.pattern is not None]
    return (
        tuple(_find_globbed_directory(each) for each in patterns if each != FOUND_PATHS) if patterns else ()
    )


def _find_globbed_directory(pattern: str) -> ShellWord:
    match = _GLOB.search(pattern)
    if match is None or "/" in pattern[match.start() :]:
        # More than one directory, perhaps through links.
        return ShellWord(None, pattern=pattern)
    directory = pattern[: match.start()].rpartition("/")[0]
    return ShellWord(directory or ("/" if pattern.startswith("/") else "."))
