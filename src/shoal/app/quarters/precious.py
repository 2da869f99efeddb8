"""The files under a person's home directory that commands are kept from."""

from __future__ import annotations

# fmt: off
CREDENTIALS = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".git-credentials",
    ".config/git/credentials", ".config/gh", ".config/hub", ".config/glab-cli", ".config/gcloud",
    ".config/op", ".config/doctl", ".password-store", ".local/share/keyrings", ".npmrc", ".yarnrc.yml",
    ".pypirc", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".vault-token",
    ".terraform.d", ".pgpass", ".my.cnf", ".boto", ".s3cfg", ".anthropic", ".config/anthropic",
    ".openai", ".config/openai", ".codex", ".gemini", ".cache/huggingface/token", ".huggingface",
    ".mozilla", ".config/google-chrome", ".config/chromium", ".bash_history", ".zsh_history",
    ".python_history",
)
"""What proves to others who the person is. Hidden."""

START_UP = (
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv",
    ".zprofile", ".zlogin", ".inputrc", ".config/fish", ".gitconfig", ".config/git", ".config/autostart",
    ".config/systemd", ".local/bin", ".vimrc", ".config/nvim",
)
"""What runs when the person opens a shell or an editor, or uses git. Not to be changed."""
# fmt: on
