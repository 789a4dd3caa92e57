"""Imports the package once, then forks one process for each run asked for on stdin: real processes, started cheaply.

A request is one line of JSON: {"config": TOML file, "folder": run folder, "pause": null or [module, name, when, count,
signal file], "kill_after": null or seconds}. The pause lets the count-th call of a function touch the file before or
after it works, and wait.
The answers: the process's id, then how it ended, one line each.
"""

import importlib
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from torch.utils import tensorboard  # noqa: F401

from framp.config import Config
from framp.runs import resume, start, status


def pause_at(module: str, name: str, when: str, count: int, reached: str) -> None:
    owner: Any = importlib.import_module(module)
    original, calls = getattr(owner, name), iter(range(1, 1000))

    def wait() -> None:
        Path(reached).touch()
        time.sleep(600)

    def paused(*arguments: Any, **named: Any) -> Any:
        here = next(calls) == count
        if here and when == "before":
            wait()
        answer = original(*arguments, **named)
        if here:
            wait()
        return answer

    setattr(owner, name, paused)


def work(request: dict[str, Any]) -> None:
    if request["pause"]:
        pause_at(*request["pause"])
    folder = Path(request["folder"])
    if status(folder)["state"] == "none":
        start(Config.from_toml(Path(request["config"])), folder)
    else:
        resume(folder)


def main() -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if not child:
            code = 1
            try:
                work(request)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        print(child, flush=True)
        if request["kill_after"] is not None:
            time.sleep(request["kill_after"])
            os.kill(child, signal.SIGKILL)  # the id is the child's until it is waited for
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
