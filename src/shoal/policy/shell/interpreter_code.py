"""Judges code in the words of an interpreter: can it run a program, or write a file that another one runs?"""

from __future__ import annotations

import ast
import re
import sys
from functools import lru_cache

_PLAIN_MODULES = frozenset(
    """
    __future__ abc argparse array base64 binascii bisect calendar cmath collections colorsys configparser
    contextlib copy csv dataclasses datetime decimal difflib email enum errno filecmp fnmatch fractions
    functools getpass glob gzip hashlib heapq hmac html http io ipaddress itertools json keyword locale math
    mimetypes numbers operator pathlib plistlib pprint queue quopri random re secrets shlex signal socket
    ssl stat statistics string stringprep struct sys tarfile tempfile textwrap threading time tokenize tomllib
    traceback types typing unicodedata urllib uuid warnings weakref xml zipfile zlib zoneinfo bz2 lzma
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
"""Modules of Python's library that run no program and no other code, as long as no name below is used."""
_RUNNING_PACKAGES = frozenset(
    "sh plumbum pexpect invoke fabric paramiko sarge delegator cffi dill cloudpickle joblib psutil".split()  # noqa: SIM905
)
_RUNNING_NAMES = frozenset(
    """
    eval exec compile execfile globals locals vars getattr setattr delattr breakpoint builtins modules
    os posix nt pty subprocess ctypes importlib runpy system popen spawn fork attrgetter methodcaller
    FunctionType CodeType meta_path path_hooks settrace setprofile input
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
_PLAIN_DUNDERS = frozenset(
    {"__version__", "__name__", "__file__", "__doc__", "__path__", "__len__", "__init__"}
)
_WRITES = re.compile(
    r"open|write|copy|move|rename|link|extract|retrieve|save|dump|Path|[Ff]ile|\bfs\b|\bIO\b|put_contents|mkfifo"
    r"|print\s*[A-Z{]|>"
)
"""Signs of code that may write a file."""
_RUNS = re.compile(
    r"\b(?:os|pty|posix|subprocess|multiprocessing|ctypes|importlib|runpy|child_process|IPC|Open3|POSIX)\b"
    r"|\b(?:system|popen|spawn|fork|exec|eval|execfile|compile|proc_open|passthru|shell_exec|__import__|dlopen)\b"
    r"|`|%x|\bqx\b"
)
"""Ways in which code of any language can run a program whose name it computes."""
_PLAIN_PERL_MODULE = re.compile(
    r"v?[\d._]+|strict|warnings|utf8|feature|constant|integer|bigint|bignum|bytes|locale|open|vars|autodie|Carp|Cwd"
    r"|(?:JSON|Data|List|Scalar|Hash|Time|Math|MIME|Digest|Encode|Text|Unicode|Tie)(?:::\w+)*|File::(?:Basename|Spec)"
    r"|Getopt::\w+|English|Benchmark"
)
"""Modules of Perl whose functions run no program."""
_PERL_USE = re.compile(r"(?<![\w$@%])use\s+([\w:.]+)")
_RUNS_IN: dict[str, re.Pattern[str]] = {
    "perl": re.compile(
        r"\b(?:do|require|open|syscall|sysopen|readpipe|glob|AUTOLOAD|CORE|UNIVERSAL|Inline|can)\b|\||&\{|&\$"
        r"|->\s*[\$(]|[/}\])!,#]\w*e\w*\s*(?:[;}'\"]|$)|\(\?\??\{|[@$]\{\s*[\[\\]|<\s*\$"
    ),
    "ruby": re.compile(
        r"\b(?:load|require_relative|send|__send__|public_send|method|define_method|instance_eval|class_eval|open"
        r"|module_eval|const_get|IO|Kernel|Process|PTY|Fiddle|syscall|binding|ObjectSpace|DRb|Gem|autoload|trap)\b"
        r"|\brequire\b(?!\s*\(?\s*['\"](?:json|yaml|csv|date|time|set|digest|uri|erb|pp|securerandom|bigdecimal)['\"])"
    ),
    "node": re.compile(
        r"\brequire\b(?!\s*\(\s*['\"](?:[\w@./-]+\.json|(?:node:)?(?:fs|path|util|url|crypto|assert|events|buffer"
        r"|querystring|zlib|stream|os|readline|string_decoder|timers|perf_hooks))['\"]\s*\))"
        r"|\bimport\b|\bFunction\b|\bconstructor\b|\bglobalThis\b|\bglobal\b|\bmodule\b|\bprocess\s*\.?\s*(?:\[|binding|dl"
        r"|mainModule|getBuiltin)|\[\s*['\"`]|\+\s*['\"][^'\"]*['\"]\s*\]|\bDeno\b|\bBun\b|\bReflect\b|\bWebAssembly\b"
    ),
    "php": re.compile(
        r"\$\w+\s*\(|[\"'\])}]\s*\(|\$\{|\b(?:include|require|include_once|require_once|assert|create_function|call_user_func\w*|dl"
        r"|array_(?:map|filter|walk|reduce)|usort|uasort|uksort|preg_replace_callback|ob_start|mail|pcntl_\w+|FFI"
        r"|register_\w+_function|unserialize|popen|new|Closure|extract)\b|->\s*[{$]"
    ),
    "lua": re.compile(
        r"\b(?:dofile|loadfile|load|loadstring|require|package|debug|io|ffi|_G|_ENV|getmetatable|setfenv)\b"
    ),
    "vim": re.compile(
        r"\b(?:exe\w*|call|system|py\w*|lua\w*|perl\w*|ruby|mz\w*|tcl|so|sou\w*|norm\w*|let|ter\w*|job_start)\b|@"
    ),
    "gdb": re.compile(r"\b(?:shell|pipe|py|python|gu|guile|source|call|define|make|script)\b|^\s*!|\|"),
    "sqlite3": re.compile(
        r"\.sh|\.sy|\.once|\.load|\.excel|(?:^|\n)\s*\.(?:on|lo(?!g)|exc|ar)|\||load_extension|\bedit\s*\(|^-+A"
    ),
    "psql": re.compile(r"\\[!gow]|(?:^|^-\w*o|=)\s*\||\\copy|\bPROGRAM\b|\bLANGUAGE\b|\bDO\b", re.IGNORECASE),
    "mysql": re.compile(r"\bsystem\b|\\!|sys_exec|INSTALL|\bpager\b|\\P", re.IGNORECASE),
    "m4": re.compile(r"syscmd|\bchangequote|\bindir|\bdefn"),
    "gnuplot": re.compile(r"system|!|\"<|'<|\bload\b|\bcall\b"),
    "emacs": re.compile(r"process|shell|funcall|apply|intern|load|make-|compil"),
    "less": re.compile(r"[!|]"),
    "dc": re.compile("!"),
    "bc": re.compile("!"),
    "ed": re.compile("!"),
    "ftp": re.compile("!"),
}  # fmt: skip
EXPRESSION_RUNNERS = frozenset({"sqlite3", "psql", "mysql", "m4", "gnuplot", "dc", "bc"})
"""Programs each of whose words may be an expression that runs a program."""
_FAMILIES = {
    "nodejs": "node", "luajit": "lua", "lldb": "gdb", "more": "less", "most": "less",
    **dict.fromkeys(("vi", "nvim", "view", "ex"), "vim"),
    **dict.fromkeys(("tnftp", "lftp", "sftp", "telnet"), "ftp"),
}  # fmt: skip
_VERSION = re.compile(r"[\d.]+$")


@lru_cache(maxsize=256)
def may_run_programs(name: str, code: str) -> bool:
    """Return False if the code of an interpreter certainly runs no program whose name it computes."""
    family = name if name in _RUNS_IN else _VERSION.sub("", name)
    family = _FAMILIES.get(family, family)
    if family == "python":
        return _may_python_run(code)
    if _RUNS.search(code) and family != "node":
        return True
    if family == "node" and _RUNS.search(
        re.sub(r"require\(['\"](?:node:)?os['\"]\)|\bos\.(?!exec)\w+", "", code)
    ):
        return True
    if family == "perl" and not all(map(is_plain_perl_module, _PERL_USE.findall(code))):
        return True
    special = _RUNS_IN.get(family)
    # Of other languages nothing is known.
    return True if special is None else special.search(code) is not None


def is_plain_perl_module(module: str) -> bool:
    return _PLAIN_PERL_MODULE.fullmatch(module) is not None


def may_expression_run(name: str, code: str) -> bool:
    """Return True if an expression for a database client, calculator or macro processor may run programs."""
    return name in EXPRESSION_RUNNERS and _RUNS_IN[name].search(code) is not None


def may_write_files(code: str) -> bool:
    """Return False if code certainly writes no file."""
    return _WRITES.search(code) is not None


def _may_python_run(code: str) -> bool:
    try:
        tree = ast.parse(code.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    try:
        return any(map(_may_node_run, ast.walk(tree)))
    except RecursionError:
        return True


def _may_node_run(node: ast.AST) -> bool:
    match node:
        case ast.Import():
            return any(_is_running_module(alias.name) for alias in node.names)
        case ast.ImportFrom():
            return _is_running_module(node.module or "") or any(
                _is_running_name(alias.name) for alias in node.names
            )
        case ast.Name():
            return _is_running_name(node.id)
        case ast.Attribute():
            return _is_running_name(node.attr)
        case _:
            return False


def _is_running_module(name: str) -> bool:
    top = name.partition(".")[0]
    if top in _PLAIN_MODULES:
        return any(_is_running_name(step) for step in name.split("."))
    return top in sys.stdlib_module_names or top in _RUNNING_PACKAGES


def _is_running_name(name: str) -> bool:
    if name.startswith("_"):
        return len(name) > 1 and name not in _PLAIN_DUNDERS
    return name in _RUNNING_NAMES or name.startswith(("spawn", "exec", "popen"))
