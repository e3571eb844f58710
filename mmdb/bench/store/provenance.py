"""A model that mmdb trained, saved as the recipe of its training and made again from it."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

from mmdb.bench.figures import Figure, at_most
from mmdb.bench.store.recovery import same_bits
from mmdb.bench.store.subject import Subject
from mmdb.bench.workload import make_points

ROWS, WIDTH, CLASSES, HIDDEN = 20_000, 64, 10, 1024
RECIPE_BAR = 20_000  # bytes


def measure_provenance(subject: Subject) -> Iterator[Figure]:
    """Yield the bytes of a recipe, and whether it gives the same bits again."""
    db, name = subject.db, subject.name("provenance")
    make_points(db, f"{subject.prefix}_points", subject.share.of(ROWS, 400), WIDTH, CLASSES)
    db.create_dataset(name, f"SELECT * FROM {subject.prefix}_points", partitions=2)
    run = db.create_run(
        name,
        dataset=name,
        architecture=f"mlp(hidden=[{HIDDEN}, {HIDDEN}], dropout=0.1)",
        search={"space": {"optimizer": "adam", "lr": 1e-3}},
        epochs=2,
    )
    summary = run.train(workers=1)
    assert summary.best_candidate_id is not None
    saved = db.recover(f"{summary.model}@{summary.version}")
    before, started = subject.stored(), perf_counter()
    kept = db.save_candidate(summary.best_candidate_id, f"{name}-recipe", approach="provenance")
    save_s = perf_counter() - started
    added = (subject.stored() - before).total
    where = f"{subject.engine}, provenance of an mmdb-trained model"
    yield at_most(f"{where}: stored", [added], "B", RECIPE_BAR)
    yield Figure(name=f"{where}: save", value=save_s, unit="s")
    started = perf_counter()
    recovered = db.recover(kept)
    yield Figure(name=f"{where}: recover", value=perf_counter() - started, unit="s")
    yield same_bits(f"{where}: recovered bit for bit", recovered, saved)
