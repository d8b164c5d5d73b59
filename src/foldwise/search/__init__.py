"""``BilevelSearchCV`` and its rooms: prepare a program, plan its starts, run a method from them."""

from foldwise.search.cv import BilevelSearchCV

__all__ = ["BilevelSearchCV"]
