"""The application, its errors, and what every command says and how."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

__all__ = [
    "Debug",
    "InputError",
    "app",
    "main",
    "option",
    "printable",
    "reported",
    "say",
    "writable",
    "write_json",
]

app = typer.Typer(
    name="foldwise",
    help="Cross-validation, solved instead of searched: hyper-parameters of support vector machines by gradients.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 internal error, 2 bad input, 130 interrupted with no result, 141 output closed.",
)


def option(*names: str, help: str, **settings: Any) -> Any:
    """An option whose help is one line; defaults are told in words where they are not plain."""
    return typer.Option(*names, help=help, show_default=False, **settings)


Debug = Annotated[bool, option("--debug", help="Show the traceback of an error.")]


class InputError(ValueError):
    """Something the user can put right; ``hint`` says how."""

    def __init__(self, message: str, hint: str = ""):
        super().__init__(message)
        self.hint = hint


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Entry point of the console script."""
    usage_error = typer.BadParameter.__mro__[1]
    try:
        code = app(args=None if args is None else list(args), standalone_mode=False)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing more can be said there
        code = 141
    except usage_error as error:  # type: ignore[misc]
        context: Any = getattr(error, "ctx", None)
        command = "foldwise" if context is None else context.command_path
        code = 2
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(context.get_help())
        else:
            typer.echo(f"error: {printable(error.format_message())}", err=True)
            typer.echo(f"hint: {command} --help lists the options.", err=True)
    except typer.Abort:
        code = 130
    sys.exit(code if isinstance(code, int) else 0)


@contextmanager
def reported(debug: bool) -> Iterator[None]:
    """Turn exceptions into a line or two on standard error and an exit code."""
    try:
        yield
    except (typer.Exit, BrokenPipeError):
        raise
    except KeyboardInterrupt:
        _fail("interrupted.", "", 130, debug)
    except MemoryError:
        _fail("out of memory.", "use fewer rows, or --model linear.", 2, debug)
    except Exception as error:
        # numpy's LinAlgError is a ValueError too, but never the fault of a line in the command.
        bad_input = isinstance(error, ValueError | OSError) and type(error).__name__ != "LinAlgError"
        hint = getattr(error, "hint", "")
        text = " ".join(str(error.args[0] if hint else error).strip().splitlines()[:2])
        if bad_input:
            _fail(text, hint, 2, debug)
        _fail(
            f"internal error, {type(error).__name__}: {text}",
            "run again with --debug for the traceback, and please report it.",
            1,
            debug,
        )


def _fail(message: str, hint: str, code: int, debug: bool) -> NoReturn:
    if debug:
        traceback.print_exc()
    typer.echo(f"error: {printable(message)}", err=True)
    if hint:
        typer.echo(f"hint: {printable(hint)}", err=True)
    raise typer.Exit(code)


def say(text: str, quiet: bool = False) -> None:
    """A message on standard error."""
    if not quiet:
        typer.echo(printable(text), err=True)


def printable(text: str) -> str:
    r"""The text with control characters written out, so that names from a file cannot command a terminal.

    >>> printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def writable(*paths: Path | None) -> None:
    """Refuse files whose folder is not there, before any time is spent."""
    for path in paths:
        if path is not None and str(path) != "-" and not path.parent.is_dir():
            raise InputError(f"cannot write {path}: its folder does not exist.", f"mkdir -p {path.parent}")
        if path is not None and path.is_dir():
            raise InputError(f"cannot write {path}: it is a folder.", "give the name of a file.")


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a result as JSON, to standard output for "-"; a file appears complete or not at all."""
    from foldwise.callbacks import as_json

    text = json.dumps(as_json(content), indent=2, allow_nan=False) + "\n"
    if str(path) == "-":
        typer.echo(text, nl=False)
        return
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
