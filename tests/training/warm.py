"""A process that has imported everything and forks a child for every command: real processes without the wait.

Importing torch takes seconds, and the tests of this folder kill dozens of processes. Requests and answers are lines
of JSON on standard input and output. A child may be told to send itself a signal (SIGKILL, SIGINT) when it enters or
leaves a function for the n-th time, or n function calls later: Python's profile hook sees them, so the program needs
no hooks of its own.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
import traceback

TRIES = ("_measure", "measure_cost", "measure_need")


def import_everything():
    import jinja2
    import matplotlib.figure
    import sklearn.linear_model
    import sklearn.neighbors

    import smallvit.api
    import smallvit.cli
    import smallvit.report.tables

    return jinja2, matplotlib.figure, sklearn.linear_model, sklearn.neighbors, smallvit


def serve():
    answers = os.fdopen(os.dup(1), "w")
    print(json.dumps([0, "ready"]), file=answers, flush=True)
    for line in sys.stdin:
        number, request = json.loads(line)
        if "wait" in request:
            answer = wait(request["wait"], request["seconds"])
        else:
            pid = os.fork()
            if pid == 0:
                child(request)
            answer = pid
        print(json.dumps([number, answer]), file=answers, flush=True)


def wait(pid, seconds):
    """Exit status, minus the signal's number where one ended it; None: still running."""
    until = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            return None
        time.sleep(0.005)


def child(request):
    status = 99
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if request["largest_file"]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (request["largest_file"],) * 2)
        sys.argv = ["smallvit", *request["command"]]
        from smallvit.cli import main
        from smallvit.commands import train

        train.STARTED = time.monotonic()  # the clock of a budget: this process began with the fork
        if request["moment"]:
            sys.setprofile(watcher(request["signal"], *request["moment"]))
        main()
        status = 0
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else int(bool(leaving.code))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.setprofile(None)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def watcher(number, when, name, count):
    """Send the signal at the `count`-th time `name` is entered or left, or (`after`) that many calls after it.

    Steps that planning takes to see how long they are, and what memory they need, do not count: they are taken on a copy,
    and their number is the machine's matter.
    """
    events = {"enter": ("call", "c_call"), "leave": ("return", "c_return"), "after": ("call", "c_call")}[when]
    seen = trying = 0

    def watch(frame, event, argument):
        nonlocal seen, trying
        if frame.f_code.co_name in TRIES and event in ("call", "return"):
            trying += 1 if event == "call" else -1
        if event not in events or trying:
            return
        if when == "after" and seen:
            seen += 1
        else:
            seen += name == (argument.__name__ if event.startswith("c_") else frame.f_code.co_name)
        if seen == count:
            sys.setprofile(None)
            os.kill(os.getpid(), number)

    return watch


if __name__ == "__main__":
    imported = import_everything()
    serve()
