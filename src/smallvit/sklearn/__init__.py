"""smallvit as a scikit-learn estimator: `from smallvit.sklearn import ViTClassifier`."""

from smallvit.sklearn.classifier import ViTClassifier

__all__ = ["ViTClassifier"]
