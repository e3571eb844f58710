"""Commands about models: import, export, gc and probe."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmdb.cli.options import MODEL, database, json_text, opened
from mmdb.errors import InvalidOption, NotFound

if TYPE_CHECKING:  # it loads torch
    from mmdb.probe import ProbeSummary

#: Options of `mmdb import` that `import_model` takes.
IMPORTED = ("parent", "format", "key", "skip", "architecture", "dataset")
#: What `mmdb.store.files.formats` reads and writes; importing it here would load torch for --help.
FORMATS = ("auto", "safetensors", "torch", "huggingface", "peft")

#: Adds a command: its name, what runs it, what it is about, and parents with its options.
Add = Callable[..., argparse.ArgumentParser]


def add_commands(add: Add) -> None:
    """Add the commands to the parser."""
    about = "Save a file or folder as a model, or a zoo's folder whole."
    command = add("import", _import, about, database())
    command.add_argument("source")
    command.add_argument("name", nargs="?", help="left out for a zoo's folder")
    command.add_argument("--parent", metavar="MODEL", help="the model that it was made from")
    command.add_argument("--format", choices=FORMATS, default="auto")
    command.add_argument("--key", help="entry of a torch file that is the state dict")
    command.add_argument("--skip", action="store_true", help="leave out what is not a tensor")
    command.add_argument("--architecture", help="what builds it; by its config.json if left out")
    command.add_argument("--dataset", help="the dataset whose rows it reads from now on")

    about = "Say what builds a model that was imported bare, and whose rows it reads."
    command = add("attach", _attach, about, MODEL, database())
    command.add_argument("--architecture", help="what builds it; what is known if left out")
    command.add_argument("--dataset", help="the dataset whose rows it reads from now on")

    about = "Write a model to a file or folder, or the zoo to a folder."
    command = add("export", _export, about, database())
    command.add_argument("model", nargs="?", help="name, name@version or name@alias")
    command.add_argument("target")
    command.add_argument("--all", action="store_true", help="the whole zoo")
    about = "with --all: these models alone"
    command.add_argument("--only", action="append", metavar="NAME", help=about)
    command.add_argument("--format", choices=FORMATS, default="auto")
    command.add_argument("--overwrite", action="store_true", help="take the place of what is there")
    command.add_argument("--max-shard-bytes", type=int, default=5_000_000_000, metavar="N")

    about = "Copy a model into another database, sending what it lacks."
    command = add("push", _copy, about, MODEL, _copying(), database())
    command.add_argument("--to", metavar="URL", required=True)

    about = "Copy a model out of another database."
    command = add("pull", _copy, about, MODEL, _copying(), database())
    command.add_argument("--from", dest="from_", metavar="URL", required=True)

    about = "Show what no model needs any more; with --delete, delete it."
    command = add("gc", _gc, about, database())
    command.add_argument("--delete", action="store_true", help="delete it, and free its space")
    command.add_argument("--grace", default="7 days", help="leave alone what is younger (7 days)")

    about = "Digest what each layer of a model takes and gives, or compare."
    command = add("probe", _probe, about, database(required=False))
    command.add_argument("model", nargs="?", help="name, name@version or name@alias")
    command.add_argument("query", nargs="?", help="a SELECT whose first rows are the input")
    command.add_argument("--compare", nargs=2, metavar=("A", "B"), help="two files or kept probes")
    command.add_argument("--mode", choices=("inference", "training"), default="inference")
    command.add_argument("--passes", type=int, default=1)
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--key", default="id", help="column that names a row (id)")
    command.add_argument("--rows", type=int, default=32, help="rows of the query to use (32)")
    command.add_argument("--save", metavar="NAME", help="keep the summary in the database")
    command.add_argument("--output", metavar="FILE", help="write the summary to a file")


def _copying() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(add_help=False)
    command.add_argument("--name", help="its name there; the same if left out")
    command.add_argument("--next", action="store_true", help="take the next free version there")
    command.add_argument("--all-versions", action="store_true", help="every version of the name")
    command.add_argument("--aliases", action="store_true", help="those of this version, too")
    command.add_argument("--data", action="store_true", help="the datasets behind it, too")
    command.add_argument("--weights", choices=("auto", "always", "never"), default="auto")
    command.add_argument("--verify", choices=("full", "sampled", "none"), default="full")
    return command


def _copy(given: argparse.Namespace) -> int:
    from mmdb.terminal import copy_progress

    names = ("name", "all_versions", "aliases", "data", "weights", "verify")
    options = {name: getattr(given, name) for name in names}
    options["version"] = "next" if given.next else None
    with opened(given) as db, copy_progress(given.model, shown=not given.json) as report:
        if "to" in given:
            found = db.push(given.model, to=given.to, on_progress=report, **options)
        else:
            found = db.pull(given.model, from_=given.from_, on_progress=report, **options)
    text = f"{', '.join(found.models) or 'nothing'} copied, {found.bytes_sent:,} bytes sent"
    if found.kept:
        text += f"; {', '.join(found.kept)} there already"
    return _done(found, given.json, text)


def _import(given: argparse.Namespace) -> int:
    with opened(given) as db:
        if given.name is None:
            zoo = db.import_zoo(given.source)
            return _done(zoo, given.json, f"{len(zoo.added)} added, {zoo.kept} there already")
        options = {name: getattr(given, name) for name in IMPORTED}
        found = db.import_model(given.source, given.name, **options)
    text = f"{found.model}: {found.tensors} tensors, {found.stored_bytes:,} bytes stored"
    return _noted(found, given.json, text)


def _attach(given: argparse.Namespace) -> int:
    with opened(given) as db:
        options = {name: getattr(given, name) for name in ("architecture", "dataset")}
        found = db.attach_model(given.model, **options)
    return _noted(found, given.json, f"{found.model} attached")


def _noted(found: Any, as_json: bool, text: str) -> int:
    """Print the notes of a result, unless it is for machines, before what was done."""
    from mmdb.terminal import console

    for note in () if as_json else found.notes:
        console.print(f"note: {note}", highlight=False, markup=False, soft_wrap=True)
    return _done(found, as_json, text)


def _export(given: argparse.Namespace) -> int:
    if given.all == (given.model is not None):
        raise WrongUse("Name a model, or pass --all, and a target.")
    with opened(given) as db:
        if given.all:
            zoo = db.export_zoo(given.target, given.only)
            text = f"{len(zoo.added)} written, {zoo.kept} there already"
            return _done(zoo, given.json, text)
        options = {n: getattr(given, n) for n in ("format", "overwrite", "max_shard_bytes")}
        found = db.export_model(given.model, given.target, **options)
    text = f"{found.target}: {found.tensors} tensors, {found.bytes:,} bytes"
    return _done(found, given.json, text)


def _done(result: Any, as_json: bool, text: str) -> int:
    from mmdb.terminal import console

    if as_json:
        print(json_text(asdict(result)))
    else:
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    return 0


class WrongUse(Exception):
    """A command's arguments do not go together."""


