"""Pictures of a search: for each a function that gives the numbers, and one that draws them on matplotlib axes."""

from foldwise.plotting import data, draw
from foldwise.plotting.data import *  # noqa: F403
from foldwise.plotting.draw import *  # noqa: F403

__all__: list[str] = []
__all__ += data.__all__
__all__ += draw.__all__
