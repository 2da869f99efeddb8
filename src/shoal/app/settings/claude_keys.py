"""Settings keys of Claude Code and what Shoal does with each.

docs/how-to/move-from-claude-code.md has the same table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from shoal.core.unused_items import UnusedItem
from shoal.wire.settings_codec import SettingsDocument, is_web_search_choice

KeyUse: TypeAlias = Literal["used", "not used", "refused", "wider here"]


class ClaudeKey(Struct, frozen=True):
    name: str
    use: KeyUse
    advice: str = ""
    """What differs, or what to do."""


_SANDBOX_REMARK = "true turns the network off; false keeps the sandbox of agents in worktrees"
CLAUDE_KEYS = (
    ClaudeKey("agent", "used", "a note names the fields that the lead does not use"),
    ClaudeKey("allowedHttpHookUrls", "used", "the lists in all files must permit a URL"),
    ClaudeKey("allowedMcpServers", "used"),
    ClaudeKey("allowManagedHooksOnly", "used", "only in managed files"),
    ClaudeKey("allowManagedMcpServersOnly", "used", "the lists in all files must permit a server"),
    ClaudeKey("allowManagedPermissionRulesOnly", "used", "only in managed files; other deny rules apply too"),
    ClaudeKey("alwaysThinkingEnabled", "used"),
    ClaudeKey("apiKeyHelper", "used", "a project's helper needs trust"),
    ClaudeKey("attribution", "used", "commit and pr apply; sessionUrl has no effect"),
    ClaudeKey("autoCompactEnabled", "used"),
    ClaudeKey("autoMemoryDirectory", "used", "Shoal reads the notes but does not write any"),
    ClaudeKey("autoMemoryEnabled", "used", "Shoal reads the notes but does not write any"),
    ClaudeKey("autoMode", "not used", "auto mode behaves like default mode"),
    ClaudeKey("autoUpdatesChannel", "not used", "Shoal does not update itself"),
    ClaudeKey("availableModels", "used", "an empty list allows only the default model"),
    ClaudeKey("awsAuthRefresh", "not used", "Bedrock is not supported"),
    ClaudeKey("awsCredentialExport", "not used", "Bedrock is not supported"),
    ClaudeKey("blockedMarketplaces", "not used", "Shoal installs nothing from marketplaces"),
    ClaudeKey("channelsEnabled", "used", "only in managed files; false turns channels off"),
    ClaudeKey("claudeMdExcludes", "used", "a project can exclude only its own files"),
    ClaudeKey("cleanupPeriodDays", "used", "0 removes sessions one hour after they end"),
    ClaudeKey("companyAnnouncements", "not used", "put information for agents in CLAUDE.md"),
    ClaudeKey("deniedMcpServers", "used"),
    ClaudeKey("disableAllHooks", "used"),
    ClaudeKey("disableAutoMode", "used", "auto mode always behaves like default mode"),
    ClaudeKey("disabledMcpjsonServers", "used"),
    ClaudeKey("disabledMcpServers", "used", "also in .claude.json"),
    ClaudeKey("disableSideloadFlags", "used", "only in managed files"),
    ClaudeKey("disableSkillShellExecution", "used"),
    ClaudeKey("editorMode", "not used", "the terminal has no vim mode"),
    ClaudeKey("effortLevel", "used"),
    ClaudeKey("enableAllProjectMcpServers", "used", "in your own files, also in settings.local.json"),
    ClaudeKey("enabledMcpjsonServers", "used", "in your own files, also in settings.local.json"),
    ClaudeKey("enabledPlugins", "used", "applies to installed plug-ins"),
    ClaudeKey("env", "used", "provider and proxy variables apply only in your own files"),
    ClaudeKey("extraKnownMarketplaces", "not used", "list plug-in directories in shoal.plugins"),
    ClaudeKey("fallbackModel", "used", "a model that cannot be used is left out"),
    ClaudeKey("fileSuggestion", "not used", "Shoal completes file names itself"),
    ClaudeKey("forceLoginMethod", "not used", "Shoal has no login; set a key"),
    ClaudeKey("forceLoginOrgUUID", "not used", "Shoal has no login; set a key"),
    ClaudeKey("hooks", "used"),
    ClaudeKey("httpHookAllowedEnvVars", "used", "the lists in all files must permit a variable"),
    ClaudeKey("includeCoAuthoredBy", "used"),
    ClaudeKey("includeGitInstructions", "not used", "the prompt has no git instructions"),
    ClaudeKey("language", "used"),
    ClaudeKey("mcpServers", "used"),
    ClaudeKey("model", "used"),
    ClaudeKey("modelOverrides", "used", "only in your own files"),
    ClaudeKey("otelHeadersHelper", "not used", "set OTEL_EXPORTER_OTLP_HEADERS"),
    ClaudeKey("outputStyle", "used"),
    ClaudeKey("permissions", "used"),
    ClaudeKey("plansDirectory", "used"),
    ClaudeKey("pluginConfigs", "not used", "configure plug-ins in their own files"),
    ClaudeKey("preferredNotifChannel", "not used", "set shoal.notify"),
    ClaudeKey("prefersReducedMotion", "not used", "use --plain"),
    ClaudeKey("respectGitignore", "not used", "Glob and Grep respect .gitignore"),
    ClaudeKey("respondToBashCommands", "not used"),
    ClaudeKey("sandbox", "used", "see the rows below"),
    ClaudeKey("showTurnDuration", "not used"),
    ClaudeKey("skillOverrides", "used", "an unknown value turns the skill off"),
    ClaudeKey("skipDangerousModePermissionPrompt", "not used", "Shoal has no such prompt"),
    ClaudeKey("spinnerTipsEnabled", "not used"),
    ClaudeKey("spinnerTipsOverride", "not used"),
    ClaudeKey("spinnerVerbs", "not used"),
    ClaudeKey("statusLine", "not used", "the status line is fixed"),
    ClaudeKey("strictKnownMarketplaces", "not used", "Shoal installs nothing from marketplaces"),
    ClaudeKey("strictPluginOnlyCustomization", "used", "only in managed files"),
    ClaudeKey("teammateMode", "used", "shoal.teammate_mode overrides it"),
    ClaudeKey("terminalProgressBarEnabled", "not used"),
    ClaudeKey("theme", "used", "dark, light and ansi; custom themes have no effect"),
    ClaudeKey("useAutoModeDuringPlan", "not used", "auto mode always behaves like default mode"),
    ClaudeKey("verbose", "not used", "press Ctrl-O for details"),
    ClaudeKey("worktree", "used", "without baseRef, worktrees start at HEAD"),
    ClaudeKey("permissions.additionalDirectories", "used"),
    ClaudeKey("permissions.allow", "used", "an invalid rule is skipped"),
    ClaudeKey("permissions.ask", "used", "an invalid rule keeps Shoal from starting"),
    ClaudeKey("permissions.defaultMode", "used", "auto behaves like default"),
    ClaudeKey("permissions.deny", "used", "an invalid rule keeps Shoal from starting"),
    ClaudeKey("permissions.disableAutoMode", "used", "auto mode always behaves like default mode"),
    ClaudeKey("permissions.disableBypassPermissionsMode", "used"),
    ClaudeKey("sandbox.enabled", "used", _SANDBOX_REMARK),
    ClaudeKey("sandbox.failIfUnavailable", "used", "false has no effect: Shoal refuses commands instead"),
    ClaudeKey("sandbox.allowUnsandboxedCommands", "not used", "no command leaves the sandbox"),
    ClaudeKey("sandbox.autoAllowBashIfSandboxed", "not used", "set shoal.sandbox.autoAllow"),
    ClaudeKey("sandbox.excludedCommands", "not used", "no command leaves the sandbox"),
    ClaudeKey("sandbox.filesystem.allowManagedReadPathsOnly", "used", "only in managed files"),
    ClaudeKey("sandbox.filesystem.allowRead", "used", "a project's list applies only to its own denyRead"),
    ClaudeKey("sandbox.filesystem.allowWrite", "used", "only in your own files"),
    ClaudeKey("sandbox.filesystem.denyRead", "used"),
    ClaudeKey("sandbox.filesystem.denyWrite", "used"),
    ClaudeKey("sandbox.network.allowedDomains", "used", "commands have no network at all"),
    ClaudeKey("sandbox.network.deniedDomains", "used", "commands have no network at all"),
    ClaudeKey("sandbox.network.strictAllowlist", "used", "commands have no network at all"),
    ClaudeKey("sandbox.credentials.envVars", "used", "mode mask withholds the variable"),
    ClaudeKey("sandbox.credentials.files", "used", "mode mask hides the file"),
)  # fmt: skip
_BY_NAME = {key.name: key for key in CLAUDE_KEYS}
_OWN_KEYS = frozenset({"shoal", "$schema"})
THEMES: dict[str, Literal["dark", "light", "ansi"] | None] = {
    "auto": None,
    "dark": "dark",
    "light": "light",
    "dark-daltonized": "dark",
    "light-daltonized": "light",
    "dark-ansi": "ansi",
    "light-ansi": "ansi",
}
"""Claude Code's themes and the closest themes here; with `auto` or no theme, Shoal asks the terminal."""
MAX_FALLBACK_MODELS = 3
_SECTIONS = ("permissions", "sandbox", "sandbox.filesystem", "sandbox.network", "sandbox.credentials")
_HARMLESS_VALUES: dict[str, Any] = {"editorMode": "normal", "respectGitignore": True}
"""Values of unused keys that request behavior that Shoal has anyway."""


