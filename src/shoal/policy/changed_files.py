"""Files that a shell command may change without naming them as its output, for rules that forbid changes."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise

from shoal.policy.command_rules import skip_git_flags
from shoal.policy.output_flags import is_input_flag
from shoal.policy.shell.command_analysis import SimpleShellCommand
from shoal.policy.shell.inner_commands import LANGUAGES
from shoal.policy.shell.known_commands import (
    COMMAND_RUNNERS,
    INTERPRETERS,
    NOT_RUNNING_COMMANDS,
    WRITING_COMMANDS,
)
from shoal.policy.shell.small_languages import AWKS, list_sed_files
from shoal.policy.shell.wrapper_commands import SHELLS, WRAPPERS
from shoal.policy.unreadable_files import (
    COMPILERS,
    COMPUTED_COPY,
    CONTAINER_PROGRAMS,
    DIRECTORY_TOOLS,
    WORKING_DIRECTORY,
    get_program_name,
    has_unknown_code,
    iter_input_tokens,
    iter_unknown_path_ends,
    list_mounted_directories,
)
from shoal.policy.wildcards import GLOB

OPERAND_CHANGERS = frozenset(
    """
    chmod chown chgrp chattr setfacl setfattr black isort autopep8 yapf ruff prettier eslint biome gofmt
    goimports rustfmt clang-format shfmt dos2unix unix2dos rename prename shred sponge ed ex vi vim nvim nano
    emacs csplit split mktemp flock zip gzip bzip2 xz zstd gunzip bunzip2 unxz indent sed perl awk gawk mawk
    busybox toybox history
    find npx pnpx bunx uvx patch tar bsdtar unzip cpio 7z curl wget env sass lessc sphinx-build rclone s3cmd
    ctags mdformat markdownlint markdownlint-cli2 doctoc sd comby ast-grep sg mmv taplo stylua djlint nixfmt
    alejandra cmake-format sqlfluff rubocop standardrb scalafmt ktlint swiftformat php-cs-fixer pint dprint
    ssort usort ufmt pycln unify rpl replace sad fastmod codemod ruplacer astyle uncrustify recode wipe
    srm xattr
    ormolu fourmolu tidy csharpier virtualenv cookiecutter copier degit cpp unrar unar 2to3 pyupgrade
    autoflake docformatter pigz unpigz uncompress pbzip2 unlzma unzstd lz4 unlz4 lzip
    brotli unbrotli gpg gpg2 age add-trailing-comma reorder-python-imports codespell jupytext nbstripout
    """.split()  # noqa: SIM905 - a list to be read and extended
)
"""Programs that may change the files and directories named in their arguments."""
_OPERAND_READERS = (
    (
        DIRECTORY_TOOLS
        | NOT_RUNNING_COMMANDS
        | COMMAND_RUNNERS
        | COMPILERS
        | INTERPRETERS
        | SHELLS
        | frozenset(WRAPPERS)
        | frozenset(
            """
        rsync scp install dd ssh nc ncat cloc scc tokei loc lizard semgrep trivy bat delta
        pygmentize highlight glow mdcat jq yq xq gron fx xmllint csvlook csvstat csvcut mlr xsv
        tsx ts-node esno open xdg-open vulture pydocstyle pycodestyle pyright-python pyre pytype deptry
        interrogate darglint
        jshint jscpd depcheck madge knip tsd attw publint size-limit webpack-bundle-analyzer http-server
        serve live-server uvicorn gunicorn hypercorn flask streamlit celery daphne waitress-serve php-fpm
        behave robot locust cypress wdio testcafe karma detox appium k6 artillery newman bats shellspec
        kubeconform kubeval conftest checkov tfsec terrascan cfn-lint actionlint yamale spectral redocly
        buf proselint vale write-good alex textlint lychee linkchecker aspell hunspell wdiff colordiff
        difft meld vimdiff kdiff3 opendiff diffstat sha512sum gprof gcov nm objdump readelf size strings
        rustc swiftc kotlinc scalac ghc ocamlc ocamlopt nvcc gfortran tcc nim dmd gdc ldc2 fpc erlc
        eval : true false exit wait trap jobs fg bg disown umask ulimit alias
        """.split()  # noqa: SIM905 - easier to read and extend as one text
        )
    )
    - OPERAND_CHANGERS
    - frozenset(
        "dpkg rpm gem man info sort uniq cut tr diff cat head tail wc ls grep rg".split()  # noqa: SIM905
    )
)
"""Programs that read the files named in their arguments, or whose outputs are known by their flags."""
_MODULE_FLAG = re.compile(r"-[bBdEiIOqsSuvx]*m(.*)")
_SCRIPT_NAME = re.compile(r"\.(?:sh|bash|zsh|py|rb|pl|js|mjs|cjs|ts)$")
_COPYING_SUBCOMMANDS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("docker", "podman", "nerdctl", "kubectl", "oc"), frozenset({"cp", "config", "plugin"})),
    **dict.fromkeys(
        ("aws", "gsutil", "gcloud", "az", "mc"), frozenset({"cp", "mv", "sync", "rsync", "download"})
    ),
    **dict.fromkeys(("cargo", "poetry", "hatch", "pdm", "npm", "dotnet", "rails", "mix", "flutter"),
                    frozenset({"new", "init", "create", "pack", "vendor", "clone"})),
    **dict.fromkeys(("svn", "hg", "bzr", "fossil"),
                    frozenset({"checkout", "co", "export", "update", "up", "clone", "branch"})),
    **dict.fromkeys(("pnpm", "yarn", "bun"), frozenset({"create", "init", "deploy", "pack"})),
    **dict.fromkeys(("ng", "nest", "hugo", "mkdocs", "stack", "lein", "jekyll", "gatsby", "zola"),
                    frozenset({"new", "init"})),
    "composer": frozenset({"create-project"}),
    "helm": frozenset({"repo", "create", "dependency", "dep", "dependencies"}),
    "deno": frozenset({"init", "compile", "bundle"}),
    "swift": frozenset({"package", "build"}),
    "bundle": frozenset({"gem", "binstubs", "config", "init"}),
    "git": frozenset({"credential-store", "pack-objects", "multi-pack-index", "commit-graph"}),
    "uv": frozenset({"venv", "init", "build"}),
    "hatch": frozenset({"new", "build"}),
    "gh": frozenset({"clone", "download"}),
    "meson": frozenset({"setup"}),
    "django-admin": frozenset({"startproject", "startapp"}),
}  # fmt: skip
"""Subcommands that copy to a path that they name, or that make the directory that they name."""
_MAKING_SUBCOMMANDS = frozenset(
    """
    new init create generate g scaffold export archive vendor clone checkout co download save dump backup
    restore extract unpack screenshot pdf startproject startapp devenv init-templatedir eject
    """.split()  # noqa: SIM905 - a list to be read and extended
)
"""Subcommands of many programs that make the files or directories that they name."""
_SUBCOMMAND_TOOLS = (DIRECTORY_TOOLS | NOT_RUNNING_COMMANDS) - frozenset(
    """
    git pytest find fd fdfind ls du stat tree echo printf test read set export source cat grep rg npm pnpm
    yarn bun make gmake
    """.split()  # noqa: SIM905 - a list to be read and extended
)
_OWN_FILES: dict[str, tuple[frozenset[str], tuple[str, ...]]] = {
    name: (frozenset(subcommands.split()), tuple(files.split()))
    for name, subcommands, files in (
        ("npm", "install i in add uninstall un rm remove r update up upgrade version dedupe audit link init"
         " pkg shrinkwrap ci install-test it", "package.json package-lock.json npm-shrinkwrap.json"),
        ("pnpm", "install i add remove rm un update up import dedupe version", "package.json pnpm-lock.yaml"),
        ("yarn", "install add remove up upgrade import version", "package.json yarn.lock"),
        ("bun", "install i add remove rm update", "package.json bun.lock bun.lockb"),
        ("poetry", "add remove lock update version init self", "pyproject.toml poetry.lock"),
        ("uv", "add remove lock sync run init version", "pyproject.toml uv.lock"),
        ("pdm", "add remove lock update install sync", "pyproject.toml pdm.lock"),
        ("pipenv", "install uninstall lock update upgrade", "Pipfile Pipfile.lock"),
        ("cargo", "add remove rm update generate-lockfile fix", "Cargo.toml Cargo.lock"),
        ("go", "get mod work", "go.mod go.sum go.work"),
        ("bundle", "add remove lock update install", "Gemfile Gemfile.lock"),
        ("composer", "require remove update install", "composer.json composer.lock"),
        ("mix", "deps.get deps.update", "mix.lock"),
        ("terraform", "init providers", ".terraform.lock.hcl"),
        ("pod", "install update", "Podfile.lock"),
        ("flutter", "pub", "pubspec.yaml pubspec.lock"),
        ("pre-commit", "install uninstall", ".git/hooks/pre-commit"),
        ("lefthook", "install add uninstall", ".git/hooks/pre-commit"),
        ("overcommit", "--install --uninstall -i", ".git/hooks/pre-commit"),
        ("husky", "install init add", ".git/config"),
        ("simple-git-hooks", "", ".git/hooks/pre-commit"),
        ("ncu", "-u --upgrade", "package.json"),
        ("npm-check-updates", "-u --upgrade", "package.json"),
    )
}  # fmt: skip
"""Subcommands of package managers that write their own files, with these files."""
_WRITING_FLAG = re.compile(
    r"-[wi]|--(?:write|fix|autofix|in-?place|apply|overwrite|replace|go)(?:-.*)?(?:=.*)?", re.IGNORECASE
)
"""Flags with which programs change the files that they are given."""
_INPUT_FLAG_PROGRAMS = frozenset(
    """
    ssh scp sftp curl wget ffmpeg ffprobe docker podman kubectl npm git go cargo python python3 node ruby
    bash sh
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
"""Programs for which some of these flags mean something else."""
_OUTPUT_NAMERS: dict[str, tuple[frozenset[str], bool]] = {
    name: (frozenset(inputs.split()), is_runner)
    for names, inputs, is_runner in (
        ("ssh autossh mosh", "-i -F -I", True),
        ("fakeroot fakechroot", "-i -l --lib", True),
        ("xvfb-run start-stop-daemon daemonize daemon chpst softlimit", "-x --exec --startas", True),
        ("tmux screen dtach abduco", "-f -c", True),
        ("proot bwrap firejail", "--ro-bind --profile --seccomp", True),
        ("logsave lckdo", "", False),
        ("gdb lldb", "-x -s -e -c -p --command --symbols --exec --core", False),
        ("socat ncat nc netcat telnet", "", False),
        ("ansible", "-i -M --inventory --module-path --vault-password-file --private-key --key-file", False),
        ("aws gcloud az", "", False),
        ("ffmpeg ffprobe", "-i -attach -filter_script -filter_complex_script -fpre", False),
        (
            "openssl",
            "-in -inkey -key -cert -certfile -CA -CAfile -CApath -CAkey -config -signer -recip -rand -passin"
            " -kfile -sigfile -signature -verify -prverify -extfile -chainCAfile -dhparam -paramfile",
            False,
        ),
        ("gunicorn hypercorn uvicorn", "-c --config --env-file --certfile --keyfile --app-dir", True),
        ("celery", "-A --app --workdir -b", True),
        ("robot", "-A --argumentfile -V --variablefile -P --pythonpath", True),
        ("mysql", "--defaults-file --defaults-extra-file --ssl-key --ssl-cert --ssl-ca", False),
    )
    for name in names.split()
}
"""Programs that run commands or read files, but also write files that other words name.

The values of these flags are inputs. For a runner, the words after the first operand are its command.
"""
_NAMED_PART = re.compile(r"[=:,;|\[\]{}()\s\"']+")
_MAX_BUNDLED_FLAGS = 5
_IN_PLACE_FLAG = re.compile(r"-[a-zA-Z0-9]*i(?:\..*|[a-z]*)")
"""Flag with which perl and ruby change files."""
_CHECK_FLAGS = {
    **dict.fromkeys(("black", "ruff"), frozenset({"--check", "--diff"})),
    "isort": frozenset({"--check", "--check-only", "-c", "--diff", "--df"}),
}
"""Flags with which formatters change nothing."""
_FIX_FLAGS: dict[str, tuple[str, ...]] = {
    "eslint": ("--fix",),
    "prettier": ("--w", "-w"),
    **dict.fromkeys(("gofmt", "goimports", "shfmt"), ("-w", "--write")),
    **dict.fromkeys(("clang-format", "autopep8", "yapf"), ("-i", "-r", "--i", "--rec")),
}
"""Flags without which formatters and linters change nothing."""
_TREE_FORMATTERS: dict[str, tuple[frozenset[str], tuple[str, ...]]] = {
    name: (frozenset(words.split()), tuple(endings.split()))
    for name, words, endings in (
        ("ruff", "format --fix --fix-only", ".py .pyi .ipynb"),
        ("cargo", "fmt fix --fix", ".rs"),
        ("go", "fmt fix generate", ".go"),
        ("terraform", "fmt", ".tf .tfvars"),
        ("tofu", "fmt", ".tf .tfvars"),
        ("buf", "format", ".proto"),
        ("dart", "format fix", ".dart"),
        ("mix", "format", ".ex .exs"),
        ("deno", "fmt", ".ts .js .md .json"),
        ("biome", "format check lint", ".ts .js .tsx .jsx .json .css"),
        ("dotnet", "format", ".cs .fs .vb"),
        ("pre-commit", "run", ""),
    )
}
"""Words with which programs change the files of a directory tree that have these endings."""
_COMPRESSED = re.compile(r"\.(?:gz|Z|z|bz2|xz|lzma|zst|lz4|lz|br|gpg|asc|age|enc)$")
_UNCOMPRESSING_PROGRAMS = frozenset(
    """
    gzip gunzip pigz unpigz uncompress bzip2 bunzip2 pbzip2 xz unxz unlzma zstd unzstd lz4 unlz4 lzip brotli
    unbrotli gpg gpg2 age busybox toybox
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
"""Programs that write a file without the ending of the file that they are given."""
_SEDS = frozenset({"sed", "gsed"})
_TARS = frozenset({"tar", "bsdtar", "gtar"})
_TAR_FILE = re.compile(r"-?[A-Za-z]*?f(.+)", re.DOTALL)
"""The archive in the same word as its flag, as in `-czfFILE`."""
_UNPACKERS = {
    **dict.fromkeys(("tar", "bsdtar", "gtar"), re.compile(r"-{0,2}[A-Za-z]*x[A-Za-z]*|--ex.*|--get")),
    "cpio": re.compile(r"-[A-Za-z]*i[A-Za-z]*|--ex.*"),
    **dict.fromkeys(("7z", "7za", "7zr", "7zz", "rar", "unrar"), re.compile("[xe]")),
    **dict.fromkeys(("bsdcpio", "pax"), re.compile(r"-[A-Za-z]*[ir][A-Za-z]*|--ex.*")),
    **dict.fromkeys(
        "cabextract unsquashfs unar innoextract dtrx aunpack patool ouch unace unarj unlzx lha".split(),  # noqa: SIM905
        re.compile(r".*", re.DOTALL),
    ),
    "ar": re.compile(r"-?[A-Za-z]*x[A-Za-z]*"),
    "borg": re.compile("extract"),
    "dar": re.compile(r"-[A-Za-z]*x.*|--extract.*"),
    "jar": re.compile(r"-?[A-Za-z]*x[A-Za-z]*|--ex.*"),
}
_WHOLE_DIRECTORY_CHANGERS = frozenset({"rm", "mv", "ln", "trash", "trash-put", "gio"})
"""Programs that change all files of a directory, or give them other names."""
_GIT_TREE_CHANGERS = frozenset(
    """
    am apply bisect checkout-index cherry-pick clean fast-import filter-branch filter-repo merge merge-file
    mktree mv pull read-tree rebase replay reset restore revert rm sparse-checkout stash submodule subtree
    switch update-index quiltimport archimport cvsimport p4 svn lfs flow absorb machete town branchless annex
    crypt extras
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
_OTHER_TREE_CHANGERS: dict[str, frozenset[str]] = {
    name: frozenset(subcommands.split())
    for name, subcommands in (
        (
            "hg",
            "update up revert checkout co pull merge rebase graft import strip backout shelve unshelve purge",
        ),
        ("svn", "update up revert switch sw merge patch checkout co cleanup"),
        ("jj", "restore edit new abandon squash undo rebase op git split fix resolve"),
        ("sl", "goto pull rebase revert amend unamend shelve unshelve graft import purge fix"),
        ("fossil", "update checkout revert merge undo stash clean"),
        ("gh", "checkout co sync"),
        ("glab", "checkout co"),
        ("hub", "checkout sync am apply merge cherry-pick"),
        ("git-branchless", "move restack prev next switch undo reword record amend sync"),
        ("stg", "push pop goto float sink refresh rebase pull import undo redo reset delete pick fold"),
        ("p4", "sync edit revert resolve integrate merge copy unshelve clean update"),
        ("cvs", "update up checkout co import"),
        ("darcs", "pull apply revert unrecord obliterate rollback unrevert rebase"),
        ("quilt", "push pop refresh fold import revert"),
        ("repo", "sync init checkout rebase start download forall"),
        ("gt", "checkout co sync restack move up down top bottom modify get"),
        ("bzr", "update revert pull merge switch clean-tree shelve unshelve"),
    )
}
"""Subcommands of other version control systems that may change any file."""
_GIT_DIRECTORY_MAKERS = frozenset({"clone", "init", "worktree"})
_GIT_OPERAND_READERS = frozenset(
    """
    add annotate archive blame branch bisect cat-file check-attr check-ignore check-mailmap
    check-ref-format checkout cherry clean clone commit commit-tree count-objects credential describe diff
    diff-files diff-index diff-tree difftool fetch fetch-pack for-each-ref format-patch fsck gc
    get-tar-commit-id grep gui gitk hash-object help instaweb log ls-files ls-remote ls-tree maintenance
    merge-base mktag name-rev notes pack-refs patch-id prune push range-diff reflog remote repack replace
    request-pull rerere rev-list rev-parse send-email shortlog show show-branch show-index show-ref stash
    status submodule symbolic-ref switch tag update-ref update-server-info upload-pack var verify-commit
    verify-pack verify-tag version whatchanged write-tree
    """.split()  # noqa: SIM905 - a list to be read and extended
)
"""Commands of git whose operands are not written, or are looked at elsewhere."""
_HARMLESS_STASH = frozenset({"list", "show", "drop", "clear", "create", "store"})
_NEW_BRANCH = re.compile(r"-[bBcC]|--create|--force-create|--orphan")
_BRANCH_FLAG = re.compile(
    r"-[bBcCqtlm]|--(?:create|force-create|quiet|track|no-track|guess|no-guess|progress|no-progress)"
)
"""Flags of `checkout` and `switch` that leave the files as they are."""
_READING_WORDS: dict[str, frozenset[str]] = {
    "submodule": frozenset({"status", "summary", "init", "sync", "absorbgitdirs"}),
    "bisect": frozenset({"log", "view", "visualize", "terms"}),
    "sparse-checkout": frozenset({"list", "check-rules"}),
}
"""Words of git commands with which they leave the files as they are."""
_SETTING_FILE_FLAGS: dict[str, re.Pattern[str]] = {
    "curl": re.compile(r"-[A-Za-z#0-9:]*K|--conf"),
    "wget": re.compile(r"--conf|-e|--exec"),
    "aria2c": re.compile(r"--conf-path|-i|--input-file"),
    "yt-dlp": re.compile(r"--config-loc"),
    "axel": re.compile(r"-a$"),
}
"""Flags of programs that take further flags from a file, which may name any output."""
_AWK_COMPUTED_OUTPUT = re.compile(r"print[^;}\n]*>(?!>|\s*\"[^\"\\]*\"\s*(?:[;})\n]|$))")
"""awk code that writes a file whose name is not one plain string."""
_COMPUTED_OUTPUT = re.compile(
    r"(?:\bos\.(?:remove|unlink|mkdir|makedirs|rmdir|removedirs|truncate|chmod|open)|\brmtree|\bunlink(?:Sync)?|\brmSync"
    r"|\b(?:write|append)File(?:Sync)?|\bcreateWriteStream|\bmkdirSync|\bFile\.(?:write|delete|open|new)|\bIO\.write"
    r"|\bfile_put_contents|\bopen)\s*\(\s*(?!\)|[rbf]?(['\"])[^'\"+%{$]*\1\s*[,)])"
)
"""Code that changes a file without naming it as one plain text."""
_MAKING_MODULES = frozenset(
    {"venv", "virtualenv", "zipfile", "tarfile", "compileall", "py_compile", "zipapp"}
    | {"trace", "gzip", "sqlite3", "ensurepip", "lib2to3"}
)
"""Modules of Python that write the files that their arguments name."""
_SYSTEM_WRITERS = frozenset(
    """
    useradd userdel usermod groupadd groupdel groupmod adduser deluser addgroup delgroup passwd chpasswd
    chage chfn chsh gpasswd newusers vipw vigr pwconv pwunconv grpconv visudo update-alternatives
    alternatives update-rc.d update-ca-certificates update-locale locale-gen dpkg-reconfigure dpkg-divert
    dpkg-statoverride dpkg apt apt-get aptitude apt-mark apt-key add-apt-repository yum dnf rpm zypper apk
    pacman snap flatpak emerge port brew hostnamectl timedatectl localectl systemctl loginctl service
    chkconfig rc-update initctl launchctl crontab at batch anacron hwclock sysctl modprobe insmod rmmod
    depmod ldconfig mount umount fusermount fusermount3 swapon swapoff mkfs fdisk parted losetup cryptsetup
    lvm nmcli netplan ip ifconfig route iptables nft ufw firewall-cmd resolvectl resolvconf hostname
    domainname setenforce semanage setsebool restorecon authconfig realm certbot debconf-set-selections
    ssh-keygen ssh-copy-id installer defaults softwareupdate nix-env guix mandb updatedb systemd-sysusers
    systemd-tmpfiles systemd-machine-id-setup systemd-firstboot systemd-hwdb bootctl kernel-install homectl
    machinectl portablectl dbus-uuidgen authselect pam-config etckeeper ucf augtool cloud-init pro pkcon
    rpm-ostree nixos-rebuild microdnf dnf5 opkg xbps-install sudoedit
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
"""Programs that change files of the system which their words do not name."""
_SYSTEM_SETTING_FLAGS: dict[str, tuple[str, ...]] = {
    "git": ("--sy",),
    "conda": ("--sys",),
    **dict.fromkeys(("pip", "pip3", "npm", "pnpm", "yarn"), ("--gl", "-g", "--location=gl", "-L")),
}
"""Flags with which the `config` of a program changes settings of the whole system."""
_SYSTEM_PROGRAM_DIRECTORIES = ("/usr/sbin", "/sbin", "/usr/local/sbin")
_BUILD_TOOLS = frozenset(
    {"make", "gmake", "ninja", "meson", "cmake", "scons", "waf", "just", "task", "b2", "bazel"}
)
_INSTALL_WORD = re.compile(r"(?:un)?install(?:[-_.].*)?|--install", re.IGNORECASE)
_MOUNTS = frozenset({"mount", "umount", "fusermount", "fusermount3", "pivot_root", "bindfs", "mount.fuse"})
_PATH_PART = re.compile(r"[\w./~@%+*?-]+")


def iter_possible_changed_paths(part: SimpleShellCommand, *, is_closed: bool) -> Iterator[str]:
    """Yield words, and parts of words, that may be paths it changes.

    With `is_closed`, a program that is not listed may change every file that it names, except its inputs.
    """
    words = _use_module_as_program(part.words or part.argv or ())
    name = get_program_name(words) if words else ""
    yield from _list_own_files(name, words)
    yield from _iter_named_outputs(name, words)
    if _is_only_checking(name, words):
        return
    is_code_runner = name in INTERPRETERS or name.startswith("python")
    copies = not _COPYING_SUBCOMMANDS.get(name, frozenset()).isdisjoint(words[1:4]) or (
        name in _SUBCOMMAND_TOOLS and not _MAKING_SUBCOMMANDS.isdisjoint(words[1:4])
    )
    # A package manager may be told where its files are, as with `--manifest-path`.
    copies = copies or bool(_list_own_files(name, words))
    is_named = name in OPERAND_CHANGERS or copies or _makes_named_files(name, words)
    if (
        not is_named
        and is_closed
        and name not in _INPUT_FLAG_PROGRAMS
        and not _leaves_operands(words[0] or "" if words else "")
    ):
        is_named, words = True, tuple(_iter_words_without_inputs(words))
    if not is_named and name not in _INPUT_FLAG_PROGRAMS and name not in COMPILERS:
        is_named = any(map(_WRITING_FLAG.fullmatch, filter(None, words[1:])))
    if not (is_named or is_code_runner or _is_git_change(name, words)):
        return
    yield from iter_input_tokens(part)
    yield from iter_unknown_path_ends(part)
    # A script that an interpreter runs may change anything; only code in the words is looked at.
    for word in filter(None, words[1:]):
        if is_code_runner and not is_named and " " not in word and "(" not in word:
            continue
        yield word
        yield from _iter_derived_paths(name, word)
        for token in _PATH_PART.findall(word):
            if token != word and not GLOB.search(token):
                yield token
            # As in the commands `wFILE` of sed, `-CDIRECTORY` of tar and `-V1FILE` of vim.
            attached = token[1:] if token[:1] in ("w", "W") else token.lstrip("-")[1:]
            yield from () if GLOB.search(attached) else (attached, attached.lstrip("0123456789"))


def _iter_named_outputs(name: str, words: Sequence[str | None]) -> Iterator[str]:
    """Yield what may be a file that a program writes: words, values in them, and values after flags."""
    if name not in _OUTPUT_NAMERS:
        return
    inputs, is_runner = _OUTPUT_NAMERS[name]
    previous = ""
    for word in words[1:]:
        if is_runner and (word == "--" or not (word or "-").startswith("-")) and previous[:1] != "-":
            return
        if word and previous not in inputs and "file://" not in word:
            yield word
            yield from filter(None, _NAMED_PART.split(word))
            if word[0] == "-" and word[1:2] != "-":
                # As in `-vEFILE`.
                yield from (word[start:] for start in range(2, min(len(word), 2 + _MAX_BUNDLED_FLAGS)))
        previous = word or ""


def _use_module_as_program(words: tuple[str | None, ...]) -> tuple[str | None, ...]:
    """Return `black src` for `python3 -m black src`, but keep a module of Python itself as it is."""
    if not words or not get_program_name(words).startswith("python"):
        return words
    for index, word in enumerate(words[1:], 1):
        match = _MODULE_FLAG.fullmatch(word or "")
        if match is not None:
            module = match[1] or (words[index + 1] if index + 1 < len(words) else None) or ""
            name = module.partition(".")[0]
            is_own = not name or name in sys.stdlib_module_names or name == "pip"
            return words if is_own else (name, *words[index + (1 if match[1] else 2) :])
    return words


def _iter_words_without_inputs(words: Sequence[str | None]) -> Iterator[str | None]:
    """Yield the words without the values of flags that name files to read."""
    previous = ""
    for word in words:
        if not is_input_flag(previous) and not ("=" in (word or "") and is_input_flag(word or "")):
            yield word
        previous = word or ""


def _leaves_operands(program: str) -> bool:
    """Return True if a program is known not to change the files that its words name, except its output.

    A program of the project is as good as an existing script; any other one that is not listed may change
    them.
    """
    name = program[program.rfind("/") + 1 :]
    return (
        not name
        or "/" in program
        or name in _OPERAND_READERS
        or name in _OUTPUT_NAMERS
        or name in WRITING_COMMANDS
        or name.startswith("python")
        or _SCRIPT_NAME.search(name) is not None
    )


def _iter_derived_paths(name: str, word: str) -> Iterator[str]:
    """Yield the files that a word of a program names in the program's own way."""
    if (ending := _COMPRESSED.search(word)) is not None and name in _UNCOMPRESSING_PROGRAMS:
        yield word[: ending.start()]
    if name in _SEDS:
        yield from list_sed_files(word)
    elif name in _TARS and (match := _TAR_FILE.fullmatch(word)) is not None:
        yield match[1]


def _makes_named_files(name: str, words: Sequence[str | None]) -> bool:
    """Return True for `python -m venv`, similar modules, and git commands that write files they name."""
    if name == "git":
        subcommand = (*skip_git_flags(tuple(words))[1:2], "")[0]
        if subcommand == "config":
            return any(word is None or word.startswith(("-f", "--f")) for word in words[1:])
        # A command of git that is not listed may write the files that it names.
        return not (subcommand in _GIT_OPERAND_READERS or _is_git_change(name, tuple(words)))
    return name.startswith("python") and _runs_making_module(words)


def _runs_making_module(words: Sequence[str | None]) -> bool:
    if "json.tool" in words[1:4]:
        # The second operand is its output.
        return len([word for word in words[1:] if (word or "")[:1] != "-"]) > 2
    return any(
        word in _MAKING_MODULES and previous is not None and previous.endswith("m") and previous[:1] == "-"
        for previous, word in pairwise(words)
    ) or any(word is not None and word[:2] == "-m" and word[2:] in _MAKING_MODULES for word in words)


def _is_only_checking(name: str, words: Sequence[str | None]) -> bool:
    """Return True if a formatter or linter only reports what it would change."""
    if None in words:
        return False
    flags = [word or "" for word in words[1:]]
    if name == "ruff" and "check" in flags:
        return not any(flag.startswith(("--fix", "--add-noqa", "--unsafe")) for flag in flags)
    if name in _CHECK_FLAGS:
        return not _CHECK_FLAGS[name].isdisjoint(flags)
    return name in _FIX_FLAGS and not any(flag.startswith(_FIX_FLAGS[name]) for flag in flags)


def _list_own_files(name: str, words: Sequence[str | None]) -> tuple[str, ...]:
    """Return the files that a package manager keeps for itself and may write now."""
    if name in ("npx", "pnpx", "bunx"):
        name = next((word for word in words[1:] if word and word[:1] != "-"), name).partition("@")[0]
    if name in ("sort-package-json", "fixpack", "syncpack"):
        return ("package.json",)
    subcommands, files = _OWN_FILES.get(name, (frozenset[str](), ()))
    return files if not subcommands.isdisjoint(words[1:4]) or (None in words[1:4] and files) else ()


def find_formatted_endings(part: SimpleShellCommand) -> tuple[str, ...] | None:
    """Return the endings of files that a formatter changes in the working directory, or None."""
    words = part.words or part.argv or ()
    signs, endings = _TREE_FORMATTERS.get(get_program_name(words) if words else "", (frozenset[str](), ()))
    return None if signs.isdisjoint(words[1:]) else endings


def list_changed_directories(part: SimpleShellCommand) -> tuple[str, ...]:
    """Return the directories in which a command may change files that it does not name."""
    words = part.words or part.argv or ()
    name = get_program_name(words) if words else ""
    if name in ("patch", "unzip") or (name.startswith("python") and _unpacks_with_module(words)):
        return (WORKING_DIRECTORY,)
    if name in CONTAINER_PROGRAMS:
        return tuple(list_mounted_directories(words, writable=True))
    if name in ("rsync", "cp") and len(words) > 2:
        return (words[-1] or WORKING_DIRECTORY,)
    if name in ("install", "scp", "sftp") and len(words) > 2:
        # The target comes last, or after -t.
        targets = (after for flag, after in pairwise(words) if (flag or "").startswith(("-t", "--t")))
        return tuple(filter(None, (words[-1], *targets)))
    if not _OTHER_TREE_CHANGERS.get(name, frozenset()).isdisjoint(words[1:5]):
        return (WORKING_DIRECTORY,)
    if name in _WHOLE_DIRECTORY_CHANGERS:
        return tuple(word for word in words[1:] if word and word[:1] != "-")
    if (flags := _UNPACKERS.get(name)) is not None:
        return (WORKING_DIRECTORY,) if any(flags.fullmatch(word or "") for word in words[1:]) else ()
    return ()


def _unpacks_with_module(words: Sequence[str | None]) -> bool:
    """Return True for `python -m tarfile -e` and `python -m zipfile -e`."""
    is_archive = not {"tarfile", "zipfile", "-mtarfile", "-mzipfile"}.isdisjoint(words[1:5])
    return is_archive and any(word is None or word.startswith(("-e", "--e")) for word in words[2:])


def changes_system_files(part: SimpleShellCommand) -> bool:
    """Return True for a program that manages the system: it may change files outside the project unnamed."""
    words = part.words or part.argv or ()
    name = get_program_name(words) if words else ""
    if not name or part.read_only:
        return False
    if name in _SYSTEM_WRITERS or name.startswith(("mkfs.", "mount.")):
        return True
    if name in _SYSTEM_SETTING_FLAGS and "config" in words[1:6]:
        return any(word is None or word.startswith(_SYSTEM_SETTING_FLAGS[name]) for word in words[1:])
    if name in _BUILD_TOOLS:
        return any(word is None or _INSTALL_WORD.fullmatch(word) for word in words[1:])
    return _is_system_program(name)


def _is_system_program(name: str) -> bool:
    """Return True if the program is installed where programs for administrators are."""
    return any(os.path.lexists(f"{directory}/{name}") for directory in _list_system_program_directories())


@cache
def _list_system_program_directories() -> tuple[str, ...]:
    """List the directories apart from each other: some systems have one directory for all programs."""
    directories = map(os.path.realpath, _SYSTEM_PROGRAM_DIRECTORIES)
    return tuple(each for each in dict.fromkeys(directories) if each not in ("/usr/bin", "/bin"))


def mounts_files(part: SimpleShellCommand) -> bool:
    """Return True for a command after which a path may mean another file."""
    words = part.words or part.argv or ()
    return bool(words) and not part.read_only and get_program_name(words) in _MOUNTS


def changes_git_tree(part: SimpleShellCommand) -> bool:
    """Return True if a git command may change any tracked file."""
    words = part.words or part.argv or ()
    return bool(words) and _is_git_change(get_program_name(words), words)


def has_unknown_target(part: SimpleShellCommand) -> bool:
    """Return True if a command changes files whose names are known only at run time."""
    words = part.words or part.argv or ()
    name = get_program_name(words) if words else ""
    if (words and words[0] is None) or mounts_files(part):
        return True
    if name in ("fd", "fdfind") and any(word and word.startswith(("-x", "-X", "--exec")) for word in words):
        return True
    if (settings := _SETTING_FILE_FLAGS.get(name)) and any(map(settings.match, filter(None, words[1:]))):
        return True
    if name in _SEDS and None in part.code:
        return True
    if name in AWKS and any(word is not None and _AWK_COMPUTED_OUTPUT.search(word) for word in words[1:]):
        return True
    if name in LANGUAGES or name.startswith("python"):
        if has_unknown_code(words) or (None in words and _is_language_changer(name, words)):
            return True
        texts = [word for word in (*words[1:], *part.code) if word is not None]
        return any(_COMPUTED_OUTPUT.search(text) or COMPUTED_COPY.search(text) for text in texts)
    return None in words and (name in WRITING_COMMANDS or name in OPERAND_CHANGERS or name == "install")


def _is_language_changer(name: str, words: Sequence[str | None]) -> bool:
    """Return True for editors, and for languages that change the files they are given."""
    return name in ("ed", "ex") or any(map(_IN_PLACE_FLAG.fullmatch, filter(None, words[1:])))


def _is_git_change(name: str, words: tuple[str | None, ...]) -> bool:
    if name != "git":
        return False
    known = [word for word in words[1:] if word is not None]
    # Flags before the subcommand have values, and there may be any number of them.
    heads = {*known[:4], *skip_git_flags(words)[1:2]}
    if "stash" in known and not _HARMLESS_STASH.isdisjoint(known):
        return False
    if not heads.isdisjoint(("checkout", "switch")):
        return not _is_new_branch(known)
    for subcommand, reading_words in _READING_WORDS.items():
        if subcommand in heads and not reading_words.isdisjoint(known):
            return False
    return not (_GIT_TREE_CHANGERS | _GIT_DIRECTORY_MAKERS).isdisjoint(heads)


def _is_new_branch(words: Sequence[str]) -> bool:
    """Return True if `checkout` or `switch` only starts a branch at the current commit."""
    operands = [word for word in words if not word.startswith("-")]
    flags = [word for word in words if word.startswith("-")]
    # Without a commit, `switch --orphan` removes all files, but `checkout --orphan` keeps them.
    keeps = all(map(_BRANCH_FLAG.fullmatch, flags)) or (flags == ["--orphan"] and operands[0] == "checkout")
    return keeps and any(map(_NEW_BRANCH.fullmatch, flags)) and len(operands) == 2
