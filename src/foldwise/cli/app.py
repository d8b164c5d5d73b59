"""The application, its errors, and what every command says and how."""

from __future__ import annotations

import errno
import json
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

__all__ = [
    "Command",
    "Debug",
    "InputError",
    "app",
    "main",
    "option",
    "printable",
    "reported",
    "say",
    "write_json",
    "write_text",
]

app = typer.Typer(
    name="foldwise",
    help="Cross-validation, solved instead of searched: hyper-parameters of support vector machines by gradients.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 internal error, 2 bad input, 130 interrupted with no model, 141 output closed.",
)


def option(*names: str, help: str, **settings: Any) -> Any:
    """An option whose help is one line; defaults are told in words where they are not plain."""
    return typer.Option(*names, help=help, show_default=False, **settings)


def _version(asked: bool) -> None:
    if asked:
        from foldwise.version import __version__

        typer.echo(f"foldwise {__version__}")
        raise typer.Exit


@app.callback()
def _whole(
    version: Annotated[
        bool,
        option("--version", help="Show the version and exit.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    pass


CHUNK = 1 << 13
"""Characters that are written to standard output at a time."""

Debug = Annotated[bool, option("--debug", help="Show the traceback of an error.")]


class InputError(ValueError):
    """Something the user can put right; ``hint`` says how."""

    def __init__(self, message: str, hint: str = ""):
        super().__init__(message)
        self.hint = hint


class Command(TyperCommand):
    """A command that refuses an option given twice, of which one would be ignored."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As typer's, once every option that takes a single value has at most one."""
        order = self.make_parser(ctx).parse_args(args=list(args))[2]
        for param in set(order):
            flag = getattr(param, "is_flag", False) or getattr(param, "is_bool_flag", False)
            if order.count(param) > 1 and not (flag or param.multiple or param.param_type_name == "argument"):
                raise typer.BadParameter(
                    f"{param.opts[0]} is given {order.count(param)} times; once is enough."
                )
        return super().parse_args(ctx, args)


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Entry point of the console script."""
    try:
        code = _main(args)
        sys.stdout.flush()  # a reader that has gone, or a full disk, must show in the exit code
    except OSError as error:
        code = _gone() if error.errno == errno.EPIPE else _unwritten(error)
    except AttributeError:  # standard output was closed from the start
        if sys.stdout is not None:
            raise
    sys.exit(code)


def _main(args: Sequence[str] | None) -> int:
    """Run a command; its exit code."""
    usage_error = typer.BadParameter.__mro__[1]
    try:
        code = app(args=None if args is None else list(args), standalone_mode=False)
    except usage_error as error:  # type: ignore[misc]
        context: Any = getattr(error, "ctx", None)
        command = "foldwise" if context is None else context.command_path
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(context.get_help())
        else:
            typer.echo(f"error: {printable(error.format_message())}", err=True)
            typer.echo(f"hint: {command} --help lists the options.", err=True)
        return 2
    except typer.Abort:
        return 130
    except SystemExit as end:  # typer's own answer to a reader that has gone, from a help page for example
        if isinstance(end.__context__, OSError) and end.__context__.errno == errno.EPIPE:
            return _gone()
        raise
    return code if isinstance(code, int) else 0


def _gone() -> int:
    """Whoever read our output has gone: nothing more can be said there; the code of a tool that SIGPIPE ended."""
    sink = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        try:
            (sys.stdout if descriptor == 1 else sys.stderr).flush()
        except (OSError, ValueError, AttributeError):
            os.dup2(sink, descriptor)
    os.close(sink)
    return 141


def _unwritten(error: OSError) -> int:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    typer.echo(f"error: cannot write to standard output: {error.strerror}.", err=True)
    return 2


@contextmanager
def reported(debug: bool) -> Iterator[None]:
    """Turn exceptions into a line or two on standard error and an exit code."""
    try:
        yield
    except typer.Exit:
        raise
    except BrokenPipeError:
        raise typer.Exit(_gone()) from None
    except KeyboardInterrupt as stop:
        _fail(str(stop) or "interrupted.", getattr(stop, "hint", ""), 130, debug)
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


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a result as JSON; see :func:`write_text`."""
    from foldwise.result import as_json

    write_text(path, json.dumps(as_json(content), indent=2, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text to a file, which appears complete or not at all, or to standard output for "-"."""
    from foldwise.outputs import writing

    if str(path) != "-":
        with writing(path) as file:
            file.write(text)
    elif sys.stdout is None:
        raise InputError("standard output is closed.", "give a file to write to.")
    else:
        for at in range(0, len(text), CHUNK):  # so that a reader who has gone is noticed on the way
            sys.stdout.write(text[at : at + CHUNK])
            sys.stdout.flush()
