"""Files in the user's home directory that commands must not access."""

from __future__ import annotations

# fmt: off
CREDENTIAL_PATHS = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".git-credentials",
    ".config/git/credentials", ".config/gh", ".config/hub", ".config/glab-cli", ".config/gcloud",
    ".config/op", ".config/doctl", ".password-store", ".local/share/keyrings", ".npmrc", ".yarnrc.yml",
    ".pypirc", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".vault-token",
    ".terraform.d", ".pgpass", ".my.cnf", ".boto", ".s3cfg", ".anthropic", ".config/anthropic",
    ".openai", ".config/openai", ".codex", ".gemini", ".cache/huggingface/token", ".huggingface",
    ".mozilla", ".config/google-chrome", ".config/chromium", ".bash_history", ".zsh_history",
    ".python_history",
)
"""Credentials and private data of the user. Hidden."""

STARTUP_FILES = (
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv",
    ".zprofile", ".zlogin", ".inputrc", ".config/fish", ".gitconfig", ".config/git", ".config/autostart",
    ".config/systemd", ".local/bin", ".vimrc", ".config/nvim",
)
"""Files that run when the user opens a shell or an editor, or uses git. Read-only."""

PROJECT_CONTROL_FILES = (".git", ".claude", ".mcp.json", ".envrc", ".git/config.worktree")
"""Files at the top of a project that make programs outside of the sandbox run something. Not created."""
# fmt: on
