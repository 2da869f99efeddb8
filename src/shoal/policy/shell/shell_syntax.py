"""Parsing of command text into a syntax tree, or the reason why it cannot be judged."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from shoal.policy.policy_texts import format_shell_reason

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_COMMAND_LENGTH = 100_000
CONTAINERS = frozenset(
    {"program", "list", "pipeline", "subshell", "compound_statement", "if_statement", "elif_clause"}
    | {"else_clause", "while_statement", "do_group", "negated_command"}
)
TOKENS = frozenset(
    {";", "&", "&&", "||", "|", "|&", "\n", "(", ")", "{", "}", "!", "if", "then", "elif", "else", "fi"}
    | {"while", "until", "do", "done", ";;"}
)
ENDING_SIGNS = frozenset({";", "&", "&&", "||", "|", "|&", "\n"})
"""Tokens that need no separation from adjacent text."""
MAX_NESTING = 60
MAX_SIGNS = 3_000
"""Limit for shell metacharacters: unparsable text takes time quadratic in their number, here below 1 s."""
_SIGNS = "()<>&|{}$`[]=;!"

# Tab and newline are the only control characters with a plain meaning; unusual blanks and marks that
# reorder text are words to bash and look different to a reader.
_UNREADABLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\xa0\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ud800-\udfff]"
)
_HEREDOC = re.compile(
    r"(?<![<\\])<<(?P<strip>-?)[ \t]*(?P<quote>['\"]?)(?P<mark>[A-Za-z_][A-Za-z0-9_]*)(?P=quote)"
    r"(?P<rest>(?:[^\n'\"\\`$(){}#<]|'[^'\n]*'|\"[^\"\\`$\n]*\"|\"?\$[A-Za-z_][A-Za-z0-9_]*\"?)*)(?:\n|$)"
)
_LIVE_BODY = re.compile(
    r"[\\`]|\$[^\sA-Za-z0-9_.,:;)%/\"'-]"
    r"|\$[A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|_PAT(?![A-Z0-9]))"
)
"""Texts of here-documents that are checked: they may run commands, or print a secret."""
_BODY_SIGN = re.compile(r"\\|`|\$\(\(|\$\(|\$\{|\$\[")
_PLAIN_BODY_VARIABLE = re.compile(
    r"#?[A-Za-z_][A-Za-z0-9_]*(?:\[[0-9@*]+\])?(?::?[-+][A-Za-z0-9_./: ,=-]*)?\}"
)
_MAX_BODY_SCRIPT = 500
_BLANKS = (b" ", b"\t", b"\n")
HEREDOC_PLACEHOLDER = "SHOAL_HEREDOC_BODY"
"""File name that stands for a here-document, written as a redirection of input."""
_MARKED = f"<{HEREDOC_PLACEHOLDER}".encode()


_PRINTED_HEREDOC = re.compile(rf"\$\([ \t\n]*cat[ \t]*<{HEREDOC_PLACEHOLDER}[ \t\n]*\)")
_OWN_PLACEHOLDER = re.compile(rf"<[ \t]*{HEREDOC_PLACEHOLDER}")


_EXPANDED_TEXT = re.compile(r"[$`\\]")


class UnjudgeableCommandError(Exception):
    """The command cannot be judged before it runs; the text, a section of `shell.md`, says why."""

    def __init__(self, key: str, /, **values: object) -> None:
        super().__init__(format_shell_reason(key, **values))


class HereDocument(Struct, frozen=True):
    """Here-document of a command: its operator as written, and its text, or None if bash expands it."""

    operator: str
    text: str | None


class ParsedShellCommand(Struct, frozen=True):
    """Syntax tree, the bytes that its positions refer to, and the here-documents in their order.

    `live_bodies` are the bodies of here-documents that hold expansions.
    """

    root: Node
    source: bytes
    live_bodies: tuple[str, ...]
    heredocs: tuple[HereDocument, ...]


@cache
def _load_bash_parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def parse_shell_command(command: str) -> ParsedShellCommand:
    """Parse a script. Raises `UnjudgeableCommandError`."""
    if len(command) > MAX_COMMAND_LENGTH:
        raise UnjudgeableCommandError("long_text", maximum=MAX_COMMAND_LENGTH)
    if _UNREADABLE.search(command):
        raise UnjudgeableCommandError("control_characters")
    bodies: list[str] = []
    heredocs: list[HereDocument] = []
    if "<" in command and _OWN_PLACEHOLDER.search(command):
        raise UnjudgeableCommandError("reserved_word", word=HEREDOC_PLACEHOLDER)
    if "<<" in command:
        command = _replace_heredocs(command, bodies, heredocs)
    if len(command) > MAX_SIGNS and sum(map(command.count, _SIGNS)) > MAX_SIGNS:
        raise UnjudgeableCommandError("many_metacharacters", maximum=MAX_SIGNS)
    source = command.encode()
    root = _load_bash_parser().parse(source).root_node
    if root.has_error:
        raise UnjudgeableCommandError("not_bash")
    if _MARKED in source:
        _check_heredoc_placeholders(root, source)
    return ParsedShellCommand(root, source, tuple(bodies), tuple(heredocs))


def find_heredoc_of_substitution(text: str, source: bytes, start: int) -> int | None:
    """Return the index of the here-document that a substitution prints unchanged, or None."""
    if not _PRINTED_HEREDOC.fullmatch(text):
        return None
    return source.count(_MARKED, 0, start)


def _replace_heredocs(command: str, live_bodies: list[str], heredocs: list[HereDocument]) -> str:
    """Return the command with each here-document replaced by a placeholder.

    Adds the bodies that hold expansions to `live_bodies`, and every here-document to `heredocs`.

    A body ends by bash's own rule (at the first line that is the delimiter), so what follows is always read
    as commands. A later check verifies that each placeholder is where a redirection belongs.
    """
    done: list[str] = []
    while (start := _find_heredoc(command)) >= 0:
        match = _HEREDOC.match(command, start)
        if match is None or "<<" in command[match.end("mark") : match.end()]:
            raise UnjudgeableCommandError("heredoc_form")
        body, after = _split_heredoc_body(command, match)
        if not match["quote"] and _LIVE_BODY.search(body):
            live_bodies.append(body)
        is_expanded = not match["quote"] and _EXPANDED_TEXT.search(body)
        text = re.sub(r"(?m)^\t+", "", body) if match["strip"] else body
        heredocs.append(
            HereDocument(command[start : match.end("mark")] + match["quote"], None if is_expanded else text)
        )
        head = command[:start]
        if head.endswith("\\"):
            raise UnjudgeableCommandError("heredoc_form")
        done.append(f"{head}<{HEREDOC_PLACEHOLDER}{match['rest']}\n")
        command = after
    return "".join((*done, command))


def find_heredoc_substitutions(body: str) -> list[str]:
    """Return the scripts of the substitutions in a here-document that bash expands."""
    scripts: list[str] = []
    position = 0
    while (match := _BODY_SIGN.search(body, position)) is not None:
        position = match.end()
        if match[0] == "`":
            end = body.find("`", position)
            if end < 0:
                raise UnjudgeableCommandError("heredoc_substitution")
            scripts.append(_check_heredoc_script(body[position:end]))
            position = end + 1
        elif match[0] == "$(":
            end = _find_substitution_end(body, position)
            scripts.append(_check_heredoc_script(body[position:end]))
            position = end + 1
        elif match[0] not in ("\\", "${") or (
            match[0] == "${" and not _PLAIN_BODY_VARIABLE.match(body, position)
        ):
            raise UnjudgeableCommandError("heredoc_expansion")
        elif match[0] == "\\":
            position += 1
    return scripts


def restore_heredoc_operators(
    text: str, source: bytes, node: Node, heredocs: tuple[HereDocument, ...]
) -> str:
    """Return the text of a node with the operators of its here-documents, but without their bodies."""
    if not heredocs or HEREDOC_PLACEHOLDER not in text:
        return text
    index = source.count(_MARKED, 0, node.start_byte)
    first, *rest = text.split(f"<{HEREDOC_PLACEHOLDER}")
    return first + "".join(
        heredoc.operator + each for heredoc, each in zip(heredocs[index:], rest, strict=False)
    )


def is_standalone_reserved_word(token: Node, source: bytes) -> bool:
    """Return True if bash reads a reserved word here, which requires that nothing touches it."""
    kind = token.type
    if kind in ("!", "{"):
        return source[token.end_byte : token.end_byte + 1] in _BLANKS
    if kind.isalpha():
        before = source[token.start_byte - 1 : token.start_byte] if token.start_byte else b""
        after = source[token.end_byte : token.end_byte + 1]
        return (not before or before in b" \t\n;&|()") and (not after or after in b" \t\n;&|()<>")
    return True


def _find_substitution_end(body: str, start: int) -> int:
    """Return the index of the parenthesis at which bash ends a substitution: where its script is complete."""
    end = start - 1
    while (end := body.find(")", end + 1)) >= 0:
        if end - start > _MAX_BODY_SCRIPT:
            break
        if not _load_bash_parser().parse(body[start:end].encode()).root_node.has_error:
            return end
    raise UnjudgeableCommandError("heredoc_open_substitution")


def _check_heredoc_script(script: str) -> str:
    if not script.strip() or any(sign in script for sign in ("#", "\\", "<<", "`")):
        raise UnjudgeableCommandError("heredoc_substitution")
    return script


def _find_heredoc(command: str) -> int:
    position = 0
    while (position := command.find("<<", position)) >= 0:
        if not command.startswith("<<<", position):
            return position
        position += 3
    return -1


def _split_heredoc_body(command: str, match: re.Match[str]) -> tuple[str, str]:
    position = match.end()
    while position < len(command):
        end = command.find("\n", position)
        line = command[position:] if end < 0 else command[position:end]
        if (line.lstrip("\t") if match["strip"] else line) == match["mark"]:
            return command[match.end() : position], "" if end < 0 else command[end + 1 :]
        if end < 0:
            break
        position = end + 1
    raise UnjudgeableCommandError("heredoc_end")


def _check_heredoc_placeholders(root: Node, source: bytes) -> None:
    """Check that every replaced here-document was in a position where bash accepts one."""
    expected_count = source.count(_MARKED)
    found = 0
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type == "file_redirect" and source[node.start_byte : node.end_byte].endswith(_MARKED):
            found += 1
        stack.extend(node.children)
    if found != expected_count:
        raise UnjudgeableCommandError("heredoc_place")
