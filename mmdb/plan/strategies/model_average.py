"""Model averaging: all hops of an epoch from one state, side by side; then their states' mean.

    hop(c, p) = take + train(c, p) + leave + publish          (epoch 0: begin instead of take)
    q_c       = E * ( max_p hop(c, p) + merge + take + validate )
    work_c    = E * ( sum_p hop(c, p) + merge + take + validate )
    bound     = max( max_c q_c,  sum_c work_c / W ), where a hop after a validation takes nothing
    about     = max( max_c q_c with ceil(P / W) hops one after another,  sum / W + half a hop )

Every hop takes the state up anew: what a session holds live is the state after its own hop. The
merge reads P states (`equations.hop.merge_s`) and makes their mean durable.
Source: McDonald, Hall and Mann, NAACL 2010 (the method); mmdb.train.ledger for what it does.
Memory: one candidate's, or while merging one state and a sum of twice its size.
"""

from __future__ import annotations

import numpy as np

from mmdb.plan.columns import Columns
from mmdb.plan.cost import Cluster, Load
from mmdb.plan.crews import Crews
from mmdb.plan.equations.makespan import open_shop_s
from mmdb.plan.strategies.terms import (
    Terms,
    fastest,
    live_bytes,
    node_bound_s,
    reading,
    slowed,
    terms,
)


def model_average(table: Columns, crew: Crews, cluster: Cluster, load: Load, live: float) -> Terms:
    """Return what model averaging takes."""
    parts, epochs = table.partitions, table.epochs
    take = np.minimum(table.take_s, table.begin_s)
    around = take + table.leave_s + table.publish_s
    end = table.merge_s + (table.take_s + table.validate_s) * table.validates
    slowest = table.train.max(axis=1) + around
    held = take * table.validates  # a hop after a validation on the same worker takes up nothing
    chain = epochs * (slowest - held + end)
    work = epochs * (table.train_epoch_s + parts * around - held + end)
    read_s, once = reading(table, crew, load)
    at_once = table.candidates * parts
    factor = slowed(cluster, crew, min(at_once, int(crew.workers.max())))
    node_s = node_bound_s(table, crew, cluster, load)
    bound = np.maximum(
        np.maximum(chain.max() * fastest(cluster), (float(work.sum()) + once) / crew.capacity),
        node_s,
    )
    taken = table.begin_s + (epochs - 1) * table.take_s
    full = work + epochs * held + parts * (taken - epochs * take)
    turns = np.ceil(parts / crew.workers)
    alone = np.array([(epochs * (slowest * k + end)).max() for k in np.unique(turns)])
    alone = alone[np.searchsorted(np.unique(turns), turns)]
    about = open_shop_s(0.0, float(full.sum()) + read_s, crew.workers, float(slowest.mean()))
    compute = epochs * float(table.train_epoch_s.sum())
    validation = epochs * float(table.validate_s.sum())
    return terms(
        crew,
        seconds=np.maximum(np.maximum(about, alone) * factor, node_s),
        bound_s=bound,
        compute_s=compute * factor,
        read_s=read_s * factor,
        hop_s=(float(full.sum()) - compute - validation) * factor,
        validation_s=validation * factor,
        bytes_moved=epochs * (2 * parts + 3) * float(table.state_bytes.sum()),
        memory_bytes=float(
            np.maximum(
                table.memory_bytes + live_bytes(table, live),
                4 * table.state_bytes + live_bytes(table, live),
            ).max()
        ),
    )
