"""The rules that hold the code together, read from its syntax trees: who imports whom, and that every queue ends.

The rules are functions from source text to violations, so that each is also shown to catch what it forbids.
"""

import ast
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from duologue.models import MODELS

pytestmark = pytest.mark.unit

REPO = Path(__file__).resolve().parents[2]
STAGES = ("encoder", "llm", "talker", "codec")
SERVICES = ("api", *STAGES)
KINDS = frozenset(
    marker.partition(":")[0]
    for marker in tomllib.loads((REPO / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"][
        "markers"
    ]
) - {"slow"}
PRODUCT = sorted(path for top in ("shared", "services") for path in (REPO / top).rglob("*.py"))
PAGE = sorted((REPO / "services/api/duologue_api/page/assets").iterdir())
TESTS = sorted((REPO / "tests").rglob("test_*.py"))

Rule = Callable[[str, str], Iterator[str]]
"""(path from the repository's root, source) → what is wrong, each with its line."""


def violations(rule: Rule, paths: list[Path]) -> list[str]:
    found: list[str] = []
    for path in paths:
        name = path.relative_to(REPO).as_posix()
        found += [f"{name}:{problem}" for problem in rule(name, path.read_text())]
    return found


# ---------------------------------------------------------------- imports


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, module) of every import that names its module, wherever it stands.  Relative imports stay inside
    their own package, so no rule here can concern them."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, name.name) for name in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from ((node.lineno, f"{module}.{name.name}") for name in names)
            case ast.Call(
                func=ast.Name("import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(str(module)), *_],
            ):
                yield node.lineno, module


def forbidden_imports(path: str) -> set[str]:
    """The packages that the module at `path` must not import."""
    forbidden = set() if path.startswith("shared/duologue/bus/") else {"nats"}
    if path.startswith("services/"):
        own = path.split("/")[1]
        forbidden |= {f"duologue_{service}" for service in SERVICES if service != own}
        if own in STAGES:
            forbidden |= {"asyncio", "fastapi"}
    if path.startswith("shared/duologue/stage/"):
        forbidden |= {"torch", *(f"duologue_{service}" for service in SERVICES)}
    if path.startswith("shared/duologue/models/"):
        forbidden |= {"torch"}
    return forbidden


def import_rules(path: str, source: str) -> Iterator[str]:
    forbidden = forbidden_imports(path)
    for line, module in imports(ast.parse(source)):
        package = module.partition(".")[0]
        if package in forbidden:
            yield f"{line}: imports {package}"


def subject_rule(path: str, source: str) -> Iterator[str]:
    """Subjects are spelled in one module."""
    if path == "shared/duologue/bus/subjects.py":
        return
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str(text)) if text.startswith("duo.v1"):
                yield f"{node.lineno}: spells the subject {text!r}"
            case ast.Constant(value=bytes(data)) if data.startswith(b"duo.v1"):
                yield f"{node.lineno}: spells the subject {data!r}"


def test_imports_keep_to_their_layer() -> None:
    assert violations(import_rules, PRODUCT) == []


def test_subjects_are_spelled_once() -> None:
    assert violations(subject_rule, PRODUCT) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("services/api/duologue_api/x.py", "import duologue_llm.parrot"),
        ("services/llm/duologue_llm/x.py", "from duologue_codec import parrot"),
        ("services/llm/duologue_llm/x.py", "import numpy, asyncio"),
        ("services/codec/duologue_codec/x.py", "def f():\n    from fastapi import FastAPI"),
        ("services/talker/duologue_talker/x.py", "import nats.aio.client as client"),
        ("services/api/duologue_api/x.py", "import nats"),
        ("shared/duologue/session/x.py", "from nats.js import api"),
        ("shared/duologue/stage/x.py", "import torch.cuda"),
        ("shared/duologue/stage/x.py", "import importlib\nimportlib.import_module('duologue_llm.parrot')"),
        ("shared/duologue/models/x.py", "if True:\n    from torch import Tensor"),
    ],
)
def test_a_forbidden_import_is_found(path: str, source: str) -> None:
    assert list(import_rules(path, source)) != []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "services/llm/duologue_llm/x.py",
            "import duologue_llm.parrot\nimport torch\nfrom duologue import draws",
        ),
        ("services/api/duologue_api/x.py", "import asyncio\nimport fastapi"),
        ("shared/duologue/bus/x.py", "import nats\nimport asyncio"),
        (
            "shared/duologue/stage/x.py",
            "import asyncio\nimportlib.import_module(f'duologue_{stage}.{model}')",
        ),
        ("shared/duologue/x.py", "import nats_server\nfrom . import nats"),
    ],
)
def test_an_allowed_import_passes(path: str, source: str) -> None:
    assert list(import_rules(path, source)) == []


@pytest.mark.parametrize("source", ["x = 'duo.v1.in.llm'", "x = f'duo.v1.in.{worker}'", "x = b'duo.v1.hb.>'"])
def test_a_spelled_subject_is_found(source: str) -> None:
    assert list(subject_rule("services/api/duologue_api/x.py", source)) != []
    assert list(subject_rule("shared/duologue/bus/subjects.py", source)) == []


