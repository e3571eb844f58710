"""Figures of the code's structure, as a table: python -m scripts.house [--static] [--list NAME].

`--static` leaves out what is run and traced; `--list` shows what a figure or a traced call counts.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "mmdb"
LONG, SHORT = 400, 40
#: Bases that say nothing of what a class is for.
_COMMON = {"Protocol", "Base", "Enum", "IntEnum", "TypedDict", "NamedTuple", "Exception"}
#: Beginning of a process that traces one call: `entered` holds files in the order of their first
#: function that ran; bodies of modules and classes are no functions.
TRACER = """
import sys, threading, mmdb
root, entered = mmdb.__path__[0] + "/", {}
def note(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_flags & 1 and code.co_filename.startswith(root):
        entered.setdefault(code.co_filename[len(root):])
def watch(profile):
    threading.setprofile(profile), sys.setprofile(profile)
"""
#: What is traced on a DuckDB file with a dataset and a model, in a fresh process.
CALLS = {
    "warm": "database.warm_start(module, 'auto', dataset='d')",
    "explain": "database.run('planned').explain()",
}
SETUP = """
import sys, mmdb
from tests.warm_runs import GRID, WIDE, add_parent
with mmdb.connect(sys.argv[1]) as database:
    add_parent(database)
    database.create_run("planned", dataset="d", architecture=WIDE, search=GRID, epochs=2)
"""
TRACED = """
import json
from mmdb.graph.spec.build import initial_module
from mmdb.graph.factories import SHIPPED
from tests.warm_runs import WIDE
module = initial_module(WIDE, {{}}, (12,), 3, SHIPPED, seed=1)
with mmdb.connect(sys.argv[1]) as database:
    watch(note)
    {call}
    watch(None)
print(json.dumps(list(entered)))
"""
HOPS = """
import psycopg, mmdb, sys
from mmdb.db.install import install
from tests.cluster import Cluster
from tests.points import NOW, fill
hop, read = "SELECT * FROM mmdb.train_hop({}, 1)", "import json; return json.dumps(list(GD['f']))"
with Cluster() as cluster:
    url = cluster.create_database("house")
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("CREATE EXTENSION IF NOT EXISTS plpython3u")
    install(url)
    with mmdb.connect(url) as database:
        fill(database)
        database.create_run("r", dataset="d", architecture="mlp", search=NOW, epochs=2)
    with psycopg.connect(url, autocommit=True) as session:
        session.execute(hop.format(1))
        session.execute(f"DO LANGUAGE plpython3u $${sys.argv[1]}GD['f'] = entered; watch(note)$$")
        session.execute(hop.format(2))
        session.execute(f"CREATE FUNCTION f() RETURNS text LANGUAGE plpython3u AS $${read}$$")
        print(session.execute("SELECT f()").fetchone()[0])
"""


def sources(folder: Path) -> list[Path]:
    """Return the Python files below a folder."""
    return sorted(folder.rglob("*.py"))


@cache
def tree(file: Path) -> ast.Module:
    """Return a file's syntax tree."""
    return ast.parse(file.read_text())


def lines(files: Iterable[Path]) -> int:
    """Return the number of lines of files."""
    return sum(len(file.read_text().splitlines()) for file in files)


@cache
def modules() -> dict[str, Path]:
    """Return the files of the package by module."""
    return {
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
        for file in sources(PACKAGE)
    }


def imports(file: Path) -> Iterator[Path]:
    """Yield the package's files that a file imports anywhere: in functions and for types, too."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules() else node.module for name in inner]
        else:
            continue
        yield from (modules()[name] for name in names if name in modules())


def pairs() -> list[tuple[str, str]]:
    """Return the pairs of folders of which each imports the other.

    A file's folder is the package that it lies in, `mmdb` itself among them; a folder and the one
    around it make a pair too.
    """
    files = {(a.parent, b.parent) for a in sources(PACKAGE) for b in imports(a)}
    arrows = {(str(a.relative_to(ROOT)), str(b.relative_to(ROOT))) for a, b in files}
    return sorted((a, b) for a, b in arrows if a < b and (b, a) in arrows)


def used_twice() -> tuple[list[str], list[str]]:
    """Return class names and file names that are used more than once.

    Classes with one base in common, such as a protocol that two engines implement, count once.
    """
    classes: dict[str, list[tuple[str, set[str]]]] = defaultdict(list)
    files: dict[str, list[str]] = defaultdict(list)
    for file in sources(PACKAGE):
        where = str(file.relative_to(PACKAGE))
        if file.stem not in ("__init__", "__main__"):
            files[file.name].append(where)
        for node in tree(file).body:
            if isinstance(node, ast.ClassDef):
                bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
                classes[node.name].append((where, bases - _COMMON))
    twins = {
        name: [where for where, _ in found]
        for name, found in classes.items()
        if not set.intersection(*(bases for _, bases in found))
    }
    return _several(twins), _several(files)


def _several(found: dict[str, list[str]]) -> list[str]:
    return [f"{name}: {', '.join(all_)}" for name, all_ in sorted(found.items()) if len(all_) > 1]


def function_length() -> float:
    """Return the median of the lines of functions and methods, from `def` to the end."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    nodes = chain.from_iterable(ast.walk(tree(file)) for file in sources(PACKAGE))
    return median((n.end_lineno or 0) - n.lineno + 1 for n in nodes if isinstance(n, kinds))


def python(code: str, *arguments: str) -> str:
    """Return what a fresh process of the checkout prints last."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    done.check_returncode()
    return done.stdout.strip().rpartition("\n")[2]


def importing() -> tuple[int, float]:
    """Return the modules that `import mmdb` loads, and its seconds: median of 7 processes."""
    code = "import sys, time; n, t = len(sys.modules), time.perf_counter(); import mmdb; "
    code += "print(time.perf_counter() - t, len(sys.modules) - n)"
    found = [python(code).split() for _ in range(7)]
    return int(found[0][1]), median(float(seconds) for seconds, _ in found)


def reached(call: str) -> list[str]:
    """Return the files in which a call enters a function, in that order.

    The call is a fresh process's first on DuckDB; "hop" is a session's second on PostgreSQL.
    """
    if call == "hop":
        return list(json.loads(python(HOPS, TRACER)))
    with TemporaryDirectory() as folder:
        url = f"duckdb:///{folder}/mmdb.duckdb"
        python(SETUP, url)
        return list(json.loads(python(TRACER + TRACED.format(call=CALLS[call]), url)))


def static_figures() -> Iterator[tuple[str, object]]:
    """Yield what needs no run."""
    own = sources(PACKAGE)
    counts = {file: lines([file]) for file in own}
    sql = [*(ROOT / "sql").rglob("*.sql"), *(ROOT / "udf").rglob("*.sql")]
    tests = set(sources(ROOT / "tests")) - set(sources(ROOT / "tests" / "bench"))
    classes, files = used_twice()
    mutual = pairs()
    inner = [pair for pair in mutual if all(re.match(r"mmdb/train\b", name) for name in pair)]
    yield "Python files; lines in mmdb/", f"{len(own)}; {sum(counts.values())}"
    yield "SQL lines (sql and udf)", lines(sql)
    yield "lines of Python in tests/ without tests/bench", lines(tests)
    yield "pairs of folders that import each other; in train/", f"{len(mutual)}; {len(inner)}"
    yield "class names; file names used twice", f"{len(classes)}; {len(files)}"
    yield "median function, lines", function_length()
    yield f"files above {LONG} lines", sum(count > LONG for count in counts.values())
    yield f"files below {SHORT} lines", sum(count < SHORT for count in counts.values())


def run_figures() -> Iterator[tuple[str, object]]:
    """Yield what is measured and traced."""
    loaded, seconds = importing()
    yield "import mmdb: modules; seconds", f"{loaded}; {seconds:.3f}"
    warm, explain = len(reached("warm")), len(reached("explain"))
    yield "files reached by warm start; by explain_train", f"{warm}; {explain}"
    files = reached("hop")
    found = [str(Path(file).parent) for file in files]
    visits = Counter(a for a, b in zip(found, [None, *found], strict=False) if a != b)
    again = sum(count > 1 for count in visits.values())  # left, and entered again
    about = f"{len(files)}; {len(visits)}; {again}"
    yield "train_hop on PostgreSQL: files; folders; entered twice", about


def main() -> None:
    """Print the table, or what a figure counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--static", action="store_true")
    parser.add_argument("--list", choices=["pairs", "classes", "files", *CALLS, "hop"])
    asked = parser.parse_args()
    if asked.list:
        classes, files = used_twice()
        named = {"classes": classes, "files": files, "pairs": [" ".join(pair) for pair in pairs()]}
        print(*(named.get(asked.list) or reached(asked.list)), sep="\n")
        return
    for name, value in chain(static_figures(), () if asked.static else run_figures()):
        print(f"| {name} | {value} |", flush=True)


if __name__ == "__main__":
    main()
