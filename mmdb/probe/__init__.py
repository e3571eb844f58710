"""The probe: what flows through each layer of a module, as digests that travel and compare.

probe(module, inputs)         one or more passes, written down    -> ProbeSummary
compare(a, b)                 two summaries, layer by layer       -> Comparison
reproducible(module, inputs)  the same probe twice                -> Comparison
"""

from mmdb.probe.compare import Comparison, Difference, LayerComparison, compare
from mmdb.probe.observations import ProbePass, ProbeRecord, ProbeSummary, TensorDigest
from mmdb.probe.run import probe, reproducible

__all__ = [
    "Comparison",
    "Difference",
    "LayerComparison",
    "ProbePass",
    "ProbeRecord",
    "ProbeSummary",
    "TensorDigest",
    "compare",
    "probe",
    "reproducible",
]
