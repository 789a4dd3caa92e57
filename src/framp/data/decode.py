"""Tables of encoded images: checked by their headers first, then decoded in a stream into one array."""

import contextlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from framp.data.dataset import Dataset
from framp.errors import DataError, unknown
from framp.settings import DataConfig

BATCH = 256


@dataclass(frozen=True, eq=False)
class Table:
    """The rows of one split of an image set in Arrow form.

    `where` names it in messages, `features` are its columns by name, and `batches` reads some columns in order.
    """

    where: str
    rows: int
    features: dict[str, Any]
    batches: Callable[[list[str]], Iterator[Any]]

    @classmethod
    def from_parquet(cls, files: list[Path], where: str) -> "Table":
        """Read parquet files in place, without a copy in the Arrow cache of `datasets`."""
        import datasets
        import pyarrow.parquet as pq  # type: ignore[import-untyped]

        parts = {}
        for file in files:
            with _intact(file):
                parts[file] = pq.ParquetFile(file)
        first, *others = files
        features = dict(datasets.Features.from_arrow_schema(parts[first].schema_arrow))
        for file in others:
            columns = parts[file].schema_arrow.names
            if set(columns) != set(features):
                raise DataError(
                    f"{file} has columns {', '.join(columns)}, but {first.name} has {', '.join(features)}; "
                    "give all files of a split the same columns"
                )

        def batches(columns: list[str]) -> Iterator[Any]:
            for file, part in parts.items():
                with _intact(file):
                    yield from part.iter_batches(batch_size=BATCH, columns=columns)

        return cls(where, sum(part.metadata.num_rows for part in parts.values()), features, batches)

    @classmethod
    def from_dataset(cls, dataset: Any, where: str) -> "Table":
        """Take a split that `datasets` has loaded."""

        def batches(columns: list[str]) -> Iterator[Any]:
            yield from dataset.select_columns(columns).with_format("arrow").iter(batch_size=BATCH)

        return cls(where, len(dataset), dict(dataset.features), batches)

    def column(self, name: str) -> Iterator[Any]:
        """Iterate over the plain values of one column."""
        for batch in self.batches([name]):
            yield from batch.column(0).to_pylist()


@contextlib.contextmanager
def _intact(file: Path) -> Iterator[None]:
    """Turn what a damaged parquet file raises, when it is opened or later, into one line that names it."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"cannot read {file}: {_one_line(error)}; fetch this file again") from None


def read(name: str, train: Table, test: Table, config: DataConfig) -> Dataset:
    """Decode both splits; images stay grey only if all of them are."""
    tables = (train, test)
    for table in tables:
        if table.rows == 0:
            raise DataError(f"{table.where} is empty; a split has at least one image")
        for key, column in (("image_column", config.image_column), ("label_column", config.label_column)):
            if column not in table.features:
                columns = ", ".join(table.features)
                raise DataError(
                    f"{unknown('column', column, table.features)}; {table.where} has: {columns}; set data.{key}"
                )
    labels = [_labels(table, config.label_column) for table in tables]
    kinds = [_inspect(table, config.image_column) for table in tables]
    sizes = kinds[0][0] | {size: where for size, where in kinds[1][0].items() if size not in kinds[0][0]}
    if len(sizes) > 1 and not config.image_size:
        (first, here), (second, there) = list(sizes.items())[:2]
        raise DataError(
            f"images differ in size: {first[0]}x{first[1]} in {here}, {second[0]}x{second[1]} in {there}; "
            "set data.image_size"
        )
    mode = "L" if all(grey for _, grey in kinds) else "RGB"
    width, height = (config.image_size, config.image_size) if config.image_size else next(iter(sizes))
    shape = (1 if mode == "L" else 3, height, width)
    images = [_decode_all(table, config, mode, shape) for table in tables]
    names = getattr(train.features[config.label_column], "names", None)
    return Dataset.from_arrays(name, images[0], labels[0], images[1], labels[1], len(names) if names else None)


def _labels(table: Table, column: str) -> np.ndarray:
    labels = np.empty(table.rows, dtype=np.int64)
    for row, value in enumerate(table.column(column)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise DataError(
                f"label {value!r} in row {row} of {table.where}, column '{column}', is not a class number; "
                "number the classes from 0, or name another column in data.label_column"
            )
        labels[row] = value
    return labels


def _inspect(table: Table, column: str) -> tuple[dict[tuple[int, int], str], bool]:
    """Read the headers alone: the sizes that occur, each with a row that has it, and whether all images are grey."""
    sizes: dict[tuple[int, int], str] = {}
    grey = True
    for row, cell in enumerate(table.column(column)):
        image = _open(cell, table, column, row)
        sizes.setdefault(image.size, f"row {row} of {table.where}")
        grey = grey and image.mode in ("L", "1")
        if image.mode[0] in "IF":
            raise DataError(f"row {row} of {table.where} has more than 8 bits a channel; convert the images to 8 bits")
    return sizes, grey


def _decode_all(table: Table, config: DataConfig, mode: str, shape: tuple[int, int, int]) -> np.ndarray:
    images = np.empty((table.rows, *shape), dtype=np.uint8)
    for row, cell in enumerate(table.column(config.image_column)):
        image = _open(cell, table, config.image_column, row)
        try:
            images[row] = fit(pixels(image, mode), config.image_size)
        except (OSError, ValueError, SyntaxError) as error:
            raise _undecodable(table, row, error) from None
    return images


def _open(cell: Any, table: Table, column: str, row: int) -> Image.Image:
    value = cell.get("bytes") or cell.get("path") if isinstance(cell, dict) else cell
    if not isinstance(value, bytes) and not (isinstance(cell, dict) and isinstance(value, str)):
        raise DataError(
            f"row {row} of {table.where}, column '{column}', holds no image; name another column in data.image_column"
        )
    try:
        return Image.open(io.BytesIO(value if isinstance(value, bytes) else Path(value).read_bytes()))
    except OSError as error:
        raise _undecodable(table, row, error) from None


def _undecodable(table: Table, row: int, error: Exception) -> DataError:
    # what Pillow says of an unknown format is the address of a buffer
    reason = "of no known format" if isinstance(error, UnidentifiedImageError) else _one_line(error)
    return DataError(f"cannot decode the image in row {row} of {table.where}: {reason}; mend or remove this row")


def pixels(image: Image.Image, mode: str) -> np.ndarray:
    """Decode one image to uint8 [C, H, W], upright; transparency is dropped."""
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode != mode:
        if image.mode == "P" and "transparency" in image.info:
            image = image.convert("RGBA")
        image = image.convert(mode)
    values = np.asarray(image)
    return values[None] if values.ndim == 2 else values.transpose(2, 0, 1)


def fit(values: np.ndarray, size: int) -> np.ndarray:
    """Resize one image [C, H, W] to a square; 0 leaves it as it is. Whole shrinking factors average exact boxes."""
    _, height, width = values.shape
    if size == 0 or (height, width) == (size, size):
        return values
    whole = height % size == 0 and width % size == 0
    how = Image.Resampling.BOX if whole else Image.Resampling.BILINEAR
    return np.stack([np.asarray(Image.fromarray(channel).resize((size, size), how)) for channel in values])


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
