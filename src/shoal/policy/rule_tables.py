"""Rules indexed for fast lookup: per tool, in order of strength."""

from __future__ import annotations

import re
import socket
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from shoal.core.agents.subagents import OTHER_MACHINE_PREFIX, OTHER_SESSION_PREFIX
from shoal.core.extensions.skills import is_full_or_unprefixed_skill_name
from shoal.policy.case_insensitive_paths import ForbiddingPathPattern
from shoal.policy.command_rules import ShellCommandRules
from shoal.policy.path_patterns import convert_path_pattern_to_regex, deepen_forbidding_pattern
from shoal.policy.permission_rules import (
    AGENT_TOOLS,
    EDIT_TOOLS,
    READ_TOOLS,
    PermissionRuleSet,
    ToolPermissionRule,
    find_rule_parameter,
)

if TYPE_CHECKING:
    from shoal.policy.unreadable_files import UnreadableFileRules

_RESOURCE_TOOLS = frozenset({"ListMcpResourcesTool", "ReadMcpResourceTool"})
_NO_SERVER_NAME = re.compile(r"[^A-Za-z0-9_-]")
_HOST = re.compile(r"[a-z0-9_.:-]+")
_ADDRESS = re.compile(r"[0-9][0-9a-fx.]*|[0-9a-f.]*:[0-9a-f.:]*")


class FilePathPermissionRules:
    """Rules of one strength for one file tool; usually a single match shows that no rule applies."""

    def __init__(
        self, rules: Iterable[ToolPermissionRule], roots: Sequence[str], home: str, *, forbids: bool = False
    ) -> None:
        self.bare: ToolPermissionRule | None = None
        self._each: list[tuple[re.Pattern[str] | ForbiddingPathPattern, ToolPermissionRule]] = []
        combined: list[str] = []
        is_plain = True
        for rule in rules:
            if rule.pattern is None:
                self.bare = self.bare or rule
            else:
                text = deepen_forbidding_pattern(rule.pattern) if forbids else rule.pattern
                bases = roots if rule.anchor is None else (rule.anchor,)
                expressions = dict.fromkeys(convert_path_pattern_to_regex(text, base, home) for base in bases)
                expression = "|".join(f"(?:{each})" for each in expressions)
                combined.append(f"(?:{expression})")
                if forbids:
                    pattern = ForbiddingPathPattern(expression)
                    is_plain = is_plain and pattern.is_plain
                    self._each.append((pattern, rule))
                else:
                    self._each.append((_compile_path_regex(expression), rule))
        self._any = _compile_path_regex("|".join(combined), ignores_case=forbids) if is_plain else None
        """Matches every path of ASCII characters that a rule may be about."""
        self.is_empty = not self._each and self.bare is None
        self.find_match: Callable[[str], ToolPermissionRule | None] = (
            lru_cache(maxsize=1024)(self._find_uncached_match) if self._each else _match_nothing
        )
        """Returns the first rule whose pattern matches; cached by path text, since few paths recur often."""
        self.find_rule = self.find_match if self.bare is None else self._find_bare_rule
        """Returns the rule about every file, or else the first whose pattern matches."""
        self.find_match_once = self._find_uncached_match if self._each else _match_nothing
        """Does the same without a cache, for the paths of shell commands: most of them are new."""

    def _find_uncached_match(self, path: str) -> ToolPermissionRule | None:
        if self._any is not None and self._any.fullmatch(path) is None and path.isascii():
            return None
        return next((rule for pattern, rule in self._each if pattern.fullmatch(path)), None)

    @property
    def first_patterned_rule(self) -> ToolPermissionRule | None:
        return self._each[0][1] if self._each else None

    def _find_bare_rule(self, path: str) -> ToolPermissionRule | None:
        return self.bare


class FilePermissionRuleTable:
    """Rules about one tool that reads or changes a file."""

    def __init__(
        self,
        rule_set: PermissionRuleSet,
        tools: frozenset[str],
        roots: Sequence[str],
        home: str,
        *,
        is_removal: bool = False,
    ) -> None:
        def build_path_rules(
            rules: Sequence[ToolPermissionRule], roots: Sequence[str], *, forbids: bool = True
        ) -> FilePathPermissionRules:
            return FilePathPermissionRules(
                [rule for rule in rules if any(rule.applies_to_tool(name) for name in tools)],
                roots,
                home,
                forbids=forbids,
            )

        # Project files stay forbidden to an agent that works elsewhere.
        self.deny, self.ask = build_path_rules(rule_set.deny, roots), build_path_rules(rule_set.ask, roots)
        if not is_removal and not tools.isdisjoint(EDIT_TOOLS):
            # What may not be read may not be written either, including files that do not exist yet.
            unreadable = [rule for rule in rule_set.deny if rule.tool == "Read" and rule.pattern is not None]
            written = [rule for rule in rule_set.deny if any(map(rule.applies_to_tool, tools))]
            self.deny = FilePathPermissionRules((*written, *unreadable), roots, home, forbids=True)
        self.allow = build_path_rules(rule_set.allow, roots[:1], forbids=False)
        self.forbids_nothing = self.deny.is_empty and self.ask.is_empty


