"""The command line: which commands there are, and how errors end. The commands themselves stand in commands/."""

from __future__ import annotations

import atexit
import faulthandler
import os
import signal
import sys
from contextlib import suppress
from typing import Annotated

import typer

from smallvit.commands import amount, look, ship, stock, study, train, tune
from smallvit.commands.examples import examples
from smallvit.console import printable
from smallvit.errors import Interrupted, OutOfMemory, SmallvitError, UsageError, ran_out, stopped_status, what_ran_out

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Train image classifiers from scratch on small sets, vision transformers above all, and see why they fail or work.",
    epilog="Start with `smallvit demo`, then `smallvit train FOLDER`. Everything a run did lies in its folder.",
)
recipe_app = typer.Typer(no_args_is_help=True, help="Look at the recipes that come with smallvit.")
app.add_typer(recipe_app, name="recipe")
cache_app = typer.Typer(no_args_is_help=True, help="Look at the decoded images that runs keep, or remove them.")
app.add_typer(cache_app, name="cache")
study_app = typer.Typer(no_args_is_help=True, help="Run published comparisons, or your own, and see which claims hold.")
app.add_typer(study_app, name="study")
for command in (
    train.demo,
    stock.doctor,
    train.check,
    train.train,
    train.pretrain,
    tune.tune,
    amount.curve,
    look.probe,
    train.resume,
    look.evaluate,
    look.predict,
    look.embed,
    look.app,
    ship.export,
    look.diagnose,
    look.compare,
    look.report,
):
    app.command(epilog=examples(command.__name__))(command)
app.command(name="list", epilog=examples("list"))(stock.list_)
recipe_app.command(epilog=examples("recipe show"))(stock.show)
study_app.command(name="list", epilog=examples("study list"))(study.list_)
for command in (study.show, study.run, study.report, study.claims, study.queue):
    study_app.command(epilog=examples(f"study {command.__name__}"))(command)
cache_app.command(name="list", epilog=examples("cache list"))(stock.cache_list)
cache_app.command(name="clear", epilog=examples("cache clear"))(stock.cache_clear)


def _show_versions(wanted: bool) -> None:
    if wanted:
        typer.echo(stock.versions())
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_versions, is_eager=True, help="Versions of smallvit, Python, torch and timm."
        ),
    ] = False,
) -> None:
    pass  # its help is that of the app


CTRL_C = 130  # typer's own status for it
MORE_MEMORY = (  # where nothing closer to the step knew better
    "end other programs, or give fewer or smaller images (--fraction, --img-size); a run that has begun is kept, and "
    "`smallvit resume RUN` goes on with it"
)


def run() -> None:
    """The program. All is written when a command has ended; Python would take more than a second to take torch apart."""
    with suppress(AttributeError, OSError, ValueError):  # standard error may be closed
        faulthandler.enable(all_threads=False)  # a mapped file that somebody cuts short kills us: not without a word
    heed_signals()
    try:
        main()
    except SystemExit as end:
        if "torch" not in sys.modules:
            raise
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):  # nobody reads it any more
                stream.flush()
        os._exit(end.code if isinstance(end.code, int) else 0)


def heed_signals() -> None:
    """SIGTERM, and a terminal that is closed, end a command as Ctrl-C does; the loop has its own way to stop."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores it, and so do we
            signal.signal(number, signal.default_int_handler)


def main() -> None:
    """Run a command; what goes wrong outside the program is one message, not a traceback."""
    status: int | None = 0
    try:
        status = app(standalone_mode=False, prog_name="smallvit")  # a typer.Exit comes back as its number
    except Interrupted as error:
        _fail(str(error), stopped_status())
    except SmallvitError as error:
        _fail(str(error), error.exit_status)
    except KeyboardInterrupt:
        status = CTRL_C
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        if ran_out(error):
            _fail(f"out of memory ({what_ran_out(error)}): {MORE_MEMORY}", OutOfMemory.exit_status)
        if isinstance(error, RuntimeError) and "home directory" in str(error):  # pathlib's word for ~nobody
            _fail(
                "there is no home directory of the user named after a ~: give the path without it",
                UsageError.exit_status,
            )
        status = getattr(error, "exit_code", None)
        if status is None:
            raise
        show_usage = getattr(error, "show", None)
        if callable(show_usage):
            show_usage()
    if status == CTRL_C:
        _fail("stopped", stopped_status())
    sys.exit(status)


def _fail(message: str, status: int) -> None:
    with suppress(OSError):  # the terminal may be gone
        print(printable(f"smallvit: {message}"), file=sys.stderr)
    sys.exit(status)
