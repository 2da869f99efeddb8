"""Walk over a parsed command: handles every understood construct and stops at any other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from shoal.policy.shell.command_expansion import UnexpandedShellCommand, expand_found_command
from shoal.policy.shell.known_commands import HARMLESS_VARIABLES
from shoal.policy.shell.plain_lines import add_plain_line_commands, parse_plain_command_line
from shoal.policy.shell.program_judges import is_harmless_shell_variable
from shoal.policy.shell.redirections import add_redirection_files, parse_redirections
from shoal.policy.shell.shell_conditions import parse_shell_test_words
from shoal.policy.shell.shell_directories import PossibleShellDirectories
from shoal.policy.shell.shell_syntax import MAX_NESTING, UnjudgeableShellCommandError, parse_shell_command
from shoal.policy.shell.shell_words import (
    PLAIN_PATTERN,
    SIMPLE_WORD,
    WORD_NODE_TYPES,
    ShellWord,
    decode_shell_words,
)
from shoal.policy.shell.simple_commands import SimpleShellCommand

if TYPE_CHECKING:
    from tree_sitter import Node

_CONTAINERS = frozenset(
    {"program", "list", "pipeline", "subshell", "compound_statement", "if_statement", "elif_clause"}
    | {"else_clause", "while_statement", "do_group", "negated_command"}
)
_TOKENS = frozenset(
    {";", "&", "&&", "||", "|", "|&", "\n", "(", ")", "{", "}", "!", "if", "then", "elif", "else", "fi"}
    | {"while", "until", "do", "done", ";;"}
)
_ENDING_SIGNS = frozenset({";", "&", "&&", "||", "|", "|&", "\n"})
"""Tokens that need no separation from adjacent text."""
_REDIRECTS = ("file_redirect", "herestring_redirect")
_BETWEEN_WORDS = re.compile(rb"(?:\\\n)*[ \t](?:[ \t]|\\\n)*")
_BETWEEN_STATEMENTS = re.compile(rb"(?:[ \t\n]|\\\n)*")
_BLANKS = (b" ", b"\t", b"\n")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BEFORE_COMMENT = b" \t\n;&|()"


class ShellSyntaxWalker:
    """Collects simple commands, functions and possible directories while walking a syntax tree."""

    def __init__(self, directories: PossibleShellDirectories | None = None) -> None:
        self.parts: list[SimpleShellCommand] = []
        self.functions: set[str] = set()
        self.directories = directories or PossibleShellDirectories()
        self._source = b""
        self.repeated = 0
        self.trapped = False
        self._depth = 0
        self._via: tuple[str, ...] = ()

    def walk_script(self, text: str, via: tuple[str, ...] = ()) -> None:
        """Walk a whole script; `via` names the commands that would run it."""
        outer = self._source, self._via
        self._enter_nesting_level()
        self._via = via
        plain = parse_plain_command_line(text)
        if plain is None:
            self._walk_parsed_script(text)
        else:
            add_plain_line_commands(text, plain, via, self)
        self._depth -= 1
        self._source, self._via = outer

    def _walk_parsed_script(self, text: str) -> None:
        root, self._source = parse_shell_command(text)
        if root.type != "program":
            raise UnjudgeableShellCommandError("the command does not parse as bash")
        self._walk_container(root)

    def _enter_nesting_level(self) -> None:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise UnjudgeableShellCommandError("the command is nested too deeply")

    def _get_node_text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode()

    # Statements

    def _walk_statement(self, node: Node) -> None:
        kind = node.type
        if kind == "command":
            self._walk_command(node, [], [])
        elif kind in _CONTAINERS:
            self._enter_nesting_level()
            self._walk_container(node)
            self._depth -= 1
        elif (handler := getattr(self, f"_on_{kind}", None)) is not None:
            self._enter_nesting_level()
            handler(node)
            self._depth -= 1
        else:
            raise UnjudgeableShellCommandError(
                f"{self._get_node_text(node)[:60]!r} is a construct that is not judged"
            )

    def _walk_container(self, node: Node) -> None:
        kind = node.type
        saved_directories = (
            PossibleShellDirectories(self.directories.candidates) if kind == "subshell" else None
        )
        old_repeated = self.repeated
        self.repeated = 0 if saved_directories else old_repeated + (kind == "while_statement")
        self._walk_statement_sequence(node.children, 0 if kind == "program" else node.start_byte)
        self.repeated = old_repeated
        if saved_directories:
            self.directories = saved_directories
        if kind == "program" and not _BETWEEN_STATEMENTS.fullmatch(self._source, node.end_byte):
            raise UnjudgeableShellCommandError("the command goes on after its end")

    def _walk_statement_sequence(self, children: list[Node], position: int, end: int | None = None) -> None:
        source = self._source
        for child in children:
            start = child.start_byte
            if (
                start != position
                and source[position:start] != b" "
                and not _BETWEEN_STATEMENTS.fullmatch(source, position, start)
            ):
                raise UnjudgeableShellCommandError(
                    "the command holds text between its parts that is not judged"
                )
            if child.is_named:
                self._walk_statement(child)
            elif (kind := child.type) not in _ENDING_SIGNS and (
                kind not in _TOKENS or not self._is_standalone_reserved_word(child)
            ):
                raise UnjudgeableShellCommandError(f"{kind!r} is a construct that is not judged")
            position = child.end_byte
        if end is not None and not _BETWEEN_STATEMENTS.fullmatch(self._source, position, end):
            raise UnjudgeableShellCommandError("the command holds text between its parts that is not judged")

    def _is_standalone_reserved_word(self, token: Node) -> bool:
        """Return True if bash reads a reserved word here, which requires that nothing touches it."""
        kind = token.type
        if kind in ("!", "{"):
            return self._source[token.end_byte : token.end_byte + 1] in _BLANKS
        if kind.isalpha():
            before = self._source[token.start_byte - 1 : token.start_byte] if token.start_byte else b""
            after = self._source[token.end_byte : token.end_byte + 1]
            return (not before or before in _BEFORE_COMMENT) and (not after or after in b" \t\n;&|()<>")
        return True

    def _on_comment(self, node: Node) -> None:
        before = self._source[node.start_byte - 1 : node.start_byte]
        after = self._source[node.end_byte : node.end_byte + 1]
        if (
            (before and before not in _BEFORE_COMMENT)
            or self._source[max(0, node.start_byte - 2) : node.start_byte] == b"\\\n"
            or after not in (b"", b"\n")
            or "\n" in self._get_node_text(node)
        ):
            raise UnjudgeableShellCommandError("a comment ends elsewhere than it seems")

    def _on_redirected_statement(self, node: Node) -> None:
        body: Node | None = None
        redirects: list[Node] = []
        position = node.start_byte
        for child in node.children:
            if not _BETWEEN_STATEMENTS.fullmatch(self._source, position, child.start_byte):
                raise UnjudgeableShellCommandError(
                    "the command holds text between its parts that is not judged"
                )
            position = child.end_byte
            if child.type in _REDIRECTS:
                redirects.append(child)
            elif body is None and not redirects:
                body = child
            else:
                raise UnjudgeableShellCommandError("a redirection stands where it is not judged")
        if body is not None and body.type == "command":
            self._walk_command(body, *parse_redirections(redirects, self._source, self._decode_node_words))
            return
        # The grammar binds a redirection to a whole list, bash to its last command: a `cd` in it comes first.
        if body is not None:
            self._walk_statement(body)
        reads, writes = parse_redirections(redirects, self._source, self._decode_node_words)
        if reads or writes:
            self._append_readonly_command(
                self._get_node_text(node),
                self.directories.resolve_paths(reads),
                self.directories.resolve_paths(writes),
                "it redirects",
            )

    def _on_file_redirect(self, node: Node) -> None:
        reads, writes = parse_redirections([node], self._source, self._decode_node_words)
        self._append_readonly_command(
            self._get_node_text(node),
            self.directories.resolve_paths(reads),
            self.directories.resolve_paths(writes),
            "it redirects",
        )

    def _on_for_statement(self, node: Node) -> None:
        children = node.children
        if children[0].type != "for" or not is_harmless_shell_variable(self._get_node_text(children[1])):
            raise UnjudgeableShellCommandError("the loop sets a variable that others may obey")
        self._check_spacing(children)
        rest = list(children[2:])
        self.repeated += 1
        while rest and rest[0].type != "do_group":
            child = rest.pop(0)
            if child.type in WORD_NODE_TYPES:
                self._decode_node_words(child)
            elif child.type not in ("in", ";", "\n"):
                raise UnjudgeableShellCommandError(
                    f"{self._get_node_text(child)[:60]!r} is a construct that is not judged"
                )
        self._walk_statement_sequence(rest, rest[0].start_byte if rest else node.end_byte)
        self.repeated -= 1

    def _on_case_statement(self, node: Node) -> None:
        children = node.children
        self._check_spacing(children)
        self._decode_node_words(children[1])
        for child in children[2:]:
            if child.type == "case_item":
                self._walk_case_item(child)
            elif child.type not in ("in", "esac", "\n", ";"):
                raise UnjudgeableShellCommandError("the case is written in a way that is not judged")

    def _check_spacing(self, children: list[Node]) -> None:
        """Check that only blanks and newlines separate the words of a construct."""
        for left, right in pairwise(children):
            gap = self._source[left.end_byte : right.start_byte]
            if gap == b" ":
                continue
            may_touch = right.type in (";", "\n") or left.type in (";", "\n", ";;")
            if gap.strip(b" \t\n") or not (gap or may_touch):
                raise UnjudgeableShellCommandError(
                    "the command holds text between its parts that is not judged"
                )

    def _walk_case_item(self, node: Node) -> None:
        children = list(node.children)
        while children and children[0].type != ")":
            child = children.pop(0)
            if children and self._source[child.end_byte : children[0].start_byte].strip(b" \t"):
                raise UnjudgeableShellCommandError("the case has a pattern that is not judged")
            if child.type not in ("|", "(") and not PLAIN_PATTERN.fullmatch(self._get_node_text(child)):
                raise UnjudgeableShellCommandError("the case has a pattern that is not judged")
        self._walk_statement_sequence(children, children[0].start_byte if children else node.end_byte)

    def _on_function_definition(self, node: Node) -> None:
        name = self._get_node_text(next(child for child in node.children if child.type == "word"))
        if not SIMPLE_WORD.fullmatch(name):
            raise UnjudgeableShellCommandError("the function has a name that is not judged")
        self.functions.add(name)
        self.repeated += 1
        for child in node.children:
            if child.type == "compound_statement":
                self._walk_statement(child)
            elif child.type not in ("word", "function", "(", ")"):
                raise UnjudgeableShellCommandError("the function is written in a way that is not judged")
        self.repeated -= 1

    # Assignments

    def _on_variable_assignments(self, node: Node) -> None:
        for child in node.children:
            self._walk_statement(child)

    def _on_variable_assignment(self, node: Node) -> None:
        name = self._parse_variable_assignment(node)
        if not (is_harmless_shell_variable(name) or name in HARMLESS_VARIABLES):
            raise UnjudgeableShellCommandError(f"it sets {name}, which later commands may obey")
        self._append_readonly_command(self._get_node_text(node), (), (), f"sets {name}")

    def _on_declaration_command(self, node: Node) -> None:
        keyword, *arguments = node.children
        for child in arguments:
            is_harmless = (
                child.type == "variable_assignment"
                and self._parse_variable_assignment(child) in HARMLESS_VARIABLES
            )
            if keyword.type != "export" or not is_harmless:
                raise UnjudgeableShellCommandError(
                    f"{self._get_node_text(node)[:60]!r} changes what later commands obey"
                )
        self._append_readonly_command(self._get_node_text(node), (), (), "sets how things are shown")

    def _parse_variable_assignment(self, node: Node) -> str:
        """Return the name that an assignment sets; walks the substitutions in its value."""
        name, equals, *value = node.children
        if (
            name.type != "variable_name"
            or equals.type not in ("=", "+=")
            or name.end_byte != equals.start_byte
        ):
            raise UnjudgeableShellCommandError("an assignment is written in a way that is not judged")
        if len(value) > 1 or (value and value[0].start_byte != equals.end_byte):
            raise UnjudgeableShellCommandError("an assignment is written in a way that is not judged")
        if value:
            if value[0].type not in WORD_NODE_TYPES:
                raise UnjudgeableShellCommandError("an assignment is written in a way that is not judged")
            self._decode_node_words(value[0])
        if not _VARIABLE_NAME.fullmatch(self._get_node_text(name)):
            raise UnjudgeableShellCommandError("an assignment has a name that is none")
        return self._get_node_text(name)

    # Simple commands

    def _on_test_command(self, node: Node) -> None:
        self._expand_found_command(
            node, parse_shell_test_words(node, self._source, self._decode_node_words), (), ()
        )

    def _walk_command(self, node: Node, reads: list[ShellWord], writes: list[ShellWord]) -> None:
        words: list[ShellWord] = []
        sets: list[str] = []
        position = node.start_byte
        source = self._source
        for child in node.children:
            kind = child.type
            start = child.start_byte
            if (
                start != position
                and source[position:start] != b" "
                and not _BETWEEN_WORDS.fullmatch(source, position, start)
            ):
                raise UnjudgeableShellCommandError(
                    "the command holds text between its words that is not judged"
                )
            if kind in WORD_NODE_TYPES or kind == "command_name":
                if start == position and start != node.start_byte:
                    raise UnjudgeableShellCommandError("two words of the command touch")
                words.extend(self._decode_node_words(child.children[0] if kind == "command_name" else child))
            elif kind == "variable_assignment":
                sets.append(self._parse_variable_assignment(child))
            elif kind in _REDIRECTS:
                add_redirection_files(child, source, self._decode_node_words, reads, writes)
            else:
                raise UnjudgeableShellCommandError(
                    f"{self._get_node_text(child)[:60]!r} is a construct that is not judged"
                )
            position = child.end_byte
        self._expand_found_command(node, words, reads, writes, tuple(sets))

    def _expand_found_command(
        self,
        node: Node,
        words: list[ShellWord],
        reads: Sequence[ShellWord],
        writes: Sequence[ShellWord],
        sets: tuple[str, ...] = (),
    ) -> None:
        directories = self.directories
        found = UnexpandedShellCommand(
            text=self._get_node_text(node),
            words=tuple(words),
            via=self._via,
            sets=sets,
            reads=directories.resolve_paths(reads) if reads else (),
            writes=directories.resolve_paths(writes) if writes else (),
        )
        expand_found_command(found, self)

    def _append_readonly_command(
        self, text: str, reads: tuple[str, ...], writes: tuple[str, ...], reason: str
    ) -> None:
        self.parts.append(
            SimpleShellCommand(
                text=text, argv=(), via=self._via, reads=reads, writes=writes, read_only=True, why=reason
            )
        )

    def _decode_node_words(self, node: Node) -> list[ShellWord]:
        nested: list[Node] = []
        words = decode_shell_words(node, self._source, nested)
        for inner in nested:
            self._walk_substitution(inner)
        return words

    def _walk_substitution(self, node: Node) -> None:
        children = node.children
        text = self._get_node_text(node)
        if text[0] == "`" and ("\\" in text or '"' in text or "`" in text[1:-1] or "#" in text):
            raise UnjudgeableShellCommandError(
                "a substitution in backticks is written in a way that is not judged"
            )
        if children[0].type not in ("$(", "`", "<(", ">(") or children[-1].type not in (")", "`"):
            raise UnjudgeableShellCommandError("a substitution is written in a way that is not judged")
        self._enter_nesting_level()
        saved_state = PossibleShellDirectories(self.directories.candidates), self.repeated
        self.repeated = 0
        self._walk_statement_sequence(children[1:-1], children[0].end_byte, end=children[-1].start_byte)
        self.directories, self.repeated = saved_state
        self._depth -= 1
