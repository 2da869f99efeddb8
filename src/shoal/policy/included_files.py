"""Programs whose input names files that they include: compilers, assemblers, macro and text processors.

Under a rule that forbids reading a file, such a program must not get input that nobody has seen: `#include
".env"` in it would print the file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from shoal.policy.shell.known_commands import INTERPRETERS
from shoal.policy.shell.simple_commands import SimpleShellCommand
from shoal.policy.unreadable_files import get_program_name

_INCLUDERS = frozenset(
    """
    gcc g++ cc c++ clang clang++ clang-cl tcc icc icpc pcc cpp gcpp cc1 cc1plus c89 c99 gfortran f77 f95
    flang as gas nasm yasm fasm armasm ld gold lld rustc rustdoc javac go gccgo zig dmd gdc ldc2 fpc nim
    crystal valac ghc erlc elixirc ocamlc ocamlopt swiftc kotlinc nvcc hipcc glslc glslangValidator fxc
    windres dtc iasl bison flex yacc lex swig cython vala gnatmake gcc-ar esbuild sass sassc lessc stylus
    protoc flatc thrift capnp m4 gm4 jsonnet dhall cue nickel tex latex pdftex pdflatex xetex xelatex luatex
    lualatex lualatexmk latexmk context groff troff nroff gtroff soelim tbl eqn pic xmllint xsltproc saxon
    xmlto asciidoctor asciidoc rst2html rst2latex rst2man docutils pandoc typst lilypond gnuplot povray dot
    openscad sphinx-build mkdocs j2 jinja2 erb ejs pug mustache envsubst gpp pp fpp unifdef
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
_OTHER_NAME = re.compile(r"(?:[a-z0-9_]+-)*(gcc|g\+\+|cpp|as|ld|clang|clang\+\+|gfortran)(?:-[0-9.]+)?")
"""Names of compilers with the machine that they compile for, or a version."""
_INPUT_READERS = frozenset(
    """
    cpp gcpp cc1 as gas m4 gm4 tex latex pdftex pdflatex xetex xelatex luatex lualatex groff troff nroff
    gtroff soelim tbl eqn pic pandoc dot gnuplot asciidoctor asciidoc rst2html rst2latex rst2man docutils
    sass sassc lessc stylus esbuild gpp pp fpp unifdef jsonnet j2 erb pug lilypond envsubst
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
"""Programs that read their input if they get no file."""
_PLAIN_WRITERS = frozenset({"mkdir", "rm", "rmdir", "touch", "chmod", "cd", "ls", "echo", "test", "["})
_OTHER_WRITERS = frozenset(
    {"curl", "wget", "aria2c", "patch", "git", "tar", "bsdtar", "unzip", "7z", "cpio", "ar"}
)
"""Programs that write files which their words do not name."""
_VALUED_FLAGS = frozenset({"-o", "-x", "-I", "-D", "-t", "-f", "-T", "-m", "-l", "-L", "-b", "-r"})
_INPUT_FILE = re.compile(r"-|/dev/(?:stdin|fd/.*)|/proc/[^/]+/fd/.*|.*=-")
_NULL_DEVICES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})


def find_unseen_includer(parts: Sequence[SimpleShellCommand]) -> SimpleShellCommand | None:
    """Return a part that may include files named in its input, or in a file that the line writes."""
    for index, part in enumerate(parts):
        words = part.words or part.argv or ()
        if part.read_only or not words or not _is_includer(name := get_program_name(words)):
            continue
        operands = [
            word
            for flag, word in pairwise(words)
            if (word is None or word[:1] != "-") and flag not in _VALUED_FLAGS
        ]
        reads_input = any(word is None or _INPUT_FILE.fullmatch(word) for word in words[1:])
        if reads_input or (name in _INPUT_READERS and not operands):
            return part
        others = parts[:index] if part.places == ("",) else [each for each in parts if each is not part]
        if any(map(_may_write_source, others)):
            return part
    return None


def _is_includer(name: str) -> bool:
    return name in _INCLUDERS or _OTHER_NAME.fullmatch(name) is not None


def _may_write_source(part: SimpleShellCommand) -> bool:
    """Return True if a command may write a file that a later part of the line compiles."""
    words = part.words or part.argv or ()
    name = get_program_name(words) if words else ""
    if any(path not in _NULL_DEVICES for path in part.writes) and not (
        part.changes and name in _PLAIN_WRITERS
    ):
        # A compiler writes objects and programs.
        return not _is_includer(name) or not part.changes
    return not part.read_only and (
        name in INTERPRETERS or name in _OTHER_WRITERS or name.startswith("python")
    )
