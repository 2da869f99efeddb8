"""Counts names that a stranger cannot guess, with their places."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from syntax_trees import list_nodes, parse_module

# Forms that are verbs or nouns as well (read, cut, set, put, run) are left out.
_PARTICIPLES_WITHOUT_ED = """
    told kept sent held given shown found heard said made taken known left met gone seen begun done drawn
    brought bound built caught chosen driven felt fed forgotten grown hidden laid led lent lost meant paid ran
    risen sold spoken stood struck stuck taught thought thrown understood woken won worn written
"""
_IRREGULAR = frozenset(_PARTICIPLES_WITHOUT_ED.split())
_NOUNS_IN_ING = """
    pricing routing logging testing streaming typing caching polling billing string setting listing briefing
"""
_GERUND_NOUNS = frozenset(_NOUNS_IN_ING.split())
_DEFINED_NAME = re.compile(r"\bdef\s+(\w+)")
_CLAUSES = ("What ", "Whether ", "Where ", "Who ", "Whose ", "How ", "Of ", "Until ", "As ")


class NameFigures(Struct, frozen=True, kw_only=True):
    """Figures of one package, each with the places that count."""

    functions: int
    one_word: tuple[str, ...]
    participles: tuple[str, ...]
    shared_classes: tuple[str, ...]
    repeated_modules: tuple[str, ...]
    gerund_modules: tuple[str, ...]
    clause_docstrings: tuple[str, ...]

    @property
    def one_word_percent(self) -> int:
        return round(100 * len(self.one_word) / max(self.functions, 1))

    def format_table(self) -> str:
        rows = {
            "functions with a one-word name, %": self.one_word_percent,
            "functions named by a bare participle": len(self.participles),
            "public classes that share a name": len(self.shared_classes),
            "module names used three times or more": len(self.repeated_modules),
            "modules named by a gerund": len(self.gerund_modules),
            "docstrings that open with a clause": len(self.clause_docstrings),
        }
        return "\n".join(f"{count:>5}  {label}" for label, count in rows.items())


def is_bare_participle(name: str) -> bool:
    word = name.strip("_")
    return "_" not in word and (word in _IRREGULAR or (word.endswith("ed") and len(word) > 4))


def is_gerund(stem: str) -> bool:
    last = stem.rsplit("_", 1)[-1]
    return re.fullmatch(r"[a-z]{2,}ing", last) is not None and last not in _GERUND_NOUNS


def find_bare_participles(package: Path) -> list[str]:
    """Return the functions that are named by a bare participle. Only modules with such a name are parsed."""
    return [
        f"{path.relative_to(package)}:{node.lineno} {node.name}"
        for path in sorted(package.rglob("*.py"))
        if any(map(is_bare_participle, _DEFINED_NAME.findall(path.read_text(encoding="utf-8"))))
        for node in _walk_definitions(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and _is_counted(node)
        and is_bare_participle(node.name)
    ]


def measure_names(package: Path) -> NameFigures:
    functions = 0
    one_word, participles, gerunds, clauses = [], [], [], []
    classes: dict[str, list[str]] = defaultdict(list)
    stems: dict[str, list[str]] = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        place = str(path.relative_to(package))
        if path.stem not in ("__init__", "__main__"):
            stems[path.stem].append(place)
            if is_gerund(path.stem):
                gerunds.append(place)
        for node in _walk_definitions(path):
            where = f"{place}:{getattr(node, 'lineno', 1)}"
            docstring = ast.get_docstring(node) or ""
            if docstring.startswith(_CLAUSES):
                clauses.append(f"{where} {docstring.splitlines()[0]}")
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(where)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_counted(node):
                functions += 1
                if "_" not in node.name.strip("_"):
                    one_word.append(f"{where} {node.name}")
                if is_bare_participle(node.name):
                    participles.append(f"{where} {node.name}")
    return NameFigures(
        functions=functions,
        one_word=tuple(one_word),
        participles=tuple(participles),
        shared_classes=tuple(f"{name}: {', '.join(at)}" for name, at in classes.items() if len(at) > 1),
        repeated_modules=tuple(f"{stem}: {', '.join(at)}" for stem, at in stems.items() if len(at) > 2),
        gerund_modules=tuple(gerunds),
        clause_docstrings=tuple(clauses),
    )


_Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _walk_definitions(path: Path) -> Iterator[_Definition]:
    for node in list_nodes(parse_module(path)):
        if isinstance(node, _Definition):
            yield node


def _is_counted(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return False for dunder methods, and for properties, which are nouns."""
    decorators = " ".join(ast.unparse(each) for each in node.decorator_list)
    return not node.name.startswith("__") and not re.search(r"property|setter|overload", decorators)