# ---------------------------------------------------------------- queues

# Where each class takes its bound: by this keyword, or at this place.  None: it can't have one.
BOUNDS: dict[str, tuple[str, int] | None] = {
    "asyncio.Queue": ("maxsize", 0),
    "asyncio.LifoQueue": ("maxsize", 0),
    "asyncio.PriorityQueue": ("maxsize", 0),
    "queue.Queue": ("maxsize", 0),
    "queue.LifoQueue": ("maxsize", 0),
    "queue.PriorityQueue": ("maxsize", 0),
    "queue.SimpleQueue": None,
    "multiprocessing.Queue": ("maxsize", 0),
    "multiprocessing.JoinableQueue": ("maxsize", 0),
    "multiprocessing.SimpleQueue": None,
    "collections.deque": ("maxlen", 1),
}
# Methods of a multiprocessing context, which no import betrays.
CONTEXT_QUEUES = frozenset({"Queue", "JoinableQueue", "SimpleQueue"})
HOW_BOUNDED = re.compile(r"#\s*bounded:\s*\S")
# Functions that take a class without ever making one of it.
NEVER_MAKE = frozenset({"isinstance", "issubclass", "cast", "TypeVar"})


class Queues:
    """Finds the queues that a module makes without a positive bound."""

    def __init__(self, source: str) -> None:
        self.lines = source.splitlines()
        self.tree = ast.parse(source)
        self.names: dict[str, str] = {}  # what a name in this module stands for, dotted
        for node in ast.walk(self.tree):
            match node:
                case ast.Import(names=names):
                    for name in names:
                        self.names[name.asname or name.name.partition(".")[0]] = (
                            name.name if name.asname else name.name.partition(".")[0]
                        )
                case ast.ImportFrom(module=str(module), names=names, level=0):
                    for name in names:
                        self.names[name.asname or name.name] = f"{module}.{name.name}"
        for node in ast.walk(self.tree):
            match node:
                case ast.Assign(targets=[ast.Name(alias)], value=value) if known := self.kind(value):
                    self.names[alias] = known

    def kind(self, node: ast.expr) -> str | None:
        """The key of `BOUNDS` that the expression stands for, through aliases and `deque[int]`."""
        while isinstance(node, ast.Subscript):
            node = node.value
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.insert(0, node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            dotted = ".".join([self.names.get(node.id, node.id), *attributes])
            dotted = re.sub(r"^(asyncio|multiprocessing)\.queues\.", r"\1.", dotted)
            if dotted in BOUNDS:
                return dotted
        if attributes and attributes[-1] in CONTEXT_QUEUES and "multiprocessing" in self.names.values():
            return f"multiprocessing.{attributes[-1]}"
        return None

    def violations(self) -> Iterator[str]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                kind, arguments = self.kind(node.func), node.args
                if kind is None and ast.unparse(node.func).split(".")[-1] == "partial" and node.args:
                    kind, arguments = self.kind(node.args[0]), node.args[1:]
                if kind is not None:
                    if not self.bounded(kind, arguments, node.keywords) and not self.explained(
                        kind, node.lineno
                    ):
                        yield f"{node.lineno}: {kind} without a bound"
                elif ast.unparse(node.func).split(".")[-1] not in NEVER_MAKE:
                    # A class that is handed over (`default_factory=deque`) will be called without a bound.
                    for handed in (*node.args, *(keyword.value for keyword in node.keywords)):
                        if (kind := self.kind(handed)) and not self.explained(kind, handed.lineno):
                            yield f"{handed.lineno}: {kind} handed over, to be made without a bound"
            elif isinstance(node, ast.ClassDef):
                for base in node.bases:
                    if kind := self.kind(base):
                        yield f"{base.lineno}: {kind} as a base, whose bound can't be seen"

    def bounded(self, kind: str, arguments: list[ast.expr], keywords: list[ast.keyword]) -> bool:
        """A bound that is computed counts as one; what is written out must be above zero."""
        if (bound := BOUNDS[kind]) is None:
            return False
        name, place = bound
        given = [keyword.value for keyword in keywords if keyword.arg == name] or arguments[place : place + 1]
        match given:
            case [ast.Constant(value=int(size))]:
                return size > 0
            case [ast.Constant()] | [ast.UnaryOp(op=ast.USub())] | [ast.Starred()] | []:
                return False
        return True

    def explained(self, kind: str, line: int) -> bool:
        """Only a deque may be bounded by what its owner does: a condition before each append."""
        around = self.lines[max(0, line - 2) : line]
        return kind == "collections.deque" and any(HOW_BOUNDED.search(text) for text in around)


def queue_rule(path: str, source: str) -> Iterator[str]:
    del path
    return Queues(source).violations()


def test_every_queue_has_a_bound() -> None:
    assert violations(queue_rule, PRODUCT) == []


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio\nq = asyncio.Queue()",
        "import asyncio\nq: asyncio.Queue[int] = asyncio.Queue(maxsize=0)",
        "import asyncio as a\nq = a.LifoQueue(-1)",
        "from asyncio import PriorityQueue as P\nq = P[int]()",
        "from asyncio.queues import Queue\nq = Queue(0)",
        "import asyncio\nOutbox = asyncio.Queue[bytes]\nq = Outbox()",
        "import queue\nq = queue.Queue()",
        "import queue\nq = queue.Queue(None)",
        "from queue import SimpleQueue\nq = SimpleQueue()",
        "import multiprocessing as mp\nq = mp.Queue()",
        "import multiprocessing\nq = multiprocessing.SimpleQueue()",
        "import multiprocessing\nq = multiprocessing.get_context('spawn').JoinableQueue()",
        "from collections import deque\nq = deque()",
        "from collections import deque\nq = deque([1, 2])",
        "import collections\nq = collections.deque([], None)",
        "from collections import deque\nq = deque([], maxlen=None)",
        "from collections import deque\nq = deque(*options)",
        "from collections import deque\nq = field(default_factory=deque)",
        "from collections import deque\nq = field(default_factory=deque[int])",
        "from collections import defaultdict, deque\nq = defaultdict(deque)",
        "from functools import partial\nfrom asyncio import Queue\nmake = partial(Queue)",
        "import asyncio\nclass Q(asyncio.Queue[int]): ...",
        "from collections import deque\nq = deque()  # bounded:",
        "from collections import deque\n# bounded: by the ring\n\nq = deque()",
        "import asyncio\nq = asyncio.Queue()  # bounded: by the ring",
    ],
)
def test_a_queue_without_a_bound_is_found(source: str) -> None:
    assert list(queue_rule("x.py", source)) != []


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio\nq = asyncio.Queue(8)",
        "import asyncio\nq: asyncio.Queue[int] = asyncio.Queue(maxsize=settings.size)",
        "import asyncio\nOutbox = asyncio.Queue[bytes]\nq = Outbox(4)",
        "from collections import deque\nq = deque(maxlen=3)",
        "from collections import deque\nq = deque([], units)",
        "from collections import deque\nq = field(default_factory=lambda: deque(maxlen=9))",
        "from functools import partial\nfrom collections import deque\nmake = partial(deque, maxlen=9)",
        "from collections import deque\nq = deque()  # bounded: by credit, 16 units",
        "from collections import deque\n# bounded: by credit, 16 units\nq = deque()",
        "from collections import deque\ndef f(q: deque[int]) -> bool: return isinstance(q, deque)",
        "from product import Queue\nq = Queue()",
    ],
)
def test_a_queue_with_a_bound_passes(source: str) -> None:
    assert list(queue_rule("x.py", source)) == []


