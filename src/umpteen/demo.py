"""Real text found on every machine with this package: the docstrings of the installed Python packages.

Sources are parsed, never imported, so none of their code runs. A docstring's labels are its package and module, the
names of its parameters, the exceptions it raises and the base classes of its class: thousands of labels with a
natural long tail. They depend on the installed packages; the same packages give the same corpus.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sysconfig
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from importlib import metadata
from pathlib import Path

from umpteen.data.corpus import Corpus
from umpteen.errors import ParamError

#: Directories and files that hold no documentation worth learning from.
_SKIPPED = {"test", "tests", "testing", "idlelib", "lib2to3", "site-packages", "__pycache__", "turtledemo", "_vendor"}
_SHORTEST = 60  # characters
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def find_sources(packages: Collection[str] = ()) -> list[tuple[str, Path]]:
    """(package, file) for Python's own library and this package's dependencies, or only for `packages`; sorted."""
    library = Path(sysconfig.get_paths()["stdlib"])
    found = [(_package_of(file, library), file) for file in _python_files(library)]
    for name in _dependencies("umpteen", "numpy", "scipy"):
        try:
            files = metadata.files(name) or []
        except metadata.PackageNotFoundError:
            continue
        for entry in files:
            if entry.suffix == ".py" and not _SKIPPED & set(entry.parts):
                file = Path(str(entry.locate()))
                if file.is_file():
                    found.append((entry.parts[0].removesuffix(".py"), file))
    chosen = {pair for pair in found if not packages or pair[0] in packages}
    return sorted(chosen, key=lambda pair: (pair[0], str(pair[1])))


def gather_corpus(
    max_texts: int = 12_000,
    min_label_texts: int = 3,
    packages: Collection[str] = (),
    on_progress: Callable[[int, int], None] | None = None,
) -> Corpus:
    """Docstrings and their labels.

    Parameters
    ----------
    max_texts
        Keep at most this many, chosen by a hash of the text.
    min_label_texts
        Drop labels with fewer texts.
    packages
        Read only these; by default Python's own library and this package's dependencies.
    on_progress
        Called with the number of files read and of all files.
    """
    sources = find_sources(packages)
    if not sources:
        raise ParamError(
            "packages must be in Python's own library or among umpteen's dependencies, but are "
            f"{', '.join(sorted(packages))}"
        )
    texts: dict[str, list[str]] = {}
    for number, (package, file) in enumerate(sources):
        if on_progress is not None:
            on_progress(number, len(sources))
        for text, labels in _read_docstrings(package, file):
            texts.setdefault(text, labels)  # a text that occurs twice could be in both parts of a split
    if on_progress is not None:
        on_progress(len(sources), len(sources))
    chosen = sorted(texts, key=lambda text: hashlib.sha256(text.encode("utf-8", "replace")).digest())[:max_texts]
    counts = Counter(label for text in chosen for label in texts[text])
    kept = {label for label, count in counts.items() if count >= min_label_texts}
    rows = [(text, [label for label in texts[text] if label in kept]) for text in chosen]
    rows = [(text, labels) for text, labels in rows if labels]
    return Corpus([text for text, _ in rows], [labels for _, labels in rows])


def _dependencies(*names: str) -> list[str]:
    """Packages and all their dependencies, by name."""
    found, left = set(names), list(names)
    while left:
        try:
            requirements = metadata.requires(left.pop()) or []
        except metadata.PackageNotFoundError:
            continue
        for requirement in requirements:
            if "extra ==" in requirement:
                continue
            plain = requirement.split(";")[0].strip()
            end = next((i for i, c in enumerate(plain) if not (c.isalnum() or c in "-_.")), len(plain))
            if plain[:end] not in found:
                found.add(plain[:end])
                left.append(plain[:end])
    return sorted(found)


def _python_files(root: Path) -> Iterator[Path]:
    for entry in sorted(root.iterdir()):
        if entry.is_dir() and entry.name not in _SKIPPED and not entry.name.startswith("."):
            yield from _python_files(entry)
        elif entry.suffix == ".py":
            yield entry


def _package_of(file: Path, library: Path) -> str:
    return file.relative_to(library).parts[0].removesuffix(".py")


def _read_docstrings(package: str, file: Path) -> Iterator[tuple[str, list[str]]]:
    try:
        source = file.read_bytes()
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return  # a file this Python cannot parse; there are many others
    module = [f"package {package}", f"module {file.stem if file.stem != '__init__' else file.parent.name}"]
    stack: list[tuple[ast.AST, list[str]]] = [(tree, [])]
    while stack:
        node, owners = stack.pop()
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node, clean=False)
            if text is not None and len(text) >= _SHORTEST:
                labels = module + owners + _labels_of(node)
                yield inspect.cleandoc(text), list(dict.fromkeys(labels))
            inner = [f"class {node.name}"] if isinstance(node, ast.ClassDef) else []
            stack += [(child, inner) for child in reversed(node.body)]


def _labels_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ClassDef):
        return [f"derives from {name}" for base in node.bases if (name := _name(base))]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        arguments = node.args
        names = [a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]]
        labels = [f"parameter {name}" for name in names if name not in ("self", "cls") and len(name) > 1]
        return labels + [f"raises {name}" for name in _raised(node)]
    return []


def _raised(node: _Function) -> list[str]:
    names = [
        _name(inner.exc.func if isinstance(inner.exc, ast.Call) else inner.exc)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Raise) and inner.exc is not None
    ]
    return sorted({name for name in names if name})


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
