"""How every command behaves: an example in its help, `--debug`, errors in one sentence."""

from __future__ import annotations

from typing import Any

import click

from batchjobs.cli.exits import Exit

_DEBUG = "batchjobs.debug"
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 96}


def _remember_debug(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    context.meta[_DEBUG] = context.meta.get(_DEBUG, False) or value


def debug_option() -> click.Option:
    """`--debug`, which may stand before or behind the command's name."""
    return click.Option(
        ["--debug"],
        is_flag=True,
        envvar="BATCHJOBS_DEBUG",
        expose_value=False,
        callback=_remember_debug,
        help="Show tracebacks.",
    )


class Command(click.Command):
    """A command whose function returns its exit code."""

    def __init__(self, *args: Any, example: str, **options: Any) -> None:
        super().__init__(*args, **{"context_settings": _CONTEXT, **options})
        self.params.append(debug_option())
        self.epilog = f"\b\nExample:\n  {example}"

    def invoke(self, ctx: click.Context) -> None:
        ctx.exit(super().invoke(ctx) or Exit.DONE)


def is_debugging(context: click.Context) -> bool:
    """Whether tracebacks are wanted."""
    return bool(context.meta.get(_DEBUG))


class Group(click.Group):
    """A group of commands, listed in the order in which a person meets them."""

    command_class = Command

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"context_settings": _CONTEXT, **options})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


class Root(Group):
    """The outermost group: where an exception becomes one sentence and an exit code."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.params.append(debug_option())

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(Exit.INTERRUPTED)
        except Exception as error:
            if is_debugging(ctx):
                raise
            sentence, code = explain(error)
            for line in (sentence, *getattr(error, "__notes__", ())):
                click.echo(line, err=True)
            ctx.exit(code)


def explain(error: Exception) -> tuple[str, Exit]:
    """What to tell a person about `error`, and the exit code."""
    from batchjobs.errors import (
        BatchJobsError,
        ConflictError,
        Interrupted,
        InvalidFileError,
        InvalidRequestError,
        NotFoundError,
    )

    match error:
        case Interrupted():
            return error.message, Exit.INTERRUPTED
        case InvalidFileError():
            return f"Error: {error.message}", Exit.INVALID
        case InvalidRequestError() if not isinstance(error, ConflictError | NotFoundError):
            return f"Error: {error.message}", Exit.USAGE
        case BatchJobsError():
            return f"Error: {error.message}", Exit.ERROR
        case OSError(strerror=str(reason)):
            where = f"{error.filename}: " if error.filename else ""
            return f"Error: {where}{reason}.", Exit.ERROR
    kind = type(error).__name__
    return f"Error: unexpected {kind}: {error} (--debug shows where).", Exit.ERROR
