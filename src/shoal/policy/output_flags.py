"""Values of flags that may name what a program writes: files, directories and the project it works in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from shoal.policy.shell.command_analysis import SimpleShellCommand
from shoal.policy.unreadable_files import COMPILERS, get_program_name

_FLAG = re.compile(r"(--?[A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
_FLAG_WORD = re.compile(r"[-_.]")
_VALUE_PART = re.compile(r"[=:,;\s\"'\[\]{}()]+")
_ASSIGNMENT = re.compile(r"[A-Za-z_][\w.-]*\+?[:?]?=(.*)", re.DOTALL)
_OUTPUT_WORD = re.compile(
    r"out.*|junit.*|reports?|log.*|dump.*|save.*|export.*|write.*|dest.*|result.*|html|xml|json|csv|sarif|lcov"
    r"|(?:base)?(?:tmp|temp).*|cache.*|target|record.*|artifacts?|emit|trace|snapshots?|downloads?|pidfile|db|o|O|site|public|dist|to|envdir"
)
"""Words in the names of flags that name files to write."""
_PLACE_WORD = re.compile(r".*(?:file|dir|directory|folder|path|prefix)")
"""Final parts of the names of flags that name a place, which may be written."""
_INPUT_WORD = re.compile(
    r"env.*|key.*|cert.*|ca.*|identity|in|input.*|infile|conf.*|cfg|settings?|kubeconfig|from|include|exclude"
    r"|ignore.*|filter|load|so?u?rce?|read|secrets?|credentials?|pass.*|user|netrc|file|rc.*|script|select|test.*"
    r"|project|manifest|package|path|cwd|chdir|root.*|workspace|git|work|ref|init|context|schema|data|body"
    r"|template|require.*|constraint|format|pattern|glob|grep|message|title|patch|allow|deny|skip|match|with"
    r"|without|no|not|only|name|prune|mount|bind|type|attr|diff|cov|check.*|verify|validate|verbose|quiet|silent|strict.*|watch|dry|list|show.*|color"
)
"""Words in the names of flags that name files to read or to leave out."""
_CERTAIN_INPUT_WORD = re.compile(
    r"env.*|key.*|cert.*|ca(?:file|path|cert.*)?|identity|in|input.*|infile|conf.*|cfg|settings?|kubeconfig|from"
    r"|include|exclude|ignore.*|read|secrets?|credentials?|pass.*|netrc|rc|load|constraints?|require.*|schema"
    r"|cp|class-?path|(?:source|module|processor|bootclass|python|search|lib|load)-?path|jar|isystem|iquote|idirafter"
)
"""Words in the names of flags whose values no program writes."""
_DIRECTORY_WORDS = frozenset({"dir", "directory", "folder", "home"})
_INPUT_DIRECTORY_WORD = re.compile(
    r"in|input.*|include|exclude|ignore.*|from|read|load|schema|require.*|search"
)
_INPUT_FLAGS = frozenset({"-cp", "-classpath", "-sourcepath", "-jar", "-include", "-isystem", "-iquote"})
_OUTPUT_LETTERS = ("-o", "-O", "-d", "-D", "-w", "-t", "-P", "-X")
_PROJECT_TOOLS = frozenset(
    """
    make gmake bmake remake ninja samu meson cmake ctest cpack scons waf just task b2 bazel bazelisk buck
    buck2 please pants mvn mvnw mvnd gradle gradlew ant phing sbt mill lein boot clj clojure bloop npm pnpm
    yarn bun deno lerna nx turbo rush wsrun cargo go dotnet msbuild nuget composer bundle bundler rake
    gem poetry uv pdm hatch pipenv rye pixi tox nox invoke inv doit fab pip pip3 conda mamba mix rebar3 swift
    xcodebuild xcrun flutter dart pub fvm melos terraform tofu terragrunt pulumi cdk cdktf sam serverless sls
    docker-compose stack cabal ghcup nix nix-build nix-shell nix-env elm spago purs dune opam jekyll
    bridgetown hugo mkdocs zola eleventy gatsby next nuxt astro vite vitest webpack rollup parcel esbuild tsc
    ng expo eas ionic cap capacitor fastlane pod carthage tuist zig nim nimble shards crystal dub raco julia
    gprbuild alr fpm spack conan vcpkg xmake premake4 premake5 qmake autoreconf autoconf automake aclocal
    autoheader libtoolize platformio pio arduino-cli idf.py west catkin colcon forge hardhat truffle anchor
    prisma sequelize knex typeorm alembic flyway liquibase dbt jest playwright cypress pre-commit lefthook
    mage earthly dagger skaffold tilt act drone
    """.split()  # noqa: SIM905 - a list to be read and extended
)
"""Programs that build, install or run something in the directory of a project, which a flag may name."""
_PROJECT_OPERAND_TOOLS = frozenset(
    """
    dotnet msbuild nuget vite next nuxt astro parcel gatsby expo hugo flutter dart pip pip3 uv build wheel
    tsup rollup remix vuepress vitepress docusaurus storybook electron-builder electron-forge
    """.split()  # noqa: SIM905 - a list to be read and extended
)
"""Those whose operand may be the directory of the project."""
_HERE = re.compile(r"(?:\./*)+")
_COMPILER_OUTPUT = re.compile(
    r"-(?:MF|MJ|dumpdir|dumpbase|Map)=?(.*)|-(?:W[pla],|f|save-temps=)(.+)", re.DOTALL
)
"""Flags of compilers that name further files to write."""
_JAVA_COMPILERS = frozenset({"javac", "ecj", "kotlinc", "scalac", "groovyc"})
_INSTALLERS = frozenset({"install", "download", "wheel"})
_INSTALL_FLAGS = ("-t", "-i", "--root", "--prefix", "--path", "--dir", "--directory", "--install-dir")


def iter_output_paths(part: SimpleShellCommand) -> Iterator[str]:
    """Yield the values of flags that may name files to write: all that are not known to name an input."""
    words = part.words or part.argv or ()
    if words and get_program_name(words) in _PROJECT_TOOLS:
        # Some file that it makes where it runs.
        yield from (f"{place}/output" for place in part.places if place)
    for value in _iter_output_values(words, get_program_name(words) if words else ""):
        if value and value[:1] != "-":
            yield value
            if _VALUE_PART.search(value):
                yield from filter(None, _VALUE_PART.split(value))


def is_input_flag(word: str) -> bool:
    """Return True if no program writes the value of a long flag with this name."""
    if not word.startswith("--"):
        return word in _INPUT_FLAGS
    parts = _FLAG_WORD.split(word.partition("=")[0].lstrip("-").lower())
    return any(map(_CERTAIN_INPUT_WORD.fullmatch, parts))


def _iter_output_values(words: Sequence[str | None], name: str) -> Iterator[str | None]:
    installs = not _INSTALLERS.isdisjoint(words[1:4])
    for index, word in enumerate(words[1:], 1):
        if word is None:
            continue
        if word[:1] == "-":
            next_word = words[index + 1] if index + 1 < len(words) else None
            if name in _PROJECT_TOOLS:
                yield from _iter_project_places(name, word, next_word)
            if installs and word.partition("=")[0] in _INSTALL_FLAGS:
                yield word.partition("=")[2] or next_word
            else:
                yield from _iter_flag_outputs(name, word, next_word)
        elif (match := _ASSIGNMENT.fullmatch(word)) is not None:
            yield match[1]
        elif name in _PROJECT_TOOLS and " " in word:
            # A command for the tool, as in `sbt 'set target := file("x")'`.
            yield from _VALUE_PART.split(word)
        elif name in _PROJECT_OPERAND_TOOLS and not _HERE.fullmatch(word):
            yield word


def _iter_flag_outputs(name: str, word: str, next_word: str | None) -> Iterator[str | None]:
    """Yield what a flag may name that is written."""
    match = _FLAG.fullmatch(word)
    if name in _JAVA_COMPILERS and word in ("-h", "-s"):
        yield next_word
    elif name in COMPILERS and (output := _COMPILER_OUTPUT.fullmatch(word)) is not None:
        yield output[1] or (output[2] or next_word or "").lstrip("-")
    if word[:2] in _OUTPUT_LETTERS:
        yield word[2:] or next_word
    if match is None:
        # As in `-Xlog:gc:file` of Java.
        yield from _VALUE_PART.split(word, maxsplit=1)[1:]
    elif len(match[1]) > 2 and _is_output_flag(match[1]):
        value = match[2] if match[2] is not None else next_word
        # A project tool that is told to work here does what it does anyway.
        if not (name in _PROJECT_TOOLS and _HERE.fullmatch(value or "") and not _has_output_word(match[1])):
            yield value


def _iter_project_places(name: str, word: str, next_word: str | None) -> Iterator[str]:
    """Yield a directory other than this one, or a file in it, that a flag tells a program to work in."""
    match = _FLAG.fullmatch(word)
    values: tuple[str | None, ...] = ()
    if match is not None and len(match[1]) > 2 and not is_input_flag(f"--{match[1].lstrip('-')}"):
        values = (match[2] if match[2] is not None else next_word,)
    if word[1:2] != "-" and (name != "cmake" or word[:2] == "-B"):
        values = (*values, word[2:] or next_word)
    yield from (value for value in values if value and not _HERE.fullmatch(value))


def _is_output_flag(name: str) -> bool:
    if _has_output_word(name):
        return True
    parts = _FLAG_WORD.split(name.lstrip("-").lower())
    if parts[-1] in _DIRECTORY_WORDS:
        # Settings, keys and environments in a directory may be made there.
        return not any(map(_INPUT_DIRECTORY_WORD.fullmatch, parts))
    is_file = parts[-1].endswith("file")
    if any(map(_CERTAIN_INPUT_WORD.match if is_file else _CERTAIN_INPUT_WORD.fullmatch, parts)):
        return False
    if _PLACE_WORD.fullmatch(parts[-1]) and parts not in (["file"], ["path"]):
        # As in `--cidfile`, `--data-dir` and `--manifest-path`.
        return True
    return not any(map(_INPUT_WORD.fullmatch, parts))


def _has_output_word(name: str) -> bool:
    return any(map(_OUTPUT_WORD.fullmatch, _FLAG_WORD.split(name.lstrip("-").lower())))
