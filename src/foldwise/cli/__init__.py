"""The command line: ``foldwise fit``, ``predict``, ``compare``, ``report``, ``reproduce`` and ``datasets``.

Heavy imports live inside the functions, so that ``--help`` answers at once. Results go to standard output, progress
and messages to standard error. Exit code 0: done; 1: an error of ours; 2: the input or the command cannot be used;
130: interrupted before there was a model; 141: whoever reads the output has gone.
"""

from foldwise.cli import comparing, fitting, others, predicting  # noqa: F401 - each adds its commands
from foldwise.cli.app import app, main

__all__ = ["app", "main"]
