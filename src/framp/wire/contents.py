"""What each kind of message is made of, field by field: a writer and a reader each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from framp.errors import WireError
from framp.layout import ParameterLayout
from framp.messages import (
    Describe,
    Description,
    Exam,
    ExtractorTraining,
    LocalTraining,
    Manner,
    Prototypes,
    Score,
    Submodel,
    Task,
    Update,
)
from framp.wire.body import FALSE, INTEGER, NONE, REAL, TENSOR, TEXT, TRUE, Reader, Writer
from framp.wire.records import read_budget, read_objective, read_record, write_budget, write_objective, write_record
from framp.wire.submodels import Sections, read_submodel, write_submodel
from framp.wire.tensors import FLOATS, read_content, read_tensor, write_tensor
from framp.wire.values import read_values, write_values

_MOST_PARTS = 16


@dataclass(frozen=True, eq=False)
class Manners:
    """How a message is encoded."""

    coding: str
    layout: ParameterLayout | None
    submodel: Submodel | None
    """Of an update, the submodel of its task."""
    previous: Tensor | None


def _write_task(writer: Writer, task: Task, how: Manners) -> None:
    for number in (task.round, task.client, task.token, task.seed):
        writer.plain(number)
    write_record(writer, task.training)
    write_objective(writer, task.objective)
    write_budget(writer, task.budget)
    _write_prototypes(writer, task.prototypes)
    write_tensor(writer, None if task.extractor is None else task.extractor.parameters)
    if task.extractor is not None:
        writer.plain(task.extractor.epochs)
        writer.plain(task.extractor.rate)
    write_submodel(writer, task.submodel, Sections.of(task.submodel, how.layout), how.coding, how.previous)


def _read_task(reader: Reader, previous: Tensor | None) -> Task:
    round, client, token, seed = (reader.plain(INTEGER) for _ in range(4))
    training, objective = read_record(reader, LocalTraining), read_objective(reader)
    _positive("training.batch", training.batch)  # batches of nothing would be drawn for ever
    budget, prototypes = read_budget(reader), _read_prototypes(reader)
    parameters, extractor = _read_vector(reader, (torch.float32,)), None
    if parameters is not None:
        extractor = ExtractorTraining(parameters, reader.plain(INTEGER), reader.plain(REAL, INTEGER))
    submodel = read_submodel(reader, previous)
    return Task(round, client, token, budget, submodel, objective, training, prototypes, seed, extractor)


def _write_update(writer: Writer, update: Update, how: Manners) -> None:
    for number in (update.round, update.client, update.token, update.loss):
        writer.plain(number)
    _write_prototypes(writer, update.prototypes)
    write_tensor(writer, update.classes)
    write_tensor(writer, update.extractor)
    values: tuple[int, ...] = (len(update.values),)
    always: tuple[int, ...] = (len(update.always),)
    if how.submodel is not None:
        sections = Sections.of(how.submodel, how.layout)
        values, always = sections.values, sections.always
    write_values(writer, update.values, how.coding, values)
    write_values(writer, update.always, how.coding, always)


def _read_update(reader: Reader, previous: Tensor | None) -> Update:
    round, client, token = (reader.plain(INTEGER) for _ in range(3))
    loss, prototypes = reader.plain(REAL), _read_prototypes(reader)
    classes, extractor = _read_vector(reader, (torch.bool,)), _read_vector(reader, FLOATS)
    values, always = read_values(reader), read_values(reader)
    return Update(round, client, token, values, always, prototypes, loss, classes, extractor)


def _write_describe(writer: Writer, message: Describe, how: Manners) -> None:
    writer.plain(message.client)
    writer.plain(message.seed)
    writer.plain(message.features)
    write_tensor(writer, message.extractor)


def _read_describe(reader: Reader, previous: Tensor | None) -> Describe:
    client, seed, features = reader.plain(INTEGER), reader.plain(INTEGER), reader.plain(FALSE, TRUE)
    return Describe(client, seed, features, _read_vector(reader, FLOATS))


def _write_description(writer: Writer, message: Description, how: Manners) -> None:
    writer.plain(message.client)
    writer.plain(message.samples)
    write_tensor(writer, message.vector)


def _read_description(reader: Reader, previous: Tensor | None) -> Description:
    client, samples = reader.plain(INTEGER), reader.plain(INTEGER)
    return Description(client, read_tensor(reader, FLOATS, 1), samples)


def _write_exam(writer: Writer, exam: Exam, how: Manners) -> None:
    writer.plain(exam.client)
    _write_key(writer, exam.key)
    write_record(writer, exam.manner)
    write_submodel(writer, exam.submodel, Sections.of(exam.submodel, how.layout), how.coding, how.previous)


def _read_exam(reader: Reader, previous: Tensor | None) -> Exam:
    client, key, manner = reader.plain(INTEGER, NONE), _read_key(reader), read_record(reader, Manner)
    _positive("the batch of an exam", manner.batch)
    return Exam(read_submodel(reader, previous), client, key, manner)


def _write_score(writer: Writer, score: Score, how: Manners) -> None:
    _write_key(writer, score.key)
    writer.plain(score.correct)
    writer.plain(score.total)


def _read_score(reader: Reader, previous: Tensor | None) -> Score:
    return Score(_read_key(reader), reader.plain(INTEGER), reader.plain(INTEGER))


CONTENTS: dict[type[Any], tuple[Callable[[Writer, Any, Manners], None], Callable[[Reader, Tensor | None], Any]]] = {
    Task: (_write_task, _read_task),
    Update: (_write_update, _read_update),
    Describe: (_write_describe, _read_describe),
    Description: (_write_description, _read_description),
    Exam: (_write_exam, _read_exam),
    Score: (_write_score, _read_score),
}
"""Of each kind of message; its place is its number in a header."""


def _write_key(writer: Writer, key: tuple[str, ...]) -> None:
    if len(key) > _MOST_PARTS:
        raise WireError(f"a key of {len(key)} parts does not fit into a message; it has at most {_MOST_PARTS}")
    writer.size(len(key))
    for part in key:
        writer.plain(part)


def _read_key(reader: Reader) -> tuple[str, ...]:
    parts = reader.size()
    if parts > _MOST_PARTS:
        raise WireError(f"a key of {parts} parts in the message; it has at most {_MOST_PARTS}")
    return tuple(reader.plain(TEXT) for _ in range(parts))


def _positive(name: str, number: int) -> None:
    if number < 1:
        raise WireError(f"{name} is {number} in the message; it has to be 1 or more")


def _read_vector(reader: Reader, dtypes: tuple[torch.dtype, ...]) -> Tensor | None:
    return None if reader.tag(NONE, TENSOR) == NONE else read_content(reader, dtypes, 1)


def _write_prototypes(writer: Writer, prototypes: Prototypes | None) -> None:
    """Add the counts, and the vectors of the classes that have one."""
    if prototypes is None:
        writer.tag(NONE)
        return
    write_tensor(writer, prototypes.counts)
    writer.size(prototypes.vectors.shape[1])
    write_tensor(writer, prototypes.vectors[prototypes.counts > 0])


def _read_prototypes(reader: Reader) -> Prototypes | None:
    if reader.tag(NONE, TENSOR) == NONE:
        return None
    counts = read_content(reader, (torch.int64,), 1)
    width, held = reader.size(), counts > 0
    vectors = read_tensor(reader, FLOATS, 2)
    if vectors.shape != (int(held.sum()), width):
        raise WireError(f"prototypes {list(vectors.shape)} are not one for each class that is held; send them again")
    reader.claim(len(counts) * width * vectors.element_size())
    found = torch.zeros(len(counts), width, dtype=vectors.dtype)
    found[held] = vectors
    return Prototypes(found, counts)