class ShellCommandRuleTable:
    """Rules about shell commands."""

    def __init__(self, rule_set: PermissionRuleSet) -> None:
        def find_bare_rule(rules: Sequence[ToolPermissionRule]) -> ToolPermissionRule | None:
            return next(
                (rule for rule in rules if rule.applies_to_tool("Bash") and rule.pattern is None), None
            )

        def find_forbidding_rule(rules: Sequence[ToolPermissionRule]) -> ToolPermissionRule | None:
            # `Bash(*)` also forbids lines without a program, such as `> file`.
            covers_all = (rule for rule in rules if rule.tool == "Bash" and rule.pattern == "*")
            return find_bare_rule(rules) or next(covers_all, None)

        def select_patterned_rules(rules: Sequence[ToolPermissionRule]) -> ShellCommandRules:
            return ShellCommandRules(
                rule
                for rule in rules
                if rule.applies_to_tool("Bash") and rule.pattern is not None and rule.parameter is None
            )

        self.bare_deny, self.bare_ask = map(find_forbidding_rule, (rule_set.deny, rule_set.ask))
        self.bare_allow = find_bare_rule(rule_set.allow)
        self.deny, self.ask, self.allow = map(
            select_patterned_rules, (rule_set.deny, rule_set.ask, rule_set.allow)
        )


