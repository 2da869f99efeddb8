"""Walk over a parsed command: handles every understood construct and stops at any other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from shoal.policy.policy_texts import format_shell_reason
from shoal.policy.shell.code_variables import find_variable_code
from shoal.policy.shell.command_expansion import UnexpandedShellCommand, expand_found_command
from shoal.policy.shell.evaluated_text import UNKNOWN_NUMBER, ShellVariables, note_evaluated_words
from shoal.policy.shell.known_commands import HARMLESS_VARIABLES, REDEFINING_VARIABLES, names_display_file
from shoal.policy.shell.known_values import (
    COUNTING_COMMAND,
    MAX_VALUES,
    can_know_variable,
    classify_output,
    get_read_variable,
    is_certain_statement,
)
from shoal.policy.shell.plain_lines import add_plain_line_commands, parse_plain_command_line
from shoal.policy.shell.program_judges import is_harmless_shell_variable
from shoal.policy.shell.redirections import add_redirection_files, parse_redirections
from shoal.policy.shell.shell_conditions import is_evaluating_test, parse_shell_test_words
from shoal.policy.shell.shell_directories import PossibleShellDirectories
from shoal.policy.shell.shell_syntax import (
    CONTAINERS,
    ENDING_SIGNS,
    MAX_NESTING,
    TOKENS,
    HereDocument,
    UnjudgeableCommandError,
    find_heredoc_substitutions,
    is_standalone_reserved_word,
    parse_shell_command,
    restore_heredoc_operators,
)
from shoal.policy.shell.shell_words import (
    PLAIN_PATTERN,
    SIMPLE_WORD,
    WORD_NODE_TYPES,
    ShellWord,
    decode_shell_words,
    list_globbed_directories,
)
from shoal.policy.shell.simple_commands import SimpleShellCommand

if TYPE_CHECKING:
    from tree_sitter import Node

_REDIRECTS = ("file_redirect", "herestring_redirect")
_BETWEEN_WORDS = re.compile(rb"(?:\\\n)*[ \t](?:[ \t]|\\\n)*")
_BETWEEN_STATEMENTS = re.compile(rb"(?:[ \t\n]|\\\n)*")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BEFORE_COMMENT = b" \t\n;&|()"
_EXPANSION = re.compile(
    r"\$\{(?P<sign>[!#]?)(?P<name>[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-])(?:\[(?P<subscript>[^\]]*)\])?"
    r"(?P<rest>[^'\"\\`{}]*)\}"
)
_SUBSTRING = re.compile(r":[^-=?+]")
_KEYS = re.compile(r"[@*]?")
_PLAIN_PAGERS = frozenset({"PAGER=cat", "GIT_PAGER=cat", "MANPAGER=cat", "SYSTEMD_PAGER=cat", "AWS_PAGER="})
_ASSIGNMENT = re.compile(r"(?<![-+*/%&|<>=!])=(?!=)")
_SUBSCRIPTED = re.compile(r"\[(?P<subscript>[^\]]*)\]=.*", re.DOTALL)
_NESTED_EXPANSIONS = frozenset({"command_substitution", "expansion", "arithmetic_expansion"})


class ShellSyntaxWalker:
    """Collects simple commands, functions and possible directories while walking a syntax tree."""

    def __init__(self, directories: PossibleShellDirectories | None = None) -> None:
        self.parts: list[SimpleShellCommand] = []
        self.functions: set[str] = set()
        self.directories = directories or PossibleShellDirectories()
        self._variables: ShellVariables | None = None
        self.trouble: str | None = None
        self.are_paths_unknown = False
        self.text = ""
        self._source = b""
        self._heredocs: tuple[HereDocument, ...] = ()
        self.repeated = 0
        self.trapped = False
        self._depth = 0
        self._via: tuple[str, ...] = ()
        self._known: dict[str, ShellWord] = {}
        self.piped_from = ""
        self.outer: tuple[tuple[str | None, ...], ...] = ()

    def walk_script(
        self, text: str, via: tuple[str, ...] = (), outer: tuple[tuple[str | None, ...], ...] = ()
    ) -> None:
        """Walk a whole script; `via` names the commands that would run it, `outer` are their words."""
        saved_state = self._source, self._via, self.outer, self.text, self._heredocs
        saved_known, self._known, self.piped_from = self._known, {}, ""
        self._enter_nesting_level()
        self._via, self.outer, self.text = via, outer, text
        plain = parse_plain_command_line(text)
        if plain is None:
            self._walk_parsed_script(text)
        else:
            add_plain_line_commands(text, plain, via, self)
        self._depth -= 1
        self._source, self._via, self.outer, self.text, self._heredocs = saved_state
        self._known = saved_known

    def find_variable(self, name: str) -> ShellWord | None:
        return self._known.get(name)

    def find_heredoc_text(self, index: int) -> str | None:
        return None if self.functions else self._heredocs[index].text

    def find_output(self, commands: str) -> ShellWord | None:
        return None if self.functions else classify_output(commands.strip())

    @property
    def variables(self) -> ShellVariables:
        if self._variables is None:
            self._variables = ShellVariables()
        return self._variables

    def finish_walk(self, command: str) -> None:
        """Add a placeholder if an expression may run an unseen command; note variables that move paths."""
        if self._variables is not None and self._variables.may_run_text:
            self._add_unknown_command("expression_run")
        elif self._variables is not None and (text := self._variables.unproven_expression) is not None:
            self.note_trouble("unknown_construct", text=repr(text[:60]))
        if self._variables is not None and self._variables.may_move(command, self.parts):
            self.are_paths_unknown = True

    def note_trouble(self, key: str, /, **values: object) -> None:
        """Record why the command needs permission, although all that it runs is found."""
        self.trouble = self.trouble or format_shell_reason(key, **values)

    def _add_unknown_command(self, key: str) -> None:
        """Add a placeholder for a command that is known only at run time, which a rule may forbid."""
        reason = format_shell_reason(key)
        self.trouble = self.trouble or reason
        self.parts.append(
            SimpleShellCommand(text=self.text.strip(), argv=None, via=self._via, why=reason, words=(None,))
        )

    def _walk_parsed_script(self, text: str) -> None:
        parsed = parse_shell_command(text)
        self._source, self._heredocs = parsed.source, parsed.heredocs
        if parsed.root.type != "program":
            raise UnjudgeableCommandError("not_bash")
        self._walk_container(parsed.root)
        for body in parsed.live_bodies:
            self._walk_heredoc_body(body)

    def _walk_heredoc_body(self, body: str) -> None:
        self.note_trouble("heredoc_expansions")
        for script in find_heredoc_substitutions(body):
            saved_directories = PossibleShellDirectories(self.directories.candidates)
            self.walk_script(script, self._via, self.outer)
            self.directories = saved_directories

    def _enter_nesting_level(self) -> None:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise UnjudgeableCommandError("deep_nesting")

    def _get_node_text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode()

    # Statements

    def _walk_statement(self, node: Node) -> None:
        kind = node.type
        if kind == "command":
            self._walk_command(node, [], [])
        elif kind == "compound_statement" and node.children[0].type == "((":
            self._walk_arithmetic(node, node.children[0].end_byte, node.children[-1].start_byte)
        elif kind in CONTAINERS:
            self._enter_nesting_level()
            self._walk_container(node)
            self._depth -= 1
        elif (handler := getattr(self, f"_on_{kind}", None)) is not None:
            self._enter_nesting_level()
            handler(node)
            self._depth -= 1
        else:
            raise UnjudgeableCommandError("unknown_construct", text=repr(self._get_node_text(node)[:60]))

    def _walk_container(self, node: Node) -> None:
        kind = node.type
        self.piped_from = self.piped_from if kind in ("pipeline", "while_statement") else ""
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
            raise UnjudgeableCommandError("command_end")

    def _walk_statement_sequence(self, children: list[Node], position: int, end: int | None = None) -> None:
        source = self._source
        is_loop = bool(children) and children[0].type in ("while", "until")
        before: Node | None = None
        for child in children:
            start = child.start_byte
            if (
                start != position
                and source[position:start] != b" "
                and not _BETWEEN_STATEMENTS.fullmatch(source, position, start)
            ):
                raise UnjudgeableCommandError("syntax")
            if child.is_named:
                if before is not None and before.type == "|":
                    self.piped_from = source[children[0].start_byte : before.start_byte].decode()
                elif not is_loop:
                    self.piped_from = ""
                self._walk_statement(child)
            elif (kind := child.type) not in ENDING_SIGNS and (
                kind not in TOKENS or not is_standalone_reserved_word(child, source)
            ):
                raise UnjudgeableCommandError("unknown_construct", text=repr(kind))
            position = child.end_byte
            before = child
        if end is not None and not _BETWEEN_STATEMENTS.fullmatch(self._source, position, end):
            raise UnjudgeableCommandError("syntax")

    def _on_comment(self, node: Node) -> None:
        before = self._source[node.start_byte - 1 : node.start_byte]
        after = self._source[node.end_byte : node.end_byte + 1]
        if (
            (before and before not in _BEFORE_COMMENT)
            or self._source[max(0, node.start_byte - 2) : node.start_byte] == b"\\\n"
            or after not in (b"", b"\n")
            or "\n" in self._get_node_text(node)
        ):
            raise UnjudgeableCommandError("comment_end")

    def _on_redirected_statement(self, node: Node) -> None:
        body: Node | None = None
        redirects: list[Node] = []
        position = node.start_byte
        for child in node.children:
            if not _BETWEEN_STATEMENTS.fullmatch(self._source, position, child.start_byte):
                raise UnjudgeableCommandError("syntax")
            position = child.end_byte
            if child.type in _REDIRECTS:
                redirects.append(child)
            elif body is None and not redirects:
                body = child
            else:
                raise UnjudgeableCommandError("redirection_place")
        if body is not None and body.type == "command":
            self._walk_command(body, *parse_redirections(redirects, self._source, self._decode_node_words))
            return
        # The grammar binds a redirection to a whole list, bash to its last command: a `cd` in it comes first.
        if body is not None:
            self._walk_statement(body)
        self._append_redirections(node, redirects)

    def _on_file_redirect(self, node: Node) -> None:
        self._append_redirections(node, [node])

    def _append_redirections(self, node: Node, redirects: list[Node]) -> None:
        words = parse_redirections(redirects, self._source, self._decode_node_words)
        reads, writes = map(self.directories.resolve_paths, words)
        if reads or writes:
            self._append_readonly_command(self._get_node_text(node), reads, writes, "it redirects")

    def _on_for_statement(self, node: Node) -> None:
        children = node.children
        variable = self._get_node_text(children[1])
        record_value = self.variables.add_value
        if children[0].type != "for" or not is_harmless_shell_variable(variable):
            self.note_trouble("loop_variable")
            record_value = self._record_variable_value
        self._check_spacing(children)
        rest = list(children[2:])
        values: list[ShellWord] = []
        self.repeated += 1
        while rest and rest[0].type != "do_group":
            child = rest.pop(0)
            if child.type in WORD_NODE_TYPES:
                for word in self._decode_node_words(child):
                    values.append(word)
                    if word.value is not None or not self._is_number_source(child):
                        record_value(variable, word.value)
            elif child.type not in ("in", ";", "\n"):
                raise UnjudgeableCommandError("unknown_construct", text=repr(self._get_node_text(child)[:60]))
        self._append_listed_directories(node, values)
        for value in values if self._can_know_values(variable, values) else [ShellWord(None, many=True)]:
            if value.value or value.pattern or value.stream:
                self._known[variable] = value
            self._walk_statement_sequence(rest, rest[0].start_byte if rest else node.end_byte)
        self._known.pop(variable, None)
        self.repeated -= 1

    def _append_listed_directories(self, node: Node, values: list[ShellWord]) -> None:
        if listed := self.directories.resolve_paths(list_globbed_directories(values)):
            self._append_readonly_command(self._get_node_text(node), listed, (), "it lists files")

    def _can_know_values(self, variable: str, values: list[ShellWord]) -> bool:
        return 0 < len(values) <= MAX_VALUES and not self.functions and can_know_variable(variable, self.text)

    def _on_c_style_for_statement(self, node: Node) -> None:
        children = node.children
        if [child.type for child in children[:2]] != ["for", "(("]:
            raise UnjudgeableCommandError("loop_form")
        end = next(index for index, child in enumerate(children) if child.type == "))")
        self._walk_arithmetic(node, children[1].end_byte, children[end].start_byte, is_loop=True)
        self.repeated += 1
        for child in children[end + 1 :]:
            if child.type in ("do_group", "compound_statement"):
                self._walk_statement(child)
            elif child.type not in (";", "\n"):
                raise UnjudgeableCommandError("loop_form")
        self.repeated -= 1

    def _walk_arithmetic(self, node: Node, start: int, end: int, *, is_loop: bool = False) -> None:
        """Walk the substitutions of an arithmetic expression, and record what it evaluates."""
        text = self._mask_nested_expansions(node, start, end)
        expressions = text.split(";") if is_loop else [text]
        is_assignment = node.type == "compound_statement" and _ASSIGNMENT.search(text) is not None
        if is_assignment or not all(map(self.variables.is_counting, expressions)):
            self.note_trouble("unknown_construct", text=repr(self._get_node_text(node)[:60]))
        depth = 0
        for character in text:
            depth += (character == "(") - (character == ")")
            if depth < 0:
                # To bash two subshells, as in `((a) || (b))`.
                raise UnjudgeableCommandError("expression_end")
        if any(sign in text for sign in "\\`\"';" if sign != ";" or not is_loop) or "$(" in text:
            raise UnjudgeableCommandError("expression_form")
        for expression in expressions:
            self.variables.add_expression(expression)

    def _mask_nested_expansions(self, node: Node, start: int, end: int, *, is_expression: bool = True) -> str:
        """Walk the expansions inside a node; return its text with a mark in place of each.

        In an expression, variables stay, and a mark for anything but a number makes it unknown.
        """
        parts: list[bytes] = []
        stack = list(reversed(node.children))
        position = start
        while stack:
            child = stack.pop()
            if child.type == "process_substitution":
                raise UnjudgeableCommandError("substitution_place")
            if child.type not in _NESTED_EXPANSIONS:
                stack.extend(reversed(child.children))
                continue
            parts.append(self._source[position : child.start_byte])
            position = child.end_byte
            is_number = self._is_number_source(child)
            self._decode_node_words(child)
            text = self._get_node_text(child)
            if not is_expression:
                parts.append(b"\x01")
            elif child.type == "expansion" and "$(" not in text and "`" not in text:
                parts.append(text.encode())
            else:
                parts.append(UNKNOWN_NUMBER.encode() if is_number else b"[\x01]")
        parts.append(self._source[position:end])
        return b"".join(parts).decode()

    def _is_number_source(self, node: Node) -> bool:
        if node.type == "arithmetic_expansion":
            return True
        if node.type == "string" and len(node.children) == 3:
            return self._is_number_source(node.children[1])
        if node.type != "command_substitution" or self.functions or len(node.children) != 3:
            return False
        command = node.children[1]
        if command.type == "pipeline":
            command = command.children[-1]
        return COUNTING_COMMAND.fullmatch(self._get_node_text(command)) is not None

    def _on_case_statement(self, node: Node) -> None:
        children = node.children
        self._check_spacing(children)
        self._decode_node_words(children[1])
        for child in children[2:]:
            if child.type == "case_item":
                self._walk_case_item(child)
            elif child.type not in ("in", "esac", "\n", ";"):
                raise UnjudgeableCommandError("case_form")

    def _check_spacing(self, children: list[Node]) -> None:
        """Check that only blanks and newlines separate the words of a construct."""
        for left, right in pairwise(children):
            gap = self._source[left.end_byte : right.start_byte]
            if gap == b" ":
                continue
            may_touch = right.type in (";", "\n") or left.type in (";", "\n", ";;")
            if gap.strip(b" \t\n") or not (gap or may_touch):
                raise UnjudgeableCommandError("syntax")

    def _walk_case_item(self, node: Node) -> None:
        children = list(node.children)
        while children and children[0].type != ")":
            child = children.pop(0)
            if children and self._source[child.end_byte : children[0].start_byte].strip(b" \t"):
                raise UnjudgeableCommandError("case_pattern")
            if child.type in ("|", "(") or PLAIN_PATTERN.fullmatch(self._get_node_text(child)):
                continue
            if child.type not in WORD_NODE_TYPES:
                raise UnjudgeableCommandError("case_pattern")
            self.note_trouble("case_pattern")
            self._decode_node_words(child)
        self._walk_statement_sequence(children, children[0].start_byte if children else node.end_byte)

    def _on_function_definition(self, node: Node) -> None:
        name = self._get_node_text(next(child for child in node.children if child.type == "word"))
        if not SIMPLE_WORD.fullmatch(name):
            raise UnjudgeableCommandError("function_name")
        self.functions.add(name)
        self.repeated += 1
        for child in node.children:
            if child.type in ("compound_statement", "subshell", *_REDIRECTS):
                if child.type != "compound_statement":
                    self.note_trouble("function_form")
                self._walk_statement(child)
            elif child.type not in ("word", "function", "(", ")"):
                raise UnjudgeableCommandError("function_form")
        self.repeated -= 1

    # Assignments

    def _on_variable_assignments(self, node: Node) -> None:
        for child in node.children:
            self._walk_statement(child)

    def _on_variable_assignment(self, node: Node) -> None:
        name = self._parse_variable_assignment(node)
        if not (is_harmless_shell_variable(name) or name in HARMLESS_VARIABLES):
            self.note_trouble("sets_variable", name=name)
        self._note_known_value(name, node)
        self._append_readonly_command(self._get_node_text(node), (), (), f"sets {name}")

    def _note_known_value(self, name: str, node: Node) -> None:
        """Note the value of a variable that is certainly set before what follows."""
        if not is_certain_statement(node) or node.children[-1].type not in WORD_NODE_TYPES:
            return
        words = decode_shell_words(node.children[-1], self._source, [], self)
        if len(words) == 1 and (words[0].value or words[0].stream) and self._can_know_values(name, words):
            self._known[name] = words[0]

    def _on_declaration_command(self, node: Node) -> None:
        keyword, *arguments = node.children
        self._check_spacing(node.children)
        flags = ""
        if not arguments:
            self.note_trouble("prints_variables", keyword=keyword.type)
        for child in arguments:
            is_harmless, name = False, ""
            if child.type == "variable_assignment":
                name = self._parse_variable_assignment(child)
                is_harmless = keyword.type == "export" and name in HARMLESS_VARIABLES
            elif child.type in WORD_NODE_TYPES:
                words = self._decode_node_words(child)
                flags += "".join(word.value or "" for word in words if word.may_be_flag)
                self._record_declared_words(keyword.type, words)
            elif child.type == "variable_name":
                name = self._get_node_text(child)
            else:
                raise UnjudgeableCommandError("declaration_form")
            if name and ("i" in flags or "n" in flags):
                # Its values, here and later, are expressions or names.
                self.variables.add_expression(name)
            if not is_harmless:
                self.note_trouble("later_behavior", text=repr(self._get_node_text(node)[:60]))
        self._append_readonly_command(self._get_node_text(node), (), (), "sets display options")

    def _record_declared_words(self, keyword: str, words: list[ShellWord]) -> None:
        """Record the variables that quoted or unknown words of a declaration set."""
        for word in words:
            name, equals, value = (word.value or "").partition("=")
            if word.value is None:
                self.add_code(None)
            elif equals:
                self._record_variable_value(name.rstrip("+"), value)
        note_evaluated_words(keyword, words, self.variables)

    def _on_unset_command(self, node: Node) -> None:
        words = [
            word
            for child in node.children[1:]
            for word in (
                [ShellWord(self._get_node_text(child))]
                if child.type == "variable_name"
                else self._decode_node_words(child)
            )
        ]
        self._check_spacing(node.children)
        self._expand_found_command(node, [ShellWord("unset"), *words], (), ())

    def _record_variable_value(self, name: str, value: str | None) -> None:
        if name in REDEFINING_VARIABLES:
            raise UnjudgeableCommandError("later_reading", name=name)
        self.variables.add_value(name, value)
        if code := find_variable_code(name, value):
            self.add_code(*code)

    def add_code(self, *code: str | None) -> None:
        """Add text that a later command may run as a command."""
        self.parts.append(
            SimpleShellCommand(
                text=self.text.strip(),
                argv=(),
                via=self._via,
                read_only=True,
                why="sets a variable",
                code=code,
            )
        )

    def _parse_variable_assignment(self, node: Node) -> str:
        """Return the name that an assignment sets; walks the substitutions in its value."""
        name, equals, *value = node.children
        if name.end_byte != equals.start_byte:
            raise UnjudgeableCommandError("assignment_form")
        if name.type == "subscript":
            name = self._walk_subscript(name)
        if name.type != "variable_name" or equals.type not in ("=", "+="):
            raise UnjudgeableCommandError("assignment_form")
        if len(value) > 1 or (value and value[0].start_byte != equals.end_byte):
            raise UnjudgeableCommandError("assignment_form")
        text = self._get_node_text(name)
        if value and value[0].type == "array":
            self._walk_array(text, value[0])
        elif value:
            self._walk_assigned_value(text, value[0])
        if not _VARIABLE_NAME.fullmatch(text):
            raise UnjudgeableCommandError("assignment_name")
        return text

    def _walk_assigned_value(self, name: str, node: Node) -> None:
        if node.type not in WORD_NODE_TYPES:
            raise UnjudgeableCommandError("assignment_form")
        words = self._decode_node_words(node)
        value = words[0].value if len(words) == 1 else None
        if names_display_file(name, value):
            self.note_trouble("sets_variable", name=name)
        self._record_variable_value(name, "0" if value is None and self._is_number_source(node) else value)

    def _walk_subscript(self, node: Node) -> Node:
        """Walk a subscript of a variable that is set; return the node of its name."""
        self.note_trouble("assignment_form")
        name = node.children[0]
        subscript = self._mask_nested_expansions(node, name.end_byte, node.end_byte)
        if not (subscript.startswith("[") and subscript.endswith("]")):
            raise UnjudgeableCommandError("assignment_form")
        self.variables.add_expression(subscript[1:-1])
        return name

    def _walk_array(self, name: str, node: Node) -> None:
        self.note_trouble("assignment_form")
        self._check_spacing(node.children[1:-1])
        for child in node.children[1:-1]:
            if child.type not in WORD_NODE_TYPES:
                raise UnjudgeableCommandError("array_form")
            if (match := _SUBSCRIPTED.fullmatch(self._get_node_text(child))) is not None:
                self.variables.add_expression(match["subscript"])
            for word in self._decode_node_words(child):
                self._record_variable_value(name, word.value)

    # Simple commands

    def _on_test_command(self, node: Node) -> None:
        words = parse_shell_test_words(node, self._source, self._decode_node_words, self.variables)
        if words[0].value == "[[" and is_evaluating_test(words):
            self.note_trouble("test_evaluates")
        self._expand_found_command(node, words, (), ())

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
                raise UnjudgeableCommandError("syntax")
            if kind in WORD_NODE_TYPES or kind == "command_name":
                if start == position and start != node.start_byte:
                    raise UnjudgeableCommandError("no_space")
                words.extend(self._decode_node_words(child.children[0] if kind == "command_name" else child))
            elif kind == "variable_assignment":
                name = self._parse_variable_assignment(child)
                if self._get_node_text(child) not in _PLAIN_PAGERS:
                    sets.append(name)
            elif kind in _REDIRECTS:
                add_redirection_files(child, source, self._decode_node_words, reads, writes)
            else:
                raise UnjudgeableCommandError("unknown_construct", text=repr(self._get_node_text(child)[:60]))
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
            text=restore_heredoc_operators(self._get_node_text(node), self._source, node, self._heredocs),
            words=tuple(words),
            via=self._via,
            outer=self.outer,
            sets=sets,
            reads=directories.resolve_paths(reads) if reads else (),
            writes=directories.resolve_paths(writes) if writes else (),
        )
        expand_found_command(found, self)
        if words and words[0].value == "read" and self.piped_from and "<" not in self.text:
            self._note_read_value(words)

    def _note_read_value(self, words: list[ShellWord]) -> None:
        output = self.find_output(self.piped_from)
        name = get_read_variable(words)
        if output is not None and name is not None and self._can_know_values(name, [output]):
            self._known[name] = output

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
        words = decode_shell_words(node, self._source, nested, self)
        for inner in nested:
            self._walk_substitution(inner)
        return words

    def _walk_unusual_expansion(self, node: Node) -> None:
        """Walk an expansion that evaluates or assigns something, or that has others inside."""
        self.note_trouble("unknown_expansion", text=self._get_node_text(node)[:60])
        match = _EXPANSION.fullmatch(
            "${"
            + self._mask_nested_expansions(
                node, node.children[0].end_byte, node.end_byte, is_expression=False
            )
        )
        if match is None or "$(" in match[0] or "<(" in match[0] or ">(" in match[0]:
            raise UnjudgeableCommandError("unpredictable", text=self._get_node_text(node)[:60])
        rest = match["rest"]
        if match["subscript"] is not None and not _KEYS.fullmatch(match["subscript"]):
            self.variables.add_expression(match["subscript"].replace("\x01", "`"))
        if match["sign"] == "!" and not (match["subscript"] or rest[:1] in ("*", "@")):
            self.variables.add_expression(match["name"])
        if rest == "@P":
            self._add_unknown_command("expansion_run")
        elif _SUBSTRING.match(rest):
            self.variables.add_expression(rest[1:].replace("\x01", "`"))
        elif rest.startswith((":=", "=")):
            self._record_variable_value(match["name"], None)

    def _walk_substitution(self, node: Node) -> None:
        if node.type == "simple_expansion":
            self.note_trouble("secret_variable", text=self._get_node_text(node).strip())
            return
        if node.type == "expansion":
            self._walk_unusual_expansion(node)
            return
        if node.type == "arithmetic_expansion":
            children = node.children
            if children[0].type != "$((" or children[-1].type != "))":
                raise UnjudgeableCommandError("expression_form")
            self._walk_arithmetic(node, children[0].end_byte, children[-1].start_byte)
            return
        children, text = node.children, self._get_node_text(node)
        if text[0] == "`" and ("\\" in text or '"' in text or "`" in text[1:-1] or "#" in text):
            raise UnjudgeableCommandError("backticks_form")
        if children[0].type not in ("$(", "`", "<(", ">(") or children[-1].type not in (")", "`"):
            raise UnjudgeableCommandError("substitution_form")
        self._enter_nesting_level()
        saved_state = PossibleShellDirectories(self.directories.candidates), self.repeated
        self.repeated = 0
        self._walk_statement_sequence(children[1:-1], children[0].end_byte, end=children[-1].start_byte)
        self.directories, self.repeated = saved_state
        self._depth -= 1
