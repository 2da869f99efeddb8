"""Walk over a parsed command: handles every understood construct and stops at any other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from shoal.policy.shell.conditions import words_of_test
from shoal.policy.shell.known import HARMLESS_VARIABLES
from shoal.policy.shell.parts import Part
from shoal.policy.shell.places import Places
from shoal.policy.shell.plain import plain_line, run_plain
from shoal.policy.shell.programs import is_own_variable
from shoal.policy.shell.redirections import redirect, redirected
from shoal.policy.shell.running import Found, run
from shoal.policy.shell.syntax import DEEPEST_NESTING, Unjudgeable, tree_of
from shoal.policy.shell.words import ARGUMENTS, PLAIN_PATTERN, SIMPLE, Word, words_of

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


class Walk:
    """Collects simple commands, functions and possible directories while walking a syntax tree."""

    def __init__(self, places: Places | None = None) -> None:
        self.parts: list[Part] = []
        self.functions: set[str] = set()
        self.places = places or Places()
        self._source = b""
        self.repeated = 0
        self.trapped = False
        self._depth = 0
        self._via: tuple[str, ...] = ()

    def script(self, text: str, via: tuple[str, ...] = ()) -> None:
        """Walk a whole script; `via` names the commands that would run it."""
        outer = self._source, self._via
        self._enter()
        self._via = via
        plain = plain_line(text)
        if plain is None:
            self._parsed(text)
        else:
            run_plain(text, plain, via, self)
        self._depth -= 1
        self._source, self._via = outer

    def _parsed(self, text: str) -> None:
        root, self._source = tree_of(text)
        if root.type != "program":
            raise Unjudgeable("the command does not parse as bash")
        self._container(root)

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > DEEPEST_NESTING:
            raise Unjudgeable("the command is nested too deeply")

    def _text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode()

    # Statements

    def _statement(self, node: Node) -> None:
        kind = node.type
        if kind == "command":
            self._command(node, [], [])
        elif kind in _CONTAINERS:
            self._enter()
            self._container(node)
            self._depth -= 1
        elif (handler := getattr(self, f"_on_{kind}", None)) is not None:
            self._enter()
            handler(node)
            self._depth -= 1
        else:
            raise Unjudgeable(f"{self._text(node)[:60]!r} is a construct that is not judged")

    def _container(self, node: Node) -> None:
        kind = node.type
        kept = Places(self.places.known) if kind == "subshell" else None
        before = self.repeated
        self.repeated = 0 if kept else before + (kind == "while_statement")
        self._sequence(node.children, 0 if kind == "program" else node.start_byte)
        self.repeated = before
        if kept:
            self.places = kept
        if kind == "program" and not _BETWEEN_STATEMENTS.fullmatch(self._source, node.end_byte):
            raise Unjudgeable("the command goes on after its end")

    def _sequence(self, children: list[Node], at: int, until: int | None = None) -> None:
        source = self._source
        for child in children:
            start = child.start_byte
            if (
                start != at
                and source[at:start] != b" "
                and not _BETWEEN_STATEMENTS.fullmatch(source, at, start)
            ):
                raise Unjudgeable("the command holds text between its parts that is not judged")
            if child.is_named:
                self._statement(child)
            elif (kind := child.type) not in _ENDING_SIGNS and (
                kind not in _TOKENS or not self._stands_alone(child)
            ):
                raise Unjudgeable(f"{kind!r} is a construct that is not judged")
            at = child.end_byte
        if until is not None and not _BETWEEN_STATEMENTS.fullmatch(self._source, at, until):
            raise Unjudgeable("the command holds text between its parts that is not judged")

    def _stands_alone(self, token: Node) -> bool:
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
            or "\n" in self._text(node)
        ):
            raise Unjudgeable("a comment ends elsewhere than it seems")

    def _on_redirected_statement(self, node: Node) -> None:
        body: Node | None = None
        redirects: list[Node] = []
        at = node.start_byte
        for child in node.children:
            if not _BETWEEN_STATEMENTS.fullmatch(self._source, at, child.start_byte):
                raise Unjudgeable("the command holds text between its parts that is not judged")
            at = child.end_byte
            if child.type in _REDIRECTS:
                redirects.append(child)
            elif body is None and not redirects:
                body = child
            else:
                raise Unjudgeable("a redirection stands where it is not judged")
        if body is not None and body.type == "command":
            self._command(body, *redirected(redirects, self._source, self._words))
            return
        # The grammar binds a redirection to a whole list, bash to its last command: a `cd` in it comes first.
        if body is not None:
            self._statement(body)
        reads, writes = redirected(redirects, self._source, self._words)
        if reads or writes:
            self._note(self._text(node), self.places.paths(reads), self.places.paths(writes), "it redirects")

    def _on_file_redirect(self, node: Node) -> None:
        reads, writes = redirected([node], self._source, self._words)
        self._note(self._text(node), self.places.paths(reads), self.places.paths(writes), "it redirects")

    def _on_for_statement(self, node: Node) -> None:
        children = node.children
        if children[0].type != "for" or not is_own_variable(self._text(children[1])):
            raise Unjudgeable("the loop sets a variable that others may obey")
        self._spaced(children)
        rest = list(children[2:])
        self.repeated += 1
        while rest and rest[0].type != "do_group":
            child = rest.pop(0)
            if child.type in ARGUMENTS:
                self._words(child)
            elif child.type not in ("in", ";", "\n"):
                raise Unjudgeable(f"{self._text(child)[:60]!r} is a construct that is not judged")
        self._sequence(rest, rest[0].start_byte if rest else node.end_byte)
        self.repeated -= 1

    def _on_case_statement(self, node: Node) -> None:
        children = node.children
        self._spaced(children)
        self._words(children[1])
        for child in children[2:]:
            if child.type == "case_item":
                self._case_item(child)
            elif child.type not in ("in", "esac", "\n", ";"):
                raise Unjudgeable("the case is written in a way that is not judged")

    def _spaced(self, children: list[Node]) -> None:
        """Check that only blanks and newlines separate the words of a construct."""
        for left, right in pairwise(children):
            gap = self._source[left.end_byte : right.start_byte]
            if gap == b" ":
                continue
            may_touch = right.type in (";", "\n") or left.type in (";", "\n", ";;")
            if gap.strip(b" \t\n") or not (gap or may_touch):
                raise Unjudgeable("the command holds text between its parts that is not judged")

    def _case_item(self, node: Node) -> None:
        children = list(node.children)
        while children and children[0].type != ")":
            child = children.pop(0)
            if children and self._source[child.end_byte : children[0].start_byte].strip(b" \t"):
                raise Unjudgeable("the case has a pattern that is not judged")
            if child.type not in ("|", "(") and not PLAIN_PATTERN.fullmatch(self._text(child)):
                raise Unjudgeable("the case has a pattern that is not judged")
        self._sequence(children, children[0].start_byte if children else node.end_byte)

    def _on_function_definition(self, node: Node) -> None:
        name = self._text(next(child for child in node.children if child.type == "word"))
        if not SIMPLE.fullmatch(name):
            raise Unjudgeable("the function has a name that is not judged")
        self.functions.add(name)
        self.repeated += 1
        for child in node.children:
            if child.type == "compound_statement":
                self._statement(child)
            elif child.type not in ("word", "function", "(", ")"):
                raise Unjudgeable("the function is written in a way that is not judged")
        self.repeated -= 1

    # Assignments

    def _on_variable_assignments(self, node: Node) -> None:
        for child in node.children:
            self._statement(child)

    def _on_variable_assignment(self, node: Node) -> None:
        name = self._assigned(node)
        if not (is_own_variable(name) or name in HARMLESS_VARIABLES):
            raise Unjudgeable(f"it sets {name}, which later commands may obey")
        self._note(self._text(node), (), (), f"sets {name}")

    def _on_declaration_command(self, node: Node) -> None:
        keyword, *given = node.children
        for child in given:
            harmless = child.type == "variable_assignment" and self._assigned(child) in HARMLESS_VARIABLES
            if keyword.type != "export" or not harmless:
                raise Unjudgeable(f"{self._text(node)[:60]!r} changes what later commands obey")
        self._note(self._text(node), (), (), "sets how things are shown")

    def _assigned(self, node: Node) -> str:
        """Return the name that an assignment sets; walks the substitutions in its value."""
        name, equals, *value = node.children
        if (
            name.type != "variable_name"
            or equals.type not in ("=", "+=")
            or name.end_byte != equals.start_byte
        ):
            raise Unjudgeable("an assignment is written in a way that is not judged")
        if len(value) > 1 or (value and value[0].start_byte != equals.end_byte):
            raise Unjudgeable("an assignment is written in a way that is not judged")
        if value:
            if value[0].type not in ARGUMENTS:
                raise Unjudgeable("an assignment is written in a way that is not judged")
            self._words(value[0])
        if not _VARIABLE_NAME.fullmatch(self._text(name)):
            raise Unjudgeable("an assignment has a name that is none")
        return self._text(name)

    # Simple commands

    def _on_test_command(self, node: Node) -> None:
        self._found(node, words_of_test(node, self._source, self._words), (), ())

    def _command(self, node: Node, reads: list[Word], writes: list[Word]) -> None:
        words: list[Word] = []
        sets: list[str] = []
        at = node.start_byte
        source = self._source
        for child in node.children:
            kind = child.type
            start = child.start_byte
            if start != at and source[at:start] != b" " and not _BETWEEN_WORDS.fullmatch(source, at, start):
                raise Unjudgeable("the command holds text between its words that is not judged")
            if kind in ARGUMENTS or kind == "command_name":
                if start == at and start != node.start_byte:
                    raise Unjudgeable("two words of the command touch")
                words.extend(self._words(child.children[0] if kind == "command_name" else child))
            elif kind == "variable_assignment":
                sets.append(self._assigned(child))
            elif kind in _REDIRECTS:
                redirect(child, source, self._words, reads, writes)
            else:
                raise Unjudgeable(f"{self._text(child)[:60]!r} is a construct that is not judged")
            at = child.end_byte
        self._found(node, words, reads, writes, tuple(sets))

    def _found(
        self,
        node: Node,
        words: list[Word],
        reads: Sequence[Word],
        writes: Sequence[Word],
        sets: tuple[str, ...] = (),
    ) -> None:
        places = self.places
        found = Found(
            text=self._text(node),
            words=tuple(words),
            via=self._via,
            sets=sets,
            reads=places.paths(reads) if reads else (),
            writes=places.paths(writes) if writes else (),
        )
        run(found, self)

    def _note(self, text: str, reads: tuple[str, ...], writes: tuple[str, ...], why: str) -> None:
        self.parts.append(
            Part(text=text, argv=(), via=self._via, reads=reads, writes=writes, read_only=True, why=why)
        )

    def _words(self, node: Node) -> list[Word]:
        nested: list[Node] = []
        words = words_of(node, self._source, nested)
        for inner in nested:
            self._substitution(inner)
        return words

    def _substitution(self, node: Node) -> None:
        children = node.children
        text = self._text(node)
        if text[0] == "`" and ("\\" in text or '"' in text or "`" in text[1:-1] or "#" in text):
            raise Unjudgeable("a substitution in backticks is written in a way that is not judged")
        if children[0].type not in ("$(", "`", "<(", ">(") or children[-1].type not in (")", "`"):
            raise Unjudgeable("a substitution is written in a way that is not judged")
        self._enter()
        kept = Places(self.places.known), self.repeated
        self.repeated = 0
        self._sequence(children[1:-1], children[0].end_byte, until=children[-1].start_byte)
        self.places, self.repeated = kept
        self._depth -= 1