class PermissionRuleTables:
    """All active rules. Patterns are relative to `roots`: the agent's own, then those of its parents.

    In a pattern, `~` means the `home` of the user.
    """

    def __init__(self, rule_set: PermissionRuleSet, roots: Sequence[str], home: str) -> None:
        self.rule_set = rule_set
        self._bases = roots, home
        self._files: dict[str, FilePermissionRuleTable] = {}

    def get_file_table(self, tool: str) -> FilePermissionRuleTable:
        table = self._files.get(tool)
        if table is None:
            table = FilePermissionRuleTable(self.rule_set, frozenset({tool}), *self._bases)
            self._files[tool] = table
        return table

    @cached_property
    def shell_read_rules(self) -> FilePermissionRuleTable:
        """Rules about any tool that reads, applied to files that a command reads."""
        return FilePermissionRuleTable(self._select_patterned_rules(), READ_TOOLS, *self._bases)

    @cached_property
    def shell_write_rules(self) -> FilePermissionRuleTable:
        return FilePermissionRuleTable(self._select_patterned_rules(), EDIT_TOOLS, *self._bases)

    @cached_property
    def shell_removal_rules(self) -> FilePermissionRuleTable:
        """Rules about files that a command removes, which neither reads nor writes their contents."""
        patterned_rules = self._select_patterned_rules()
        return FilePermissionRuleTable(patterned_rules, EDIT_TOOLS, *self._bases, is_removal=True)

    @cached_property
    def unreadable_files(self) -> UnreadableFileRules:
        """Files that no tool may read without asking, for commands that search directories."""
        from shoal.policy.unreadable_files import UnreadableFileRules

        patterned_rules = self._select_patterned_rules()
        return UnreadableFileRules(
            _select_read_rules((*patterned_rules.deny, *patterned_rules.ask)), *self._bases
        )

    @cached_property
    def unchangeable_files(self) -> UnreadableFileRules:
        """Files that no tool may change without asking, for commands that change directories."""
        from shoal.policy.unreadable_files import UnreadableFileRules

        patterned_rules = self._select_patterned_rules()
        return UnreadableFileRules(
            [
                rule
                for rule in (*patterned_rules.deny, *patterned_rules.ask)
                if any(map(rule.applies_to_tool, EDIT_TOOLS))
            ],
            *self._bases,
        )

    @cached_property
    def denied_files(self) -> UnreadableFileRules:
        from shoal.policy.unreadable_files import UnreadableFileRules

        return UnreadableFileRules(_select_read_rules(self._select_patterned_rules().deny), *self._bases)

    @cached_property
    def shell_command_rules(self) -> ShellCommandRuleTable:
        return ShellCommandRuleTable(self.rule_set)

    def find_matching_rule(
        self, rules: Sequence[ToolPermissionRule], tool: str, arguments: dict[str, object], *, forbids: bool
    ) -> ToolPermissionRule | None:
        """Return the first rule that matches a call of a tool without files or commands."""
        for rule in rules:
            if rule.applies_to_tool(tool) and (
                rule.pattern is None
                or is_tool_argument_pattern_match(rule.tool, rule.pattern, arguments, forbids=forbids)
            ):
                return rule
            if forbids and tool in _RESOURCE_TOOLS and _is_server_match(rule, arguments.get("server")):
                return rule
        return None

    @cached_property
    def bare_edit_rule(self) -> ToolPermissionRule | None:
        """A rule that forbids every use of a tool that writes files; no mode accepts changes then."""
        tables = tuple(map(self.get_file_table, ("Edit", "Write")))
        bare = (*(table.deny.bare for table in tables), *(table.ask.bare for table in tables))
        return next(filter(None, bare), None)

    @cached_property
    def has_parameter_rules(self) -> bool:
        return any(rule.parameter is not None for rule in (*self.rule_set.deny, *self.rule_set.ask))

    def find_parameter_rule(
        self, rules: Sequence[ToolPermissionRule], tool: str, arguments: dict[str, object]
    ) -> ToolPermissionRule | None:
        """Return the first rule about a parameter that this call gives; a missing one never matches."""
        for rule in rules:
            if (parameter := rule.parameter) is None or not rule.applies_to_tool(tool):
                continue
            value = arguments.get(parameter[0])
            if parameter[0] == "subagent_type" and tool in AGENT_TOOLS:
                if _is_agent_type_match(_get_agent_type(arguments), parameter[1], forbids=True):
                    return rule
                continue
            if any(fnmatchcase(text, parameter[1]) for text in _iter_value_texts(value)):
                return rule
        return None

    def _select_patterned_rules(self) -> PermissionRuleSet:
        def keep_patterned_rules(rules: Sequence[ToolPermissionRule]) -> tuple[ToolPermissionRule, ...]:
            return tuple(rule for rule in rules if rule.pattern is not None)

        rule_set = self.rule_set
        return PermissionRuleSet(
            allow=keep_patterned_rules(rule_set.allow),
            ask=keep_patterned_rules(rule_set.ask),
            deny=keep_patterned_rules(rule_set.deny),
        )


def _match_nothing(path: str) -> None:
    return None


def _select_read_rules(rules: Iterable[ToolPermissionRule]) -> list[ToolPermissionRule]:
    return [rule for rule in rules if any(map(rule.applies_to_tool, READ_TOOLS))]


def _compile_path_regex(expression: str, *, ignores_case: bool = False) -> re.Pattern[str]:
    return re.compile(expression, re.DOTALL | re.IGNORECASE if ignores_case else re.DOTALL)


def _is_server_match(rule: ToolPermissionRule, server: object) -> bool:
    """Return True if a rule is about all tools of an MCP server."""
    if rule.pattern is not None or not rule.tool.startswith("mcp__") or not isinstance(server, str):
        return False
    name = f"mcp__{_NO_SERVER_NAME.sub('_', server)}"
    # No tool has a name with NUL, so that a rule about some tools does not match it.
    return rule.tool == name or ("*" in rule.tool and fnmatchcase(f"{name}__\0", rule.tool))


