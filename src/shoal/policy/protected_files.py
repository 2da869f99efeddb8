"""Files that control programs or access: never changed without asking the user."""

from __future__ import annotations

import re
from functools import lru_cache

from shoal.core.text.lazy_patterns import compile_on_first_use

_DIRECTORIES = (
    r"\.git|\.hg|\.svn|\.jj|\.claude(?!/worktrees/)|\.shoal|\.husky|\.cargo|\.devcontainer|\.yarn|\.mvn|\.ssh|\.gnupg|\.aws|\.azure|\.kube|\.docker|\.vscode|\.idea"
    r"|\.password-store|\.config/(?:gcloud|gh|fish|git|autostart|systemd)|\.local/share/keyrings"
)
_FILES = (
    r"\.(?:bash|zsh|ksh|csh|tcsh|mksh)rc|\.bash_(?:profile|login|logout|aliases)|\.z(?:profile|shenv|login|logout)"
    r"|\.(?:profile|login|inputrc|xinitrc|xprofile|xsessionrc|pam_environment|envrc)"
    r"|\.(?:gitconfig|gitmodules|git-credentials|netrc|npmrc|pypirc|mcp\.json|ripgreprc|pgpass|my\.cnf)"
    r"|\.(?:yarnrc|pnp\.|bazel|lefthook|pre-commit-config\.y)[^/]*|\.pnpmfile\.c?js|\.(?:devcontainer|claude)\.json"
    r"|\.(?:vim|gvim|nvim|screen|curl|wget|psql|sqlite|irb|pry|ack)rc|\.(?:exrc|emacs|tmux\.conf|xsession|Rprofile)"
    r"|\.(?:gdbinit|lldbinit|lesskey|lessfilter|mailcap)|\.?mise(?:\.local)?\.toml"
    r"|\.env(?!\.(?:example|sample|template|dist)$)(?:\.[^/]*)?"
)
_DOTTED = compile_on_first_use(rf"/(?:(?:{_DIRECTORIES})(?:/|$)|(?:{_FILES})$)", re.IGNORECASE)
_KEY_ENDINGS = (".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".asc", ".gpg")
_ENDINGS = (*_KEY_ENDINGS, "-wrapper.properties")
_NAMES = (
    *("rust-toolchain", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "authorized_keys", "known_hosts"),
    *("bunfig.toml", "pyrightconfig.json", "lefthook.y", "lefthook-local.y"),
)


@lru_cache(maxsize=2048)  # caches text only: where a path leads is checked each time
def is_protected_path(path: str, start: int = 0) -> bool:
    """Return True if a real, absolute path is protected, judging only the part after `start`."""
    # Nearly every such name begins with a dot, and few paths contain one.
    if path.find("/.", start) >= 0 and _DOTTED.search(path, start) is not None:
        return True
    name = path[path.rfind("/") + 1 :].lower()
    return name.endswith(_ENDINGS) or name.startswith(_NAMES)
