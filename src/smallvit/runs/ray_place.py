"""Runs as tasks of a Ray cluster: each is `resume FOLDER` on a path that all machines see.

The folder is the interface here, too. A task that is lost with its worker is started again elsewhere and goes on from the
checkpoint in the folder.
"""

from __future__ import annotations

import os
import socket
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from smallvit.console import quiet
from smallvit.errors import Interrupted, RunError, SmallvitError, UsageError
from smallvit.planning.whereabouts import Given, whereabouts
from smallvit.runs.beside import foreseen
from smallvit.runs.execution import resume_run
from smallvit.runs.executor import STOPPED, Exit, Job, Launch, PlaceLost, child_path
from smallvit.runs.folder import RunFolder
from smallvit.runs.ownership import patient

if TYPE_CHECKING:
    from ray import ObjectRef

MOST_LOSSES = 5  # of one task, before its run counts as failed
LET_GO_SECONDS = 30.0  # a worker that is being ended may hold its run for a moment still
LOST = 3  # status of a run whose workers were lost so often
GONE = "the Ray cluster does not answer any more; what its runs had saved is kept"
ANSWER_SECONDS = 5.0  # for the port of a cluster; Ray itself would ask it for half a minute


def ray_place(address: str, at_once: int) -> Launch:
    """Start or join a cluster; what launches runs there, so many at once. `address` is ray, or ray://HOST:PORT."""
    ray = _joined(address)
    # A process of its own for each run: what one leaves behind is no other's.
    task = ray.remote(max_calls=1, max_retries=MOST_LOSSES, retry_exceptions=False)(resume_there)

    def launch(path: Path) -> Job:
        if not ray.is_initialized():
            raise PlaceLost(GONE)
        wanted = whereabouts(RunFolder(path), most_of_one(ray.nodes(), at_once))
        if wanted.device == "cpu":
            wanted = whereabouts(RunFolder(path), most_of_one(ray.nodes(), at_once, gpu=False))
        needs: dict[str, Any] = {"num_cpus": wanted.most, "num_gpus": int(wanted.device.startswith("cuda"))}
        _check_room(ray, path, needs)
        if wanted.device == "cpu":
            needs["memory"] = min(foreseen(path).bytes, _most_memory(ray))
        return RayJob(ray, task.options(**needs, name=path.name).remote(str(path.resolve())), path)

    return launch


