"""Task parallelism: a candidate stays with one worker, which visits every partition.

    q_c   = as for `mop`; states never move
    bound = max( max_c q_c,  sum_c q_c / W )
    about = longest-first makespan of q on W workers, at most 4/3 - 1/(3 W) of the best

Where partitions lie on nodes of their own, no worker finds them all: it cannot be done.
Source: Graham, SIAM J. Appl. Math. 17(2) 1969. Memory: as for `mop`.
"""

from __future__ import annotations

import numpy as np

from mmdb.plan.columns import Columns
from mmdb.plan.cost import Cluster, Load
from mmdb.plan.crews import Crews
from mmdb.plan.equations.makespan import longest_first_s
from mmdb.plan.strategies.mop import chain_s
from mmdb.plan.strategies.terms import Terms, fastest, live_bytes, reading, slowed, terms


def task(table: Columns, crew: Crews, cluster: Cluster, load: Load, live: float) -> Terms:
    """Return what task parallelism takes."""
    chain = chain_s(table)
    read_s, once = reading(table, crew, load)
    factor = slowed(cluster, crew, min(table.candidates, int(crew.workers.max())))
    sizes = {int(w): longest_first_s(chain, int(w)) for w in np.unique(crew.workers)}
    about = np.array([sizes[int(w)] for w in crew.workers])
    busy = np.minimum(crew.workers, table.candidates)
    bound = np.maximum(chain.max() * fastest(cluster), (float(chain.sum()) + once) / crew.capacity)
    compute = table.epochs * float(table.train_epoch_s.sum())
    validation = table.epochs * float(table.validate_s.sum())
    return terms(
        crew,
        seconds=(about + read_s / busy) * factor,
        bound_s=bound,
        compute_s=compute * factor,
        read_s=read_s * factor,
        hop_s=(float(chain.sum()) - compute - validation) * factor,
        validation_s=validation * factor,
        bytes_moved=table.epochs * float(table.state_bytes.sum()),
        memory_bytes=float(table.memory_bytes.max()) + live_bytes(table, live),
    )