def find_claude_key(name: str) -> ClaudeKey:
    """Return what is known about a key; an unknown key is not used."""
    return _BY_NAME.get(name) or ClaudeKey(name, "not used", "Shoal does not know this key")


def iter_document_keys(document: SettingsDocument) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a document and of its sections, with dots, and their values."""
    for name, value in document.raw.items():
        if name not in _OWN_KEYS:
            yield from iter_keys_below(name, value)


def iter_keys_below(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a key with its value, or the keys of a section, with dots."""
    if name in _SECTIONS and isinstance(value, dict):
        for key, inner in value.items():
            yield from iter_keys_below(f"{name}.{key}", inner)
    else:
        yield name, value


def find_unused_keys(documents: Sequence[SettingsDocument]) -> Iterator[UnusedItem]:
    """Yield each key of the files that has no effect."""
    for document in documents:
        for name, value in iter_document_keys(document):
            if (reason := _find_reason(document, name, value)) is not None:
                location = document.locate_key(name.split("."))
                yield UnusedItem(location=location, name=name, reason=reason)
        yield from _find_unusable_search(document)


def _find_unusable_search(document: SettingsDocument) -> Iterator[UnusedItem]:
    own = document.raw.get("shoal")
    value = own.get("web_search") if isinstance(own, dict) else None
    if document.is_user_controlled and isinstance(value, str) and not is_web_search_choice(value):
        location = document.locate_key(("shoal", "web_search"))
        reason = f"expected provider, the name of an MCP tool or a URL, got {value!r}"
        yield UnusedItem(location=location, name="shoal.web_search", reason=reason)


def _find_reason(document: SettingsDocument, name: str, value: Any) -> str | None:
    key = find_claude_key(name)
    if value is None or (key.use == "not used" and _HARMLESS_VALUES.get(name, ...) == value):
        return None
    if key.use in ("not used", "wider here"):
        return key.advice or "Shoal has no equivalent"
    if name == "theme" and str(value).startswith("custom:"):
        return "custom themes are not supported; set shoal.theme"
    if name == "theme" and value not in THEMES:
        return f"there is no theme {value!r}"
    if name == "fallbackModel" and isinstance(value, list) and len(value) > MAX_FALLBACK_MODELS:
        return f"only the first {MAX_FALLBACK_MODELS} models are used"
    if document.kind != "managed" and key.advice.startswith("only in managed files") and value is not False:
        return "it applies only in managed files"
    return None


def note_zero_cleanup_period(documents: Sequence[SettingsDocument]) -> Iterator[str]:
    for document in documents:
        if document.is_user_controlled and document.raw.get("cleanupPeriodDays") == 0:
            location = document.locate_key(("cleanupPeriodDays",))
            yield (
                f"{location}: cleanupPeriodDays is 0, so the files of a session are removed one hour "
                "after it ends. Claude Code accepts only 1 or more."
            )