# ---------------------------------------------------------------- kinds of tests, sizes, models


def kind_rule(path: str, source: str) -> Iterator[str]:
    """A test module says what it is, once, for all its tests."""
    del path
    kinds = [
        node.attr
        for statement in ast.parse(source).body
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None
        if "pytestmark" in {ast.unparse(target) for target in targets(statement)}
        for node in ast.walk(statement.value)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pytest.mark" and node.attr in KINDS
    ]
    if len(kinds) != 1:
        yield f"1: declares {kinds or 'no kind'} instead of one of {sorted(KINDS)}"


def targets(statement: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return statement.targets if isinstance(statement, ast.Assign) else [statement.target]


def test_every_test_module_declares_its_kind() -> None:
    assert TESTS
    assert violations(kind_rule, TESTS) == []


@pytest.mark.parametrize(
    ("source", "good"),
    [
        ("pytestmark = pytest.mark.unit", True),
        ("pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]", True),
        ("", False),
        ("pytestmark = pytest.mark.timeout(3)", False),
        ("pytestmark = pytest.mark.slow", False),
        ("pytestmark = [pytest.mark.unit, pytest.mark.bus]", False),
        ("def test():\n    pytestmark = pytest.mark.unit", False),
        ("other = pytest.mark.unit", False),
    ],
)
def test_a_module_without_one_kind_is_found(source: str, good: bool) -> None:
    assert (list(kind_rule("tests/x.py", source)) == []) is good


def test_make_docs_makes_every_page_that_is_made_from_the_code() -> None:
    made = {path.stem for path in (REPO / "docs").glob("*.md") if "a test holds it" in path.read_text()}
    made |= {path.stem for path in (REPO / "docs").glob("*.md") if "Made by" in path.read_text()}
    assert {"metrics", "protocol", "settings"} <= made
    assert set(re.findall(r">docs/(\w+)\.md", (REPO / "Makefile").read_text())) == made


def test_files_stay_small() -> None:
    lines = {
        path.relative_to(REPO).as_posix(): len(path.read_text().splitlines()) for path in [*PRODUCT, *PAGE]
    }
    assert PAGE
    assert len(lines) > 10
    assert {name: count for name, count in lines.items() if count > 400} == {}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("model", MODELS)
def test_every_model_has_its_four_files(model: str, stage: str) -> None:
    assert (REPO / f"services/{stage}/duologue_{stage}/{model}.py").is_file()
