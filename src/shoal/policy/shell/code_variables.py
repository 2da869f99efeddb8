"""Variables that make a shell, an interpreter or another program run code: one table."""

from __future__ import annotations

import re

from shoal.policy.shell.inner_commands import expand_inner_text

_COMMAND_VARIABLES = frozenset(
    """
    EDITOR VISUAL PAGER MANPAGER GIT_PAGER GIT_EDITOR GIT_SEQUENCE_EDITOR GIT_SSH GIT_SSH_COMMAND
    GIT_EXTERNAL_DIFF GIT_PROXY_COMMAND GIT_ASKPASS SSH_ASKPASS SUDO_ASKPASS SUDO_EDITOR BROWSER LESSOPEN
    LESSCLOSE PROMPT_COMMAND RSYNC_RSH RSYNC_CONNECT_PROG CVS_RSH FCEDIT HGEDITOR SVN_EDITOR SVN_SSH DIFFTOOL
    AWS_PAGER SYSTEMD_PAGER SYSTEMD_EDITOR GH_PAGER GH_EDITOR GH_BROWSER BASH_COMMAND READNULLCMD NULLCMD
    CC CXX CPP LD AR AS FC F77 NM RANLIB STRIP RUSTC RUSTDOC RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER CARGO
    FZF_DEFAULT_COMMAND FZF_CTRL_T_COMMAND BAT_PAGER DELTA_PAGER P4EDITOR PSQL_EDITOR PSQL_PAGER KUBE_EDITOR
    KUBECTL_EXTERNAL_DIFF BORG_RSH BORG_PASSCOMMAND RESTIC_PASSWORD_COMMAND CMAKE_C_COMPILER_LAUNCHER
    CMAKE_CXX_COMPILER_LAUNCHER TEXEDIT
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
"""Variables whose value is a command."""
_FILE_VARIABLES = frozenset(
    """
    BASH_ENV ZDOTDIR SHELLOPTS BASHOPTS PYTHONSTARTUP PYTHONHOME PERL5DB LD_PRELOAD LD_AUDIT
    DYLD_INSERT_LIBRARIES LUA_INIT LUA_INIT_5_1 LUA_INIT_5_2 LUA_INIT_5_3 LUA_INIT_5_4 R_PROFILE
    R_PROFILE_USER R_ENVIRON
    R_ENVIRON_USER DOTNET_STARTUP_HOOKS GCONV_PATH VIMINIT EXINIT GVIMINIT MYVIMRC LESSKEY LESSKEYIN
    LESSKEY_CONTENT LESSKEY_SYSTEM INPUTRC MAKEFILES PHPRC PHP_INI_SCAN_DIR OPENSSL_CONF OPENSSL_MODULES
    OPENSSL_ENGINES PYTEST_PLUGINS COVERAGE_PROCESS_START AWKLIBPATH TCLLIBPATH TCLINIT ERL_FLAGS ERL_AFLAGS
    ERL_ZFLAGS GIT_TEMPLATE_DIR HGRCPATH PSQLRC RIPGREP_CONFIG_PATH ELIXIR_ERL_OPTIONS
    NODE_REPL_EXTERNAL_MODULE GTK_MODULES QT_PLUGIN_PATH GST_PLUGIN_PATH EMACSLOADPATH
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
"""Variables that name a file or module with code."""
_JAVA = r"(?:-X(?:m[sxn]|ss)\w+|-D[\w.]+(?:=[\w./:-]*)?|-XX:(?!On)[+-]?\w+(?:=\w+)?|--enable-preview|-ea|\s)*"
_PROMPT = r"(?:[^$`]|\$(?:\w+|\{\w+\}|$|(?=[ \\])))*"
_OPTION_VARIABLES: dict[str, str] = {
    **dict.fromkeys(("PS0", "PS1", "PS2", "PS3", "PS4"), _PROMPT),
    **dict.fromkeys(
        ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "JAVA_OPTS", "MAVEN_OPTS", "GRADLE_OPTS"),
        _JAVA,
    ),
    "SBT_OPTS": _JAVA,
    **dict.fromkeys(
        ("MAKEFLAGS", "GNUMAKEFLAGS", "MFLAGS"),
        r"(?:-?[jkswnBi]*\d*|--(?:jobs|silent|no-print-directory|keep-going|output-sync)(?:=\w+)?|\s)*",
    ),
    "NODE_OPTIONS": (
        r"(?:--(?:max[-_](?:old|semi)[-_]space[-_]size|no-warnings|no-deprecation|trace-(?:warnings|deprecation)"
        r"|enable-source-maps|experimental-(?:vm-modules|strip-types|fetch|global-webcrypto|wasm-modules)"
        r"|openssl-legacy-provider|unhandled-rejections|dns-result-order|stack-size|use-(?:openssl|system)-ca"
        r"|max-http-header-size|no-experimental-fetch)(?:=[\w.-]*)?|\s)*"
    ),
    "GOFLAGS": r"(?:-(?:mod|tags|count|race|v|p|buildvcs|trimpath)(?:=[\w.,-]*)?|\s)*",
    "PYTEST_ADDOPTS": (
        r"(?:-[vqxsl]+|-[nkm][ =]?\w+|--(?:tb|color|maxfail|durations|cov|cov-report|lf|ff|timeout|no-header"
        r"|strict-markers|disable-warnings|randomly-seed)(?:=[\w./-]*)?|\s)*"
    ),
    "RUSTFLAGS": r"(?!.*link)(?:-[CDAWF]\s*[\w:=.+-]+|--cfg[ =]\w+|-[gO]|\s)*",
    **dict.fromkeys(
        "CFLAGS CXXFLAGS CPPFLAGS LDFLAGS FFLAGS CGO_CFLAGS CGO_CXXFLAGS CGO_CPPFLAGS CGO_LDFLAGS".split(),  # noqa: SIM905
        r"(?!.*(?:wrapper|specs|plugin|-B|@))[\w\s=./,:+~%\"'\\-]*",
    ),
    "RUBYOPT": r"(?:-[Ww]\S*|--(?:yjit|jit|enable=frozen-string-literal)|\s)*",
    "PERL5OPT": r"(?:-[wWT]|\s)*",
    "PYTHONBREAKPOINT": r"0?",
    "SHELL": r"/(?:usr/)?bin/[a-z]*sh",
    "LESS": r"[\w\s#%?:.=-]*",
    "MANOPT": r"(?:-[ac7]|--(?:all|ascii|no-hyphenation|no-justification|encoding=[\w-]+)|\s)*",
    "ZIPOPT": r"(?:-[0-9rqyX]+|\s)*",
    "FZF_DEFAULT_OPTS": r"(?!.*(?:bind|preview|listen))(?:--?[\w-]+(?:=[\w.%,:-]*)?|\s)*",
    "TAR_OPTIONS": r"(?:--(?:no-same-owner|no-same-permissions|numeric-owner|warning=[\w-]+)|\s)*",
}
"""Variables that hold options or prompts, with the values that run nothing."""
_OTHER_VARIABLES = re.compile(
    r"GIT_CONFIG_.*|BASH_FUNC_.*"
    r"|(?i:npm_config_)(?i:script_shell|globalconfig|userconfig|node_options|editor|git|shell|viewer|browser"
    r"|node_gyp|init_module|onload_script)"
    r"|CARGO_(?:BUILD_RUST\w*|TARGET_\w+_(?:LINKER|RUNNER)|HOME|CREDENTIAL\w*)"
)
"""Families of variables that can name any command or code."""
CODE_VARIABLES = _COMMAND_VARIABLES | _FILE_VARIABLES | frozenset(_OPTION_VARIABLES)


def is_code_variable(name: str) -> bool:
    return name in CODE_VARIABLES or ("_" in name and _OTHER_VARIABLES.fullmatch(name) is not None)


def find_variable_code(name: str, value: str | None) -> tuple[str | None, ...]:
    """Return the code that a variable with this value can make a program run; None if it is not known."""
    if not is_code_variable(name) or value == "":
        return ()
    if value is None:
        return (None,)
    if name in _COMMAND_VARIABLES:
        return (value, *expand_inner_text(value.lstrip("|-& ")))
    harmless = _OPTION_VARIABLES.get(name)
    if harmless is not None and re.fullmatch(harmless, value, re.DOTALL):
        return (value,)
    return (value, None)
