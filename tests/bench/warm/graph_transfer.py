"""mmdb's transfer between two modules: their flows, the alignment, the tensors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mmdb.graph.match.alignment import align
from mmdb.graph.match.pack import pack
from mmdb.graph.ops.capture import capture
from mmdb.graph.ops.op_contraction import skeleton_of
from mmdb.graph.transfer.transfer import transfer
from mmdb.store.parents.choice import MIN_COVERAGE, MIN_SIMILARITY
from tests.bench.warm.arms import Refused


def graph_transfer(child: nn.Module, parent: nn.Module, seed: int, example: Tensor) -> None:
    """Set the child's weights from the parent's.

    Raises:
        Refused: a tensor of the parent is not finite, or too little of the child is in it.
    """
    state = parent.state_dict()
    for path, tensor in state.items():
        if not bool(torch.isfinite(tensor).all()):
            raise Refused(f"{path} is not finite")
    flows = capture(child, [example]), capture(parent)
    outlines = skeleton_of(flows[0]), skeleton_of(flows[1])
    alignment = align(pack(outlines[0]), pack(outlines[1]))
    if alignment.score < MIN_SIMILARITY:
        raise Refused(f"its score is {alignment.score:.2f}")
    if alignment.coverage < MIN_COVERAGE:
        raise Refused(f"it covers {alignment.coverage:.2f} of the parameters")
    made = transfer(*flows, alignment.pairs, *outlines, state, child.state_dict(), seed=seed)
    child.load_state_dict(dict(made.tensors))
