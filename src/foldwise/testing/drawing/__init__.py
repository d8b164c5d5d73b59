"""The parts of a random search: an estimator, a method, data, steps, a space, options, a splitter, each as text."""

from foldwise.testing.drawing.data import draw_data, draw_size, draw_steps
from foldwise.testing.drawing.dice import Dice, Plan
from foldwise.testing.drawing.machines import draw_machine
from foldwise.testing.drawing.searches import draw_method, draw_options, draw_space, draw_splitter

__all__ = [
    "Dice",
    "Plan",
    "draw_data",
    "draw_machine",
    "draw_method",
    "draw_options",
    "draw_size",
    "draw_space",
    "draw_splitter",
    "draw_steps",
]
