"""Part `adapters`: candidates of one frozen transformer, beside peft in a plain loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from statistics import mean, median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from mmdb.api import Database
from mmdb.bench.figures import Figure, at_most

_LENGTH, _PARTS, _BATCH, _EPOCHS, _ALPHA = 32, 4, 32, 2, 16
_LAYERS, _HEAD = ("query", "value"), "classifier"
#: Some 20 M parameters.
_SIZES: dict[str, Any] = {
    "hidden_size": 384,
    "num_hidden_layers": 8,
    "num_attention_heads": 6,
    "intermediate_size": 1536,
    "vocab_size": 15000,
    "max_position_embeddings": 64,
}
_TABLE = """
    CREATE TABLE {prefix}_said AS SELECT i AS id, i % 2 AS liked,
        'w' || i * 7 % 97 || ' w' || i * 11 % 89 || ' w' || i * 13 % 83 || ' w' || i * 17 % 79
        AS said
    FROM generate_series(1, {rows}) AS g (i)
"""
_BEGINNINGS = """
    SELECT w.match_s, t.transfer_s FROM mmdb.warm_start AS w
    INNER JOIN mmdb.transfer AS t ON w.transfer_id = t.transfer_id
    INNER JOIN mmdb.candidate AS c ON w.candidate_id = c.candidate_id
    INNER JOIN mmdb.run AS r ON c.run_id = r.run_id WHERE r.name = '{prefix}_adapters'
"""
_HOPS = """
    SELECT h.total_s, h.load_s, h.read_s, h.store_s, h.state_bytes FROM mmdb.hop AS h
    INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
    INNER JOIN mmdb.run AS r ON c.run_id = r.run_id WHERE r.name = '{prefix}_adapters'