def room_on_ray(address: str, threads: int) -> int:
    """How many runs of so many threads the cluster holds at once."""
    return max(1, int(_joined(address).cluster_resources().get("CPU", 1)) // threads)


def most_of_one(nodes: Sequence[Mapping[str, Any]], at_once: int, gpu: bool = True) -> Given:
    """What a cluster can give to each of so many runs: a share of its CPUs, on one machine; with a GPU, where it has some and one
    is wanted."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    with_gpu = [node for node in alive if gpu and node.get("GPU", 0) >= 1]
    cpus = [int(node.get("CPU", 0)) for node in with_gpu or alive]
    shares = range(max(cpus, default=1), 0, -1)  # of a task, which lies on one machine
    return Given(next((share for share in shares if sum(own // share for own in cpus) >= at_once), 1), bool(with_gpu))


class RayJob:
    """A run that is somewhere in the cluster."""

    def __init__(self, ray: Any, task: ObjectRef[tuple[int, float]], path: Path) -> None:
        self.ray, self.task, self.path = ray, task, path
        self.stopped = False

    def poll(self) -> Exit | None:
        try:
            if not self.ray.is_initialized():  # Ray would start a cluster of its own
                raise ConnectionError
            ready, _ = self.ray.wait([self.task], timeout=0)
            return Exit(*self.ray.get(self.task)) if ready else None
        except self.ray.exceptions.RayTaskError as error:  # which is an error of the task's kind, too
            _note(self.path, f"the run failed: {error}")
            return Exit(1, None)
        except ConnectionError:
            if self.stopped:
                return Exit(1, None)
            raise PlaceLost(GONE) from None
        except self.ray.exceptions.TaskCancelledError:
            return Exit(1, None)
        except self.ray.exceptions.RayError as error:
            _note(self.path, f"the run was lost with its worker more than {MOST_LOSSES} times: {error}")
            return Exit(LOST, None)

    def stop(self) -> None:
        self.stopped = True
        if self.ray.is_initialized():
            with suppress(ConnectionError):
                self.ray.cancel(self.task)  # an interrupt, as Ctrl-C: the run saves what it has


def resume_there(path: str) -> tuple[int, float]:
    """In a worker: the run to its end. Exit status and processor time; what it says goes to log.txt."""
    folder, began = Path(path), time.process_time()
    if not (folder / "recipe.json").is_file():
        raise FileNotFoundError(f"{folder} is not seen on this machine: give an --out that all machines share")
    with (folder / "log.txt").open("a", encoding="utf-8") as log, redirect_stderr(log):
        try:
            with quiet(), patient(LET_GO_SECONDS):
                resume_run(RunFolder(folder), given=Given.here()._replace(cores=_own_cpus()))
        except SmallvitError as error:
            print(f"smallvit: {error}", file=log)
            status = STOPPED if isinstance(error, Interrupted) else error.exit_status
            return status, time.process_time() - began
    return 0, time.process_time() - began


def _own_cpus() -> int:
    """Those of the task that this is."""
    return max(1, int(load_ray().get_runtime_context().get_assigned_resources().get("CPU", 1)))


def check_cluster(address: str) -> None:
    """Ray is there; one at ray://HOST:PORT answers, and is joined before anything is planned for it."""
    if address == "ray":
        load_ray()
        return
    host, port = _host_and_port(address)
    load_ray()
    try:
        socket.create_connection((host, port), timeout=ANSWER_SECONDS).close()
    except OSError as error:
        raise UsageError(
            f"--on {address}: nothing answers there ({error.strerror or error}): give the host on which `ray start --head` "
            "was called, and its --ray-client-server-port"
        ) from None
    _joined(address)


def _host_and_port(address: str) -> tuple[str, int]:
    parts = urlsplit(address)
    with suppress(ValueError):  # the port is none
        if parts.hostname and parts.port:
            return parts.hostname, parts.port
    raise UsageError(
        f"--on {address}: give ray://HOST:PORT, the port being that of the cluster's Ray Client server (10001 unless `ray "
        "start` was given another)"
    )


def _joined(address: str) -> Any:
    ray = load_ray()
    if not ray.is_initialized():
        _join(ray, address)
    return ray


def _join(ray: Any, address: str) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing leaves the machine unasked
    common: dict[str, Any] = {
        "logging_level": "ERROR", "log_to_driver": False, "runtime_env": {"env_vars": {"PYTHONPATH": child_path()}},
    }  # fmt: skip
    if address.startswith("ray://"):
        try:
            with warnings.catch_warnings(action="ignore"):  # the error says it
                ray.init(address, **common)
        except (ConnectionError, ValueError, RuntimeError) as error:
            why = str(error).strip().splitlines()[-1:]  # Ray puts what the server said into it, with its traceback
            raise UsageError(
                f"--on {address}: something listens there and does not let us join: {''.join(why)}\nIs it the Ray Client server "
                "of a cluster with the same Ray and Python? Does it want a token (RAY_AUTH_MODE=token)? If it is only busy, try again"
            ) from None
        return
    with suppress(ConnectionError):  # one that runs on this machine already
        ray.init("auto", **common)
        return
    ray.init(include_dashboard=False, num_cpus=_cpus_here(), **common)


def _cpus_here() -> int:
    """Those that this process may use: a container or taskset may give it a few of many."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check_room(ray: Any, path: Path, needs: dict[str, Any]) -> None:
    """A task that no machine can hold would wait for ever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    able = [node for node in nodes if node.get("GPU", 0) >= needs["num_gpus"]]
    if not able:
        raise RunError(f"{path} needs a GPU, and no machine of the cluster has one: leave out --device")
    if (most := max(node.get("CPU", 0) for node in able)) < needs["num_cpus"]:
        raise RunError(
            f"{path} needs {needs['num_cpus']} threads{' beside a GPU' * bool(needs['num_gpus'])}, and no machine of the cluster has them "
            f"(at most {most:.0f} CPUs): give --threads {max(1, int(most))}"
        )


def _most_memory(ray: Any) -> int:
    """Of one machine: a run that needs more than Ray gives out of it was planned on one where it fits, and has it alone."""
    return int(max((node["Resources"].get("memory", 0) for node in ray.nodes() if node["Alive"]), default=0))


def _note(path: Path, text: str) -> None:
    with (path / "log.txt").open("a", encoding="utf-8") as log:
        print(text, file=log)


def load_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise UsageError("--on ray needs the package ray: pip install 'smallvit[ray]'") from None
    if sys.platform == "win32":
        raise UsageError("--on ray: Ray is not tried on Windows; leave it out")
    return ray
