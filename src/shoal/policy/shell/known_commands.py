"""Lists of known names: harmless variables, flags that run programs, commands that write files."""

from __future__ import annotations

import re

VERSION_COMMANDS = frozenset(
    """
    python python2 python3 python3.10 python3.11 python3.12 python3.13 python3.14 pip pip3 uv node
    npm npx bun deno tsc go gcc g++ cc c++ clang clang++ make cmake ninja
    java javac kotlin scala ruby gem perl php swift docker podman kubectl helm terraform
    git gh svn bash zsh fish curl wget ssh tar rsync jq rg fd bat tmux vim nvim emacs code brew apt
    psql mysql sqlite3 redis-server redis-cli nginx ffmpeg pandoc ruff black mypy eslint prettier aws
    gcloud lua R julia ghc sed awk gawk grep find sort ls openssl pre-commit isort
    pyright shellcheck hadolint protoc buf meson cargo rustc
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
"""Programs that may be run to print their version, with no other argument.

Excludes those that a project file can make run something first (yarn, pnpm, mvn, bazel, dotnet, pytest, tox,
bundle, composer, flake8, pylint, poetry, hg, az). For cargo and rustc, the engine looks for that file.
"""
HELP_COMMANDS = frozenset(
    """
    git docker kubectl helm gh npm node python python3 pip uv go make gcc tar curl wget ssh rsync jq rg
    fd bat grep find sort ls sed awk cat head tail wc bash ruff black mypy
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
"""Programs that may be run to print their help."""
SHORT_VERSION_FLAGS: dict[str, str] = {
    **dict.fromkeys(("python", "python3", "pip", "pip3", "uv", "ssh", "make"), "-V"),
    **dict.fromkeys(("node", "npm", "tsc", "ruby", "perl", "php", "make", "gcc"), "-v"),
    **dict.fromkeys(("java", "javac"), "-version"),
    "go": "version",
    "docker": "-v",
    "tmux": "-V",
}

WRITING_COMMANDS: dict[str, str] = {
    "tee": "-a -i -p --append",
    "touch": "-a -c -m -t: -d: --date: --no-create",
    "mkdir": "-p -v -m: --parents --mode:",
    "rmdir": "-p -v",
    "rm": "-f -r -R -i -v -d --force --recursive",
    "cp": "-r -R -a -f -p -v -n -u -i -L -P --recursive",
    "mv": "-f -n -u -v -i",
    "ln": "-s -f -n -v --symbolic",
    "truncate": "-s: --size:",
}
"""Commands whose operands are files they write, with the flags under which they do nothing else."""
COPYING_COMMANDS = frozenset({"cp", "mv", "ln"})
"""Writing commands after which a file can be read under another path."""

OUTPUT_FLAGS: dict[str, tuple[str, ...]] = {
    "curl": ("-o", "--output", "-D", "--dump-header", "-c", "--cookie-jar"),
    "wget": ("-O", "--output-document", "-o", "--output-file", "-P", "--directory-prefix"),
    "sort": ("-o", "--output"),
    "tree": ("-o",),
    "git": ("--output", "-o", "--output-directory"),
    "gcc": ("-o",),
    "openssl": ("-out", "-keyout", "-CAkeyout"),
    "shuf": ("-o", "--output"),
    "iconv": ("-o", "--output"),
    "install": ("-t", "--target-directory"),
    "patch": ("-o", "--output", "-d", "--directory"),
    **dict.fromkeys(("tar", "bsdtar", "gtar"), ("-C", "--directory")),
    "unzip": ("-d",),
    "cpio": ("-D", "--directory", "-O", "--file", "-F"),
    "find": ("-fprint", "-fprint0", "-fprintf", "-fls"),
    **dict.fromkeys(("pandoc", "gpg", "gpg2", "cmark", "dot", "as", "ld", "strip"), ("-o", "--output")),
    **dict.fromkeys(("cc", "g++", "c++", "clang", "clang++", "rustc", "go", "javac", "tsc"), ("-o", "-d")),
    "ssh-keygen": ("-f",),
    "aria2c": ("-o", "--out", "-d", "--dir"),
    "strace": ("-o", "--output"),
    "pg_dump": ("-f", "--file"),
    "mysqldump": ("-r", "--result-file"),
    "mktemp": ("-p", "--tmpdir"),
    "yt-dlp": ("-o", "--output", "-P"),
}
"""Flags whose value is an output file, or a directory that gets files."""

HARMLESS_VARIABLES = frozenset(
    """
    LANG LC_ALL LC_CTYPE LC_COLLATE LC_NUMERIC LC_TIME LC_MESSAGES LANGUAGE TZ COLUMNS LINES NO_COLOR CLICOLOR
    CLICOLOR_FORCE FORCE_COLOR CI TERM COLORTERM PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE PYTHONHASHSEED
    RUST_BACKTRACE RUST_LOG GIT_TERMINAL_PROMPT GIT_OPTIONAL_LOCKS NODE_ENV DEBIAN_FRONTEND DIR FILE FILES
    BRANCH COUNT
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
"""Variables that only affect display, never which program or file is used."""
_FILE_VALUE = re.compile(r"(?:TZ|TERM|LANG|LANGUAGE|LC_[A-Z]+)=(?::|:?/|.*\.\./)", re.DOTALL)
"""Variables for display whose value is the path of a file, as in `TZ=:../zone`."""


def names_display_file(name: str, value: str | None) -> bool:
    """Return True if a variable for display makes a program read a file that the value names."""
    return _FILE_VALUE.match(f"{name}={'/' if value is None else value}") is not None


NPM_SETTINGS = ".npmrc"
"""File in a package directory whose settings npm applies."""

LINK_FOLLOWING_FLAGS: dict[str, re.Pattern[str]] = {
    **dict.fromkeys(("grep", "egrep", "fgrep"), re.compile(r"-(?!-).*[RS]|--d")),
    **dict.fromkeys(("rg", "fd"), re.compile(r"-(?!-).*L|--follow")),
    "find": re.compile(r"-L|-follow"),
    "tree": re.compile(r"-(?!-).*l"),
    **dict.fromkeys(("du", "ls", "dir", "vdir"), re.compile(r"-(?!-).*L|--de")),
    "diff": re.compile(r"-(?!-).*r|--r"),
    **dict.fromkeys(("eza", "exa", "lsd"), re.compile(r"-(?!-).*[XL]|--(?:de|follow)")),
}
"""Prefixes of flags, combined and abbreviated, with which a command follows links in its directories."""

PROGRAM_FLAGS: dict[str, tuple[str, ...]] = {
    "rg": ("--pre", "--hostname-bin"),
    "fd": ("-x", "-X", "--exec", "--exec-batch"),
    "fdfind": ("-x", "-X", "--exec", "--exec-batch"),
    "sort": ("--compress-program",),
    "tar": (
        *(
            "--to-command",
            "-I",
            "--use-compress-program",
            "--checkpoint-action",
            "--rsh-command",
            "--rmt-command",
        ),
        *("-F", "--info-script", "--new-volume-script"),
    ),
    "bsdtar": ("--use-compress-program",),
    "zip": ("-T", "-TT", "--unzip-command", "--test"),
    "ssh": ("-o", "-F", "-E"),
    "scp": ("-S", "-o", "-F"),
    "sftp": ("-S", "-o", "-F", "-b"),
    "rsync": ("-e", "--rsh", "--rsync-path", "-M"),
    "man": ("-P", "--pager", "-H", "--html", "-C", "--config-file", "-p", "--preprocessor"),
    "less": (
        "-k",
        "--lesskey-file",
        "--lesskey-src",
        "--lesskey-content",
        "-o",
        "-O",
        "--log-file",
        "--LOG-FILE",
    ),
    "vim": ("-c", "--cmd", "-S", "-u", "-U", "-s"),
    "vi": ("-c", "--cmd", "-S", "-u", "-U", "-s"),
    "nvim": ("-c", "--cmd", "-S", "-u", "-l", "-s"),
    "view": ("-c", "--cmd", "-S", "-u", "-U", "-s"),
    "ex": ("-c", "-s"),
    "emacs": ("--eval", "-l", "-f", "--load", "--funcall", "--script", "--execute"),
    "curl": ("-K", "--config"),
    "wget": ("--use-askpass", "-e", "--execute", "--config"),
    "bat": ("--pager",),
    "ag": ("--pager",),
    "ack": ("--pager", "--ackrc"),
    "npm": ("--script-shell", "--node-options", "--userconfig", "--globalconfig"),
    "cargo": ("--config",),
    "go": ("-toolexec", "-exec", "-vettool", "-overlay"),
    "file": ("-C", "--compile"),
    "kubectl": ("--kubeconfig",),
    "split": ("--filter",),
    **dict.fromkeys(
        ("nc", "ncat", "netcat", "nc.traditional", "nc.openbsd"),
        ("-e", "-c", "--exec", "--sh-exec", "--lua-exec"),
    ),
    "tcpdump": ("-z",),
    **dict.fromkeys(("xterm", "x-terminal-emulator", "urxvt", "konsole", "xfce4-terminal"), ("-e", "-x")),
    "fzf": ("--preview", "--bind", "--listen"),
    "rpm": ("--eval", "-E", "--pipe", "--define", "-D"),
    **dict.fromkeys(("apt", "apt-get", "aptitude"), ("-o", "--option", "-c", "--config-file")),
    "dpkg": ("--pre-invoke", "--post-invoke", "--status-logger"),
    "aria2c": (
        *("--on-download-complete", "--on-download-error", "--on-download-start", "--on-download-stop"),
        *("--on-bt-download-complete", "--on-download-pause", "--conf-path"),
    ),
    "yt-dlp": ("--exec", "--exec-before-download", "--netrc-cmd", "--config-locations"),
    "pandoc": ("--filter", "-F", "--lua-filter", "-L", "--pdf-engine"),
    "nodemon": ("-x", "--exec"),
    **dict.fromkeys(("ansible", "ansible-console"), ("-a", "--args", "-e", "--extra-vars")),
    **dict.fromkeys(("gcc", "g++", "cc", "c++"), ("-wrapper", "-specs")),
    "openvpn": ("--up", "--down", "--script-security", "--config", "--plugin"),
    "ctags": ("--options",),
    **dict.fromkeys(("mail", "mailx"), ("-S",)),
    "mutt": ("-e", "-F"),
    "latexmk": ("-e", "-r", "-latex", "-pdflatex"),
}
"""Flags that run another program or load code: a rule that allows the command does not cover them.

An abbreviation of a long flag counts as that flag.
"""

SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|COOKIE|PRIVATE|_PAT\b", re.IGNORECASE)
"""Names of variables and settings that may contain a secret."""
REDEFINING_VARIABLES = frozenset(
    {"BASH_ALIASES", "BASH_CMDS", "aliases", "galiases", "saliases", "commands", "functions", "options"}
)
"""Variables of bash and zsh that decide which command a name means."""
COMMAND_RUNNERS = frozenset(
    """
    busybox toybox watch flock script strace ltrace gdb lldb valgrind perf unshare nsenter chroot su runuser
    sg newgrp parallel entr ssh screen tmux systemd-run at batch proot firejail bwrap setarch linux32 linux64
    i386 x86_64 chrt taskset numactl prlimit cgexec dbus-run-session xvfb-run faketime catchsegv rlwrap expect
    npx bunx uvx pnpx corepack direnv dotenv fish csh tcsh rbash ash mksh yash pwsh
    start-stop-daemon daemonize run-parts doas pkexec gosu su-exec tini dumb-init setpriv capsh fakeroot
    fakechroot eatmydata chpst softlimit envdir setuidgid s6-setuidgid logsave choom uclampset pipexec compgen
    jobs fc hash noglob nocorrect ld.so scl torsocks proxychains proxychains4 osascript xdg-open timelimit
    crontab cmd.exe wsl wsl.exe powershell.exe chronic cronic ifne lckdo sem pee mispipe runcon
    systemd-inhibit systemd-cat dbus-launch trickle cpulimit nocache hyperfine watchexec viddy hwatch dtach
    abduco ssh-agent socat ansible concurrently foreman honcho cross-env dotenvx sshpass autossh mosh
    daemon nix-shell wine qemu-x86_64 qemu-aarch64 nodemon powershell
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
"""Programs that run a command given in their arguments, in more ways than are listed for wrappers."""
OPEN_WRAPPERS = COMMAND_RUNNERS - frozenset(
    """
    npx bunx uvx pnpx corepack direnv dotenv ssh screen tmux gdb lldb perf expect osascript xdg-open at batch
    crontab compgen jobs fc hash
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
"""Runners that do nothing but run the command: a rule with an open end does not say which one."""
OPEN_SUBCOMMANDS: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        ("docker", "podman", "nerdctl", "kubectl", "oc", "docker-compose"),
        frozenset({"exec", "run", "debug", "attach"}),
    ),
    "tmux": frozenset(
        """
        new new-session neww new-window splitw split-window respawnw respawn-window respawnp respawn-pane run
        run-shell if if-shell pipep pipe-pane send send-keys popup display-popup set-hook source source-file
        bind bind-key confirm confirm-before menu display-menu pasteb paste-buffer command-prompt
        """.split()  # noqa: SIM905 - easier to read and extend as one text
    ),
    **dict.fromkeys(("npx", "pnpx", "bunx", "npm", "pnpm"), frozenset({"-c", "--call", "--shell-mode"})),
    "cmake": frozenset({"env", "time", "chdir"}),
}
"""Subcommands and flags that run any command: an allow rule with an open end must name them."""
LISTING_FLAGS: dict[str, frozenset[str]] = {
    "at": frozenset({"-l", "-V"}),
    "batch": frozenset({"-V"}),
    "crontab": frozenset({"-l"}),
    "screen": frozenset({"-ls", "-list", "-v"}),
    "expect": frozenset({"-v"}),
    "osascript": frozenset(),
}
"""Programs that run any command, with the flags under which they do not."""
READER_OUTPUT_FLAGS: dict[str, tuple[str, ...]] = {
    name: OUTPUT_FLAGS[name] for name in ("sort", "tree", "shuf", "iconv")
} | {"git": ("--output",)}
"""Flags with which programs that otherwise only read write a file; an allow rule must name them."""
GIT_READERS = frozenset(
    {"log", "diff", "show", "shortlog", "reflog", "whatchanged", "diff-tree", "diff-index", "diff-files"}
    | {"range-diff", "rev-list", "stash", "blame"}
)
FIND_CHANGING_FLAGS = frozenset({"-delete", *OUTPUT_FLAGS["find"]})
"""Flags of find that remove or write files; an allow rule must name them."""
RUNNING_SUBCOMMANDS: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        ("docker", "podman", "kubectl", "nerdctl", "lxc", "oc"),
        frozenset({"exec", "run", "debug", "unshare", "attach"}),
    ),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), frozenset({"exec", "dlx", "x", "explore"})),
    **dict.fromkeys(
        ("uv", "poetry", "pipenv", "pdm", "hatch", "rye", "conda", "mamba", "pixi", "op", "doppler"),
        frozenset({"run", "exec", "tool"}),
    ),
    **dict.fromkeys(("bundle", "mise", "asdf", "rbenv", "pyenv", "nodenv"), frozenset({"exec", "x"})),
    "nix": frozenset({"run", "shell", "develop"}),
    **dict.fromkeys(("snap", "flatpak"), frozenset({"run"})),
    **dict.fromkeys(("machinectl", "buildah"), frozenset({"shell", "unshare"})),
    **dict.fromkeys(("terraform", "tofu"), frozenset({"console"})),
    "cargo": frozenset({"run"}),
    "vagrant": frozenset({"ssh"}),
    "cmake": frozenset({"-E"}),
    "ip": frozenset({"exec"}),
}
"""Subcommands that run a command given in their arguments."""
NOT_RUNNING_COMMANDS = frozenset(
    """
    git hg svn docker podman nerdctl kubectl helm npm pnpm yarn bun pip pip3 uv poetry cargo go gem bundle
    brew apt apt-get apt-cache dpkg rpm yum dnf apk pacman snap port gh glab aws gcloud az terraform conda
    mamba systemctl service kill killall pkill pidof pgrep man info tldr whatis which type help cd pushd
    popd set export unset local declare read printf echo test exit return shift chmod chown chgrp tar zip
    unzip gzip curl wget scp sftp gcc cc clang grep rg find fd ls cat head tail wc sort uniq cut tr diff
    source . let
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
"""Programs and builtins whose first operand is never a command that they run."""
GIT_SUBCOMMANDS = frozenset(
    """
    absorb add am annex annotate apply archimport archive backfill bisect blame branch branchless bugreport
    bundle cat-file check-attr check-ignore check-mailmap check-ref-format checkout checkout-index cherry
    cherry-pick citool clean cliff clone column commit commit-graph commit-tree config count-objects
    credential credential-cache credential-cache--daemon credential-libsecret credential-manager
    credential-osxkeychain credential-store crypt cvsexportcommit cvsimport cvsserver daemon delta describe
    diagnose diff diff-files diff-index diff-pairs diff-tree difftool extras fast-export fast-import fetch
    fetch-pack filter-branch filter-repo flow fmt-merge-msg for-each-ref for-each-repo format-patch fsck
    fsck-objects fsmonitor--daemon gc get-tar-commit-id gitk gitweb grep gui hash-object help hook
    http-backend http-fetch http-push imap-send index-pack init init-db instaweb interpret-trailers
    last-modified lfs log ls-files ls-remote ls-tree machete mailinfo mailsplit maintenance merge merge-base
    merge-file merge-index merge-octopus merge-one-file merge-ours merge-recursive merge-recursive-ours
    merge-recursive-theirs merge-resolve merge-subtree merge-tree mergetool mktag mktree multi-pack-index mv
    name-rev notes p4 pack-objects pack-redundant pack-refs patch-id pickaxe prune prune-packed pull push
    quiltimport range-diff read-tree rebase rebase--interactive receive-pack reflog refs remote remote-ext
    remote-fd remote-ftp remote-ftps remote-http remote-https repack replace replay repo request-pull rerere
    reset restore rev-list rev-parse revert rm scalar send-email send-pack sh-setup shell shortlog show
    show-branch show-index show-ref sparse-checkout stage stash status stripspace submodule
    submodule--helper subtree svn switch symbolic-ref tag town unpack-file unpack-objects update-index
    update-ref update-server-info upload-archive upload-pack var verify-commit verify-pack verify-tag
    version web--browse whatchanged worktree write-tree
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
"""Commands of git and of well-known git extensions; any other name may be an alias."""
INTERPRETERS = frozenset(
    """
    python python2 python3 perl ruby node nodejs deno bun php lua luajit tclsh wish guile scheme sbcl clisp
    R Rscript julia ocaml ghci runghc elixir erl escript groovy scala kotlin swift awk gawk mawk nawk sed gsed
    make gmake less more most ed ex vi vim nvim view emacs m4 gnuplot sqlite3 psql mysql bc dc
    ipython jshell irb octave ghc ftp tnftp lftp sftp telnet
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
"""Programs that accept code that can run commands, as an argument or from their input."""

STATE_CHANGING_BUILTINS = frozenset(
    """
    alias unalias shopt enable hash bind complete compopt
    setopt unsetopt zmodload autoload emulate functions zle zstyle
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
"""Builtins of bash and zsh that can change the meaning of later words."""
RESERVED_WORDS = frozenset(
    {
        "if",
        "then",
        "elif",
        "else",
        "fi",
        "for",
        "while",
        "until",
        "do",
        "done",
        "case",
        "esac",
        "in",
        "select",
    }
    | {
        "function",
        "coproc",
        "{",
        "}",
        "!",
        "[[",
        "]]",
        "repeat",
        "foreach",
        "end",
        "noglob",
        "nocorrect",
        "-",
    }
)
"""Words that begin a construct of bash or zsh; a command with such a name was misparsed."""
