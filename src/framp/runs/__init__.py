"""Run folders: start, resume, and what a run leaves behind."""

from framp.runs.checkpoint import Checkpoint
from framp.runs.enrolled import load_registry, save_registry
from framp.runs.events import EventLog, Listener, TensorBoardSink
from framp.runs.folder import status
from framp.runs.results import Results
from framp.runs.run import Outcome, resume, start

__all__ = [
    "Checkpoint",
    "EventLog",
    "Listener",
    "Outcome",
    "Results",
    "TensorBoardSink",
    "load_registry",
    "resume",
    "save_registry",
    "start",
    "status",
]