def _iter_value_texts(value: object) -> Iterator[str]:
    """Yield a value of a call as text, or those in a list or a mapping."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple):
        for each in value:
            yield from _iter_value_texts(each)
    elif value is not None:
        yield str(value).lower() if isinstance(value, bool) else str(value)


def is_tool_argument_pattern_match(
    tool: str, pattern: str, arguments: dict[str, object], *, forbids: bool
) -> bool:
    if tool == "WebFetch":
        return _is_domain_match(
            pattern.removeprefix("domain:").lower(), arguments.get("url"), forbids=forbids
        )
    if tool in AGENT_TOOLS and forbids and not isinstance(arguments.get("subagent_type") or "", str):
        return True
    if tool in AGENT_TOOLS and (forbids or find_rule_parameter(tool, pattern) is None):
        return _is_agent_type_match(_get_agent_type(arguments), pattern, forbids=forbids)
    if find_rule_parameter(tool, pattern) is not None:
        # Forbidding rules about a parameter are decided separately; an allow rule cannot be one.
        return False
    if tool == "Skill":
        name = str(arguments.get("skill"))
        # A forbidden skill is forbidden under its short name too, and `deploy:*` is a prefix.
        if forbids and pattern.endswith(":*"):
            return _is_agent_type_match(name, pattern, forbids=True)
        return name == pattern or (forbids and is_full_or_unprefixed_skill_name(name, pattern))
    if tool == "SendMessage":
        return _is_recipient_match(_get_message_recipient(arguments), pattern, forbids=forbids)
    # Unknown kind of pattern: in doubt a forbidding rule applies and an allowing rule does not.
    return forbids


def _get_agent_type(arguments: dict[str, object]) -> str:
    return str(arguments.get("subagent_type") or "general-purpose")


def _is_agent_type_match(kind: str, pattern: str, *, forbids: bool) -> bool:
    """Match an agent type; a forbidding rule ignores case, applies `*`, and knows agents of plug-ins."""
    if not forbids:
        return kind == pattern
    name, folded = _fold_agent_type(kind), _fold_agent_type(pattern)
    if folded.endswith(":*"):
        folded = f"{folded[:-2]}*"
    return fnmatchcase(name, folded) or is_full_or_unprefixed_skill_name(name, folded)


def _fold_agent_type(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold().strip()


def _get_message_recipient(arguments: dict[str, object]) -> str:
    """Return the recipient of a message; `type` marks the older form."""
    to = str(arguments.get("to") or "")
    match arguments.get("type"):
        case None:
            return to
        case "broadcast":
            return "*"
        case "shutdown_response" | "plan_approval_response":
            return str(arguments.get("recipient") or to or "team-lead")
        case _:
            return str(arguments.get("recipient") or to)


def _is_recipient_match(to: str, pattern: str, *, forbids: bool) -> bool:
    if fnmatchcase(to, pattern):
        return True
    if to == "*":
        # Everyone in the team, which includes the forbidden recipient.
        return forbids and not pattern.startswith((OTHER_SESSION_PREFIX, OTHER_MACHINE_PREFIX))
    # A prefix of an id may name a session; in doubt it is the forbidden one.
    return forbids and to.startswith(OTHER_SESSION_PREFIX) and pattern.startswith(to)


def _is_domain_match(domain: str, url: object, *, forbids: bool) -> bool:
    host = _find_url_host(url, forbids=forbids)
    if host is None:
        return forbids
    if domain == "*":
        return True
    if "*" in domain:
        return _is_domain_glob_match(domain, host, forbids=forbids) or (forbids and not host)
    # An allow rule means this host only; a forbidding rule includes its subdomains.
    is_subdomain = host.endswith(f".{domain}")
    return host == _normalize_address(domain.strip("[]")) or (forbids and is_subdomain)


def _is_domain_glob_match(domain: str, host: str, *, forbids: bool) -> bool:
    """Match a domain with `*`: at the front `*.` is any subdomain, elsewhere a star stays in its label."""
    labels, host_labels = domain.removeprefix("*.").split("."), host.split(".")
    more = len(host_labels) - len(labels)
    is_depth_match = more >= 1 if domain.startswith("*.") else more >= 0 if forbids else more == 0
    return is_depth_match and all(map(fnmatchcase, host_labels[more:], labels))


def _find_url_host(url: object, *, forbids: bool) -> str | None:
    """Return the host that a request would go to; None if programs may read the URL differently."""
    try:
        parts = urlsplit(str(url))
        host = (parts.hostname or "").rstrip(".").lower()
        if forbids and not host.isascii():
            # Other forms of letters and dots mean the same host.
            host = host.encode("idna").decode("ascii").rstrip(".").lower()
    except ValueError:
        return None
    if not _HOST.fullmatch(host) or "\\" in parts.netloc:
        return None
    if not forbids and parts.scheme not in ("http", "https"):
        return None
    return _normalize_address(host)


def _normalize_address(host: str) -> str:
    """Return the usual form of a numeric address, such as 127.0.0.1 for 0x7f.1; other hosts as they are."""
    if not _ADDRESS.fullmatch(host):
        return host
    import ipaddress

    try:
        if ":" not in host:
            return socket.inet_ntoa(socket.inet_aton(host))
        address = ipaddress.IPv6Address(host)
        return str(address.ipv4_mapped or address)
    except (OSError, ValueError):
        return host
