"""Names of programs without directory and version, and names that mean the same program."""

from __future__ import annotations

import re
from functools import lru_cache

_GNU_PROGRAMS = """
    awk base64 basename cat chgrp chmod chown chroot cksum comm cp cut date dd df dirname du echo env
    expand find fold grep head id install join kill link ln locate logname ls md5sum mkdir mkfifo mknod
    mktemp mv nice nl nohup od paste pr printenv printf pwd readlink realpath rm rmdir seq sha256sum
    shred shuf sleep sort split stat stty sum sync tac tail tar tee test timeout touch tr true truncate
    tsort tty uname uniq unlink updatedb wc who whoami xargs yes
    """.split()  # noqa: SIM905 - a list to be read and extended
PROGRAM_NAMES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("gradlew", "gw"), ("gradle",)),
    **dict.fromkeys(("apt-get", "aptitude"), ("apt",)),
    **dict.fromkeys(("yum", "microdnf"), ("dnf",)),
    **dict.fromkeys(("tofu", "terragrunt"), ("terraform",)),
    **dict.fromkeys(("oc", "kubecolor", "microk8s.kubectl"), ("kubectl",)),
    "hub": ("git",),
    "wcurl": ("curl",),
    "mvnw": ("mvn",),
    "mvnd": ("mvn",),
    "nodejs": ("node",),
    "gmake": ("make",),
    "gsed": ("sed",),
    "bsdtar": ("tar",),
    "flyctl": ("fly",),
    "sls": ("serverless",),
    "vc": ("vercel",),
    "ntl": ("netlify",),
    "inv": ("invoke",),
    "docker-compose": ("docker", "compose"),
    "podman-compose": ("podman", "compose"),
    "npx": ("npm", "exec"),
    "pnpx": ("pnpm", "dlx"),
    "bunx": ("bun", "x"),
    "uvx": ("uv", "tool", "run"),
    "rails": ("rake",),
    "sudoedit": ("sudo", "-e"),
    # Programs that start ssh with their words.
    **dict.fromkeys(
        ("slogin", "autossh", "mosh", "ssh-copy-id", "sshfs", "pssh", "parallel-ssh", "pdsh", "cssh"),
        ("ssh",),
    ),
    # The names of GNU programs beside those of another system.
    **{f"g{name}": (name,) for name in _GNU_PROGRAMS},
}
"""Other names of programs, and the command that they stand for."""


_VERSION = re.compile(r"(?:[-_]v?)?[\d.]+$")


def get_plain_name(name: str) -> str:
    """Return the program without directory and version, as `python` for `/usr/bin/python3.11`."""
    base_name = name[name.rfind("/") + 1 :].removesuffix(".exe")
    return _VERSION.sub("", base_name) if base_name[-1:].isdigit() else base_name


@lru_cache(maxsize=1024)
def get_standard_name(name: str) -> str:
    """Return the program under its usual name, as `npm` for `npx`."""
    plain_name = get_plain_name(name)
    found = PROGRAM_NAMES.get(plain_name)
    return plain_name if found is None else found[0]
