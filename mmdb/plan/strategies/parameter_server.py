"""Parameter servers, a what-if: W workers train one candidate at a time through p servers.

    synchronous    T = sum_c E * ceil(N / batch) * (a0 + a1 * batch / W + exchange)
    asynchronous   T = sum_c E * ceil(N / batch) / rate          each worker takes whole batches

The servers take no worker's place. That asynchronous steps learn less (stale gradients) is not
counted: it changes the epochs needed, not their seconds.
Source: `equations.server`. Memory of a worker: one candidate's; the servers hold its state.
"""

from __future__ import annotations

import numpy as np

from mmdb.plan.columns import Columns
from mmdb.plan.cost import Cluster, Load
from mmdb.plan.crews import Crews
from mmdb.plan.equations import server
from mmdb.plan.equations.collective import straggler
from mmdb.plan.strategies.terms import Terms, reading, slowed, terms


def parameter_server(
    table: Columns,
    crew: Crews,
    cluster: Cluster,
    load: Load,
    servers: int,
    *,
    asynchronous: bool = False,
) -> Terms:
    """Return what training through `servers` parameter servers takes."""
    count = table.epochs * np.ceil(table.rows.sum() / table.batch_size)
    factor = slowed(cluster, crew, int(crew.workers.max()))
    compute, wire = np.zeros(len(crew)), np.zeros(len(crew))
    for k, workers in enumerate(crew.workers.tolist()):
        link = cluster.local if crew.nodes[k] == 1 else cluster.link
        way = (table.gradient_bytes, workers, servers, link, cluster.update_byte_s)
        if asynchronous:
            a_step = (table.step_s + table.row_s * table.batch_size) * factor[k]
            seconds = count / server.asynchronous_rate(a_step, *way)
            compute[k] = float((count * a_step).sum()) / workers
            wire[k] = max(float(seconds.sum()) - compute[k], 0.0)
        else:
            share = table.step_s + table.row_s * table.batch_size / workers
            compute[k] = float(count @ share) * factor[k] * straggler(workers, table.deviation)
            wire[k] = float(count @ server.synchronous_s(*way))
    ends = table.epochs * (table.validate_s + table.durable_s) + table.begin_s
    read_s, _ = reading(table, crew, load)
    pulls = 1.0 if asynchronous else crew.workers.astype(np.float64)
    return terms(
        crew,
        seconds=compute + wire + float(ends.sum()) + read_s / crew.workers,
        bound_s=compute / straggler(int(crew.workers.max()), table.deviation),
        compute_s=compute * crew.workers,
        read_s=read_s,
        hop_s=float((ends - table.epochs * table.validate_s).sum()),
        communication_s=wire * crew.workers,
        validation_s=table.epochs * float(table.validate_s.sum()),
        bytes_moved=2 * float(count @ table.gradient_bytes) * pulls,
        memory_bytes=float(table.memory_bytes.max()),
        servers=servers,
    )