def _gc(given: argparse.Namespace) -> int:
    from mmdb.terminal import console, show_rows

    with opened(given) as db:
        report = db.gc(dry_run=not given.delete, grace=given.grace)
    if given.json:
        print(json_text(asdict(report)))
        return 0
    show_rows("", [asdict(found) for found in report.found])
    if given.delete:
        console.print(f"{report.bytes_before:,} bytes before, {report.bytes_after:,} after")
    else:
        console.print("Nothing was deleted; `mmdb gc --delete` does it.")
    return 0


def _probe(given: argparse.Namespace) -> int:
    if bool(given.compare) == bool(given.model):
        raise WrongUse("Name a model and a query, or pass --compare with two probes.")
    if given.compare:
        return _compare(given)
    if given.query is None or given.database is None:
        raise WrongUse("Pass a SELECT after the model, and --database.")
    with opened(given) as db:
        inputs = _inputs(db, given.model, given.query, given.key, given.rows)
        options = {name: getattr(given, name) for name in ("mode", "passes", "seed")}
        summary = db.probe(given.model, inputs, save_as=given.save, **options)
    text = summary.to_json()
    if given.output:
        Path(given.output).write_text(text + "\n")
    if given.json:
        print(text)
    else:
        from mmdb.terminal import console

        records = len(summary.passes[-1].records)
        console.print(f"{records} layers probed in {len(summary.passes)} passes", highlight=False)
    return 0


def _inputs(db: Any, model: str, query: str, key: str, rows: int) -> Any:
    """Return the first rows of a SELECT as `predict` would give them to the model."""
    import torch

    from mmdb.data.dataset import find_decoding
    from mmdb.data.query_rows import scan_inputs
    from mmdb.store.models.model_rows import find_model

    found = find_model(db.connection, model)
    if found.dataset_id is None:
        raise InvalidOption(
            f"Model {found.reference} was saved without a dataset.",
            hint="Probe it from Python, with inputs of its own.",
        )
    decoding = find_decoding(db.connection, found.dataset_id)
    for _, x in scan_inputs(db.connection, decoding, query, key):
        if isinstance(x, dict):
            raise InvalidOption(
                f"Model {found.reference} has several inputs.",
                hint="Probe it from Python, with inputs of its own.",
            )
        return torch.from_numpy(x[:rows].copy())
    raise InvalidOption("The query returns no rows.", hint="Check its WHERE.")


def _compare(given: argparse.Namespace) -> int:
    from mmdb.probe import compare
    from mmdb.terminal import show_probe_comparison

    found = compare(*(_summary(given, name) for name in given.compare))
    if given.json:
        print(found.to_json())
    else:
        show_probe_comparison(found)
    return 0 if found.equal else 1


def _summary(given: argparse.Namespace, name: str) -> ProbeSummary:
    from mmdb.probe import ProbeSummary

    if os.path.isfile(name):
        return ProbeSummary.from_json(Path(name).read_text())
    if given.database is None:
        raise NotFound(f"There is no file {name}.", hint="Pass --database for a kept probe.")
    with opened(given) as db:
        return db.find_probe(name)
