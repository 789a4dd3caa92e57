"""Submodels: a mask as an index set and the values at it; a smaller network as its shapes and values, without a set."""

from dataclasses import dataclass
from math import prod

import numpy as np
from torch import Tensor

from framp.errors import WireError
from framp.layout import Entry, ParameterLayout, Shapes
from framp.messages import Submodel
from framp.wire.body import INDICES, NONE, SHAPES, Reader, Writer
from framp.wire.index_set import read_indices, write_indices
from framp.wire.tensors import read_shape, write_shape
from framp.wire.values import read_values, write_values

_MOST_ENTRIES = 1 << 16


@dataclass(frozen=True)
class Sections:
    """How many values of a submodel belong to each tensor of the layout."""

    maskable: tuple[int, ...]
    """The tensors' own lengths, as far as they are maskable."""
    values: tuple[int, ...]
    always: tuple[int, ...]

    @classmethod
    def of(cls, submodel: Submodel, layout: ParameterLayout | None) -> "Sections":
        """Read a submodel's sections off the full model's layout; without one, everything is one section."""
        if layout is None:
            return cls((submodel.maskable,), (len(submodel.values),), (len(submodel.always),))
        if layout.maskable != submodel.maskable:
            raise WireError(
                f"the layout has {layout.maskable} maskable entries, the submodel {submodel.maskable}; "
                "pass the full model's layout"
            )
        whole, part = layout, submodel.layout(layout)
        values = [entry.stop - entry.start for entry in _below(part)]
        if submodel.mask_indices is not None:
            edges = np.array([0, *(entry.stop for entry in _below(whole))], np.int32)
            values = np.diff(np.searchsorted(submodel.mask_indices.numpy(), edges)).tolist()
        always = [entry.stop - entry.start for entry in part.entries[len(_below(part)) :]]
        return cls(tuple(entry.stop - entry.start for entry in _below(whole)), tuple(values), tuple(always))


def _below(layout: ParameterLayout) -> list[Entry]:
    return [entry for entry in layout.entries if entry.stop <= layout.maskable]


def write_submodel(
    writer: Writer, submodel: Submodel, sections: Sections, coding: str, previous: Tensor | None
) -> None:
    """Add a submodel."""
    writer.size(submodel.maskable)
    writer.size(len(submodel.values))
    if submodel.shapes is not None:
        _write_shapes(writer, submodel.shapes)
    elif submodel.indices is None:
        writer.tag(NONE)
    else:
        write_indices(writer, submodel.indices, submodel.maskable, sections.maskable, previous)
    write_values(writer, submodel.values, coding, sections.values)
    write_values(writer, submodel.always, coding, sections.always)


def read_submodel(reader: Reader, previous: Tensor | None) -> Submodel:
    """Take a submodel; that of a smaller network has no indices, for nobody but the server needs them."""
    maskable, count = reader.size(), reader.size()
    indices, shapes = None, None
    kind = reader.tag(NONE, INDICES, SHAPES)
    if kind == INDICES:
        indices = read_indices(reader, maskable, count, previous)
    elif kind == SHAPES:
        shapes = _read_shapes(reader)
    elif count != maskable:
        raise WireError(f"a full model of {maskable} entries has {count} values; send it again")
    values, always = read_values(reader), read_values(reader)
    if len(values) != count or values.dtype != always.dtype:
        raise WireError(f"a submodel of {count} entries has {len(values)} values, or two types of them; send it again")
    if shapes is not None:
        size = sum(prod(shape) for shape in shapes if shape is not None)
        if size != len(values) + len(always):
            raise WireError(f"a smaller network of {size} entries has {len(values) + len(always)} values")
    return Submodel(maskable, indices, values, always, shapes)


def _write_shapes(writer: Writer, shapes: Shapes) -> None:
    writer.tag(SHAPES)
    writer.size(len(shapes))
    for shape in shapes:
        writer.tag(shape is not None)
        if shape is not None:
            write_shape(writer, shape)


def _read_shapes(reader: Reader) -> Shapes:
    number = reader.size()
    if number > _MOST_ENTRIES:
        raise WireError(f"a network of {number} tensors; there are at most {_MOST_ENTRIES}")
    return tuple(read_shape(reader) if reader.tag(0, 1) else None for _ in range(number))
