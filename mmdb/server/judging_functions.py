"""SQL's functions that judge models and explain them, whose modules load torch within the call."""

from mmdb.server.backend import deferred

evaluate = deferred("mmdb.server.judging.evaluate")
compare_models = deferred("mmdb.server.judging.compare_models")
confusion_matrix = deferred("mmdb.server.judging.confusion_matrix")
roc_curve = deferred("mmdb.server.judging.roc_curve")
precision_recall = deferred("mmdb.server.judging.precision_recall")
calibration = deferred("mmdb.server.judging.calibration")
thresholds = deferred("mmdb.server.judging.thresholds")
residuals = deferred("mmdb.server.judging.residuals")
importance = deferred("mmdb.server.explaining.importance")
explain_predict = deferred("mmdb.server.explaining.explain_predict")
training_rows = deferred("mmdb.server.explaining.training_rows")
