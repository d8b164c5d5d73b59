"""Linear models: ``w`` on the features, with penalties, boxes and reference weights of their own."""

from foldwise.models.linear.model import LinearModel, assemble

__all__ = ["LinearModel", "assemble"]