"""


def bench_adapters(db: Database, prefix: str, *, rows: int, candidates: int) -> Iterator[Figure]:
    """Train adapters of one network by mmdb with two workers, and one after the other by peft.

    Args:
        candidates: even: half of them have another rank.
    """
    rates = [1e-4 * 1.3**k for k in range(candidates // 2)]
    db.sql(_TABLE.format(rows=rows, prefix=prefix))
    tokens = {"said": {"function": "bytes", "length": _LENGTH}}
    query = f"SELECT said, liked FROM {prefix}_said"
    options = {"tokenize": tokens}
    db.create_dataset(f"{prefix}_said", query, label="liked", partitions=_PARTS, options=options)
    network = {"factory": "transformers", "arguments": {"name": "bert", **_SIZES}}
    fixed = {"batch_size": _BATCH, "optimizer": "adamw"}
    given: dict[str, Any] = {"dataset": f"{prefix}_said", "strategy": "mop"}
    base = db.create_run(
        f"{prefix}_base", architecture=network, search={"space": {"lr": 1e-4, **fixed}}, **given
    )
    base.train(workers=1)
    layers = [f"*.{layer}" for layer in _LAYERS]
    adapter = {"name": "lora", "alpha": _ALPHA, "layers": layers, "train": [_HEAD]}
    run = db.create_run(
        f"{prefix}_adapters",
        architecture={"adapted": network, "adapter": adapter},
        search={"space": {"lr": rates, "architecture.rank": [4, 8], **fixed}},
        epochs=_EPOCHS,
        warm_start=f"{prefix}_base",
        **given,
    )
    start = perf_counter()
    run.train(workers=2)
    ours = perf_counter() - start
    theirs = _loop(db.recover(f"{prefix}_base"), rates, rows)
    yield at_most(
        f"{db.connection.engine}: {candidates} adapters, over peft one after the other",
        [ours / theirs],
        "x",
        0.5,
    )
    yield Figure(f"{db.connection.engine}: {candidates} adapters", ours, "s")
    yield Figure(f"{db.connection.engine}: {candidates} adapters by peft", theirs, "s")
    begun = [
        row["match_s"] + row["transfer_s"] for row in db.sql(_BEGINNINGS.format(prefix=prefix))
    ]
    yield Figure(f"{db.connection.engine}: an adapter begun, median", median(begun), "s")
    yield from _hops(db, prefix)
    yield from _version(db, prefix)


def _hops(db: Database, prefix: str) -> Iterator[Figure]:
    hops = db.sql(_HOPS.format(prefix=prefix))
    swapped = [100 * (h["load_s"] + h["read_s"] + h["store_s"]) / h["total_s"] for h in hops]
    yield at_most(f"{db.connection.engine}: a hop's swap, median", [median(swapped)], "%", 1)
    yield Figure(f"{db.connection.engine}: a hop's swap, mean", mean(swapped), "%")
    yield Figure(
        f"{db.connection.engine}: a state", max(h["state_bytes"] for h in hops) / 1e3, "kB"
    )


def _version(db: Database, prefix: str) -> Iterator[Figure]:
    module = db.recover(f"{prefix}_adapters")
    own = sum(p.nbytes for p in module.parameters() if p.requires_grad)
    (row,) = db.sql(
        f"SELECT stored_bytes FROM mmdb.model_overview WHERE model = '{prefix}_adapters'"
    )
    yield at_most(
        f"{db.connection.engine}: an adapter's version, over its bytes",
        [row["stored_bytes"] / own],
        "x",
        1.1,
    )
    base, tuned = db.recover(f"{prefix}_base"), f"{prefix}_adapters"
    for name, given, bar in (("alone", None, None), ("beside its base in memory", base, 20)):
        taken = [_milliseconds(partial(db.recover, tuned, base=given)) for _ in range(7)]
        what = f"{db.connection.engine}: an adapter recovered {name}, median"
        yield (
            Figure(what, median(taken), "ms")
            if bar is None
            else at_most(what, [median(taken)], "ms", bar)
        )
    yield Figure(
        f"{db.connection.engine}: the network",
        sum(p.nbytes for p in module.parameters()) / 1e6,
        "MB",
    )


def _milliseconds(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return 1e3 * (perf_counter() - start)


def _loop(base: nn.Module, rates: list[float], rows: int) -> float:
    """Return the seconds that peft takes for the same candidates, one after the other."""
    peft: Any = import_module("peft")
    library: Any = import_module("transformers")

    weights = base.state_dict()
    x, y = _rows(rows)
    held = rows // 5
    start = perf_counter()
    for rank in (4, 8):
        for rate in rates:
            plain = library.BertForSequenceClassification(library.BertConfig(**_SIZES))
            plain.load_state_dict(weights)
            about = peft.LoraConfig(
                r=rank, lora_alpha=_ALPHA, target_modules=list(_LAYERS), modules_to_save=[_HEAD]
            )
            _train(peft.get_peft_model(plain, about), x[held:], y[held:], x[:held], rate)
    return perf_counter() - start


def _train(model: Any, x: Tensor, y: Tensor, held: Tensor, rate: float) -> None:
    learned = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=rate)
    for _ in range(_EPOCHS):
        model.train()
        for part in torch.arange(len(x)).chunk(_PARTS):
            for index in part[torch.randperm(len(part))].split(_BATCH):
                optimizer.zero_grad()
                model(**_given(x[index]), labels=y[index]).loss.backward()
                optimizer.step()
        model.eval()
        with torch.no_grad():
            model(**_given(held))


def _given(x: Tensor) -> Mapping[str, Tensor]:
    return {"input_ids": x, "attention_mask": (x != 0).long()}


def _rows(rows: int) -> tuple[Tensor, Tensor]:
    """Return the texts of the table as bytes (rows, length), and the labels."""
    texts = [
        " ".join(f"w{i * a % b}" for a, b in ((7, 97), (11, 89), (13, 83), (17, 79)))
        for i in range(1, rows + 1)
    ]
    coded = [list(text.encode())[:_LENGTH] for text in texts]
    x = torch.tensor([one + [0] * (_LENGTH - len(one)) for one in coded])
    return x, torch.tensor([i % 2 for i in range(1, rows + 1)])
