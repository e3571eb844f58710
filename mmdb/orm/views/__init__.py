"""The views, which are what `mmdb_reader` may read: a class for each."""

from __future__ import annotations

from mmdb.orm.views.candidates import (
    CandidateFailures,
    CandidateOverview,
    CandidateProgress,
    OpenCandidate,
    OpenRun,
)
from mmdb.orm.views.candidates_warm import WarmStartOverview
from mmdb.orm.views.catalog import DatasetLineage, DatasetOverview, PartitionOverview
from mmdb.orm.views.edges import (
    LineageFeatureEdge,
    LineageHopEdge,
    LineageModelEdge,
    LineageRunEdge,
    LineageSource,
    LineageSourceEdge,
    LineageStateEdge,
)
from mmdb.orm.views.features import FeatureOverview, RunFeatures
from mmdb.orm.views.figures import HopsPerHour, MetricHistory, RunCost, StorageOverview, ZooHits
from mmdb.orm.views.keys import ViewKey
from mmdb.orm.views.lineage import ColumnImpact, LineageEdge, LineageEntity
from mmdb.orm.views.metrics import Metric, ServerMetric
from mmdb.orm.views.mlflow import (
    MlflowExperiments,
    MlflowMetrics,
    MlflowModelVersions,
    MlflowParams,
    MlflowRegisteredModels,
    MlflowRuns,
)
from mmdb.orm.views.models import (
    AliasHistory,
    MetricOverview,
    ModelAlias,
    ModelLineage,
    ModelOverview,
    NoteOverview,
    TagOverview,
    TensorStorage,
)
from mmdb.orm.views.plans import PlanAccuracy, PlanOutcome, PlanOverview, ProfileOverview
from mmdb.orm.views.predictions import OriginOverview, PredictionOverview
from mmdb.orm.views.runs import HopTimeline, Leaderboard, RunProgress, RunTime
from mmdb.orm.views.workers import WorkerStatus
from mmdb.orm.views.zoo import TransferMap, Zoo, ZooDecisions

__all__ = [
    "AliasHistory",
    "CandidateFailures",
    "CandidateOverview",
    "CandidateProgress",
    "ColumnImpact",
    "DatasetLineage",
    "DatasetOverview",
    "FeatureOverview",
    "HopTimeline",
    "HopsPerHour",
    "Leaderboard",
    "LineageEdge",
    "LineageEntity",
    "LineageFeatureEdge",
    "LineageHopEdge",
    "LineageModelEdge",
    "LineageRunEdge",
    "LineageSource",
    "LineageSourceEdge",
    "LineageStateEdge",
    "Metric",
    "MetricHistory",
    "MetricOverview",
    "MlflowExperiments",
    "MlflowMetrics",
    "MlflowModelVersions",
    "MlflowParams",
    "MlflowRegisteredModels",
    "MlflowRuns",
    "ModelAlias",
    "ModelLineage",
    "ModelOverview",
    "NoteOverview",
    "OpenCandidate",
    "OpenRun",
    "OriginOverview",
    "PartitionOverview",
    "PlanAccuracy",
    "PlanOutcome",
    "PlanOverview",
    "PredictionOverview",
    "ProfileOverview",
    "RunCost",
    "RunFeatures",
    "RunProgress",
    "RunTime",
    "ServerMetric",
    "StorageOverview",
    "TagOverview",
    "TensorStorage",
    "TransferMap",
    "ViewKey",
    "WarmStartOverview",
    "WorkerStatus",
    "Zoo",
    "ZooDecisions",
    "ZooHits",
]
