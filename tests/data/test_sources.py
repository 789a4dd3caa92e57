import io
import logging
import os
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from PIL import Image

from framp.config import Config
from framp.data import Dataset, decode, load, sources
from framp.errors import ConfigError, DataError
from framp.settings import DataConfig


def png(image: Image.Image) -> dict[str, Any]:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return {"bytes": buffer.getvalue(), "path": None}


def noise(seed: int, mode: str = "RGB", width: int = 5, height: int = 4) -> Image.Image:
    shape = (height, width) if mode == "L" else (height, width, len(mode))
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, size=shape, dtype=np.uint8))


def table(images: list[Any], labels: list[Any], feature: Any = None) -> datasets.Dataset:
    features = datasets.Features({"img": datasets.Image(), "label": feature or datasets.Value("int64")})
    cells = [png(image) if isinstance(image, Image.Image) else image for image in images]
    return datasets.Dataset.from_dict({"img": cells, "label": labels}, features=features)


def write(folder: Path, train: datasets.Dataset, test: datasets.Dataset) -> DataConfig:
    (folder / "plain_text").mkdir(parents=True)
    train.to_parquet(str(folder / "plain_text" / "train-00000-of-00001.parquet"))
    test.to_parquet(str(folder / "plain_text" / "test-00000-of-00001.parquet"))
    return DataConfig(source="huggingface", path=str(folder))


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets.disable_progress_bars()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def colours(tmp_path: Path) -> DataConfig:
    return write(
        tmp_path / "colours", table([noise(0), noise(1), noise(2)], [0, 2, 1]), table([noise(3), noise(4)], [1, 0])
    )


def no_decoding(*arguments: Any) -> Any:
    raise AssertionError("decoded again")


def test_digits_are_split_by_class_and_scaled(cache: Path) -> None:
    from sklearn.datasets import load_digits

    dataset = load(DataConfig(), cache)
    assert (dataset.name, dataset.classes) == ("digits", 10)
    assert dataset.train.images.shape[1:] == (1, 8, 8)
    assert len(dataset.train) + len(dataset.test) == 1797
    per_class = np.bincount(load_digits().target)
    assert np.bincount(dataset.test.labels).tolist() == [round(count / 5) for count in per_class]
    scaled = sorted(
        (np.rint(image * 255 / 16).astype(np.uint8).tobytes(), int(label))
        for image, label in zip(load_digits().images, load_digits().target, strict=True)
    )
    splits = (dataset.train, dataset.test)
    ours = [
        (image.tobytes(), int(label))
        for split in splits
        for image, label in zip(split.images, split.labels, strict=True)
    ]
    assert sorted(ours) == scaled


def test_digits_are_the_same_everywhere_and_cached_as_files(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load(DataConfig(), cache)
    assert first.folder is not None
    assert first.folder.parent == cache
    assert load(DataConfig(), tmp_path / "other").sha256 == first.sha256
    monkeypatch.setattr(Dataset, "from_arrays", no_decoding)
    assert load(DataConfig(), cache).sha256 == first.sha256


def test_digits_can_be_resized(cache: Path) -> None:
    assert load(DataConfig(image_size=4), cache).train.images.shape[1:] == (1, 4, 4)


def test_the_cache_is_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAMP_CACHE", str(tmp_path / "named"))
    folder = load(DataConfig()).folder
    assert folder is not None
    assert folder.parent == tmp_path / "named"
    monkeypatch.delenv("FRAMP_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = load(DataConfig()).folder
    assert folder is not None
    assert folder.parent == tmp_path / "home" / ".cache" / "framp"


def test_a_folder_of_parquet_files_is_read_pixel_by_pixel(colours: DataConfig, cache: Path) -> None:
    dataset = load(colours, cache)
    assert (dataset.name, dataset.classes) == ("colours", 3)
    assert dataset.train.images.shape == (3, 3, 4, 5)
    assert dataset.train.labels.tolist() == [0, 2, 1]
    assert dataset.test.labels.tolist() == [1, 0]
    for row, seed in enumerate((0, 1, 2)):
        np.testing.assert_array_equal(dataset.train.images[row].transpose(1, 2, 0), np.asarray(noise(seed)))
    assert isinstance(dataset.train.images, np.memmap)
    assert [entry.name for entry in cache.iterdir()] == [dataset.folder.name if dataset.folder else ""]


def test_a_graph_is_not_loaded_as_images(cache: Path) -> None:
    with pytest.raises(ConfigError, match="source is sbm, which holds no images; set it to digits or huggingface"):
        load(DataConfig(source="sbm"), cache)


def test_the_second_load_does_not_decode(
    colours: DataConfig, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load(colours, cache)
    monkeypatch.setattr(sources, "read", no_decoding)
    monkeypatch.setattr(decode.Table, "from_parquet", no_decoding)
    assert load(colours, cache).sha256 == first.sha256
    os.rename(tmp_path / "colours", tmp_path / "moved")
    os.makedirs(tmp_path / "again")
    os.rename(tmp_path / "moved", tmp_path / "again" / "colours")
    moved = DataConfig(source="huggingface", path=str(tmp_path / "again" / "colours"))
    assert load(moved, cache).folder == first.folder


def test_other_content_or_settings_are_decoded_anew(colours: DataConfig, cache: Path, tmp_path: Path) -> None:
    first = load(colours, cache)
    small = DataConfig(source="huggingface", path=colours.path, image_size=2)
    assert load(small, cache).train.images.shape == (3, 3, 2, 2)
    changed = write(tmp_path / "changed" / "colours", table([noise(7)], [0]), table([noise(8)], [0]))
    assert load(changed, cache).folder != first.folder


def test_a_truncated_cache_says_what_to_delete(colours: DataConfig, cache: Path) -> None:
    folder = load(colours, cache).folder
    assert folder is not None
    file = folder / "train_images.npy"
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(DataError, match=f"the dataset in {folder} is damaged .*; delete this folder"):
        load(colours, cache)


def test_several_files_make_one_split_in_order(tmp_path: Path, cache: Path) -> None:
    config = write(tmp_path / "set", table([noise(0)], [0]), table([noise(1)], [1]))
    folder = tmp_path / "set" / "plain_text"
    table([noise(5)], [4]).to_parquet(str(folder / "train-00001-of-00002.parquet"))
    assert load(config, cache).train.labels.tolist() == [0, 4]


def test_a_folder_named_like_a_split_holds_its_numbered_files(tmp_path: Path, cache: Path) -> None:
    images = [table([noise(seed)], [seed]) for seed in range(3)]
    for name, content in zip(("train/0000", "train/0001", "test/0000"), images, strict=True):
        file = tmp_path / "set" / "default" / f"{name}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        content.to_parquet(str(file))
    dataset = load(DataConfig(source="huggingface", path=str(tmp_path / "set")), cache)
    assert (dataset.train.labels.tolist(), dataset.test.labels.tolist()) == ([0, 1], [2])


def test_grey_images_keep_one_channel(tmp_path: Path, cache: Path) -> None:
    config = write(tmp_path / "grey", table([noise(0, "L")], [0]), table([noise(1, "L")], [0]))
    dataset = load(config, cache)
    assert dataset.train.images.shape == (1, 1, 4, 5)
    np.testing.assert_array_equal(dataset.train.images[0, 0], np.asarray(noise(0, "L")))


def test_one_image_in_colour_makes_all_of_them_colour(tmp_path: Path, cache: Path) -> None:
    palette = noise(2).convert("P", palette=Image.Palette.ADAPTIVE)
    transparent = palette.copy()
    transparent.info["transparency"] = bytes([0, 128])
    images = [noise(0, "L"), noise(1, "RGBA"), palette, transparent]
    dataset = load(write(tmp_path / "mixed", table(images, [0] * 4), table([noise(0, "L")], [0])), cache)
    assert dataset.train.images.shape == (4, 3, 4, 5)
    for channel in range(3):
        np.testing.assert_array_equal(dataset.train.images[0, channel], np.asarray(noise(0, "L")))
    np.testing.assert_array_equal(dataset.train.images[1].transpose(1, 2, 0), np.asarray(noise(1, "RGBA"))[..., :3])
    np.testing.assert_array_equal(dataset.train.images[2].transpose(1, 2, 0), np.asarray(palette.convert("RGB")))
    np.testing.assert_array_equal(dataset.train.images[3], dataset.train.images[2])


def test_images_of_several_sizes_need_a_size(tmp_path: Path, cache: Path) -> None:
    config = write(tmp_path / "sizes", table([noise(0), noise(1, width=9)], [0, 1]), table([noise(2)], [0]))
    with pytest.raises(DataError, match=r"images differ in size: 5x4 in row 0 of .*train, 9x4 in row 1 .*image_size"):
        load(config, cache)
    resized = DataConfig(source="huggingface", path=config.path, image_size=6)
    assert load(resized, cache).train.images.shape == (2, 3, 6, 6)


def test_a_whole_shrinking_factor_averages_boxes() -> None:
    image = np.array([[[0, 10, 100, 100], [20, 30, 100, 104]] * 2], dtype=np.uint8)
    assert decode.fit(image, 2).tolist() == [[[15, 101], [15, 101]]]
    assert decode.fit(image, 0) is image
    assert decode.fit(image, 4) is image
    assert decode.fit(image, 3).shape == (1, 3, 3)


def test_photographs_are_turned_upright() -> None:
    image, buffer = noise(0), io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(buffer, "PNG", exif=exif)
    turned = decode.pixels(Image.open(buffer), "RGB").transpose(1, 2, 0)
    np.testing.assert_array_equal(turned, np.rot90(np.asarray(image), -1))


def test_named_classes_give_their_number(tmp_path: Path, cache: Path) -> None:
    names = datasets.ClassLabel(names=["cat", "dog", "emu", "fox"])
    config = write(tmp_path / "named", table([noise(0)], [1], names), table([noise(1)], [0], names))
    assert load(config, cache).classes == 4


@pytest.mark.parametrize(
    ("labels", "feature", "message"),
    [
        ([0, -1], "int64", "label out of range: -1 at sample 1 of labels/test, with 1 classes"),
        (["cat", "dog"], "string", "label 'cat' in row 0 of .*test, column 'label', is not a class number; number the"),
        ([0, 99], "int64", "label 99 at sample 1 of labels/test, but there are only 2 different labels; correct it"),
        ([0, None], "int64", "label None in row 1 of"),
        ([0.5, 1.0], "float64", "label 0.5 in row 0 of .*data.label_column"),
        ([True, False], "bool", "label True in row 0 of"),
    ],
)
def test_labels_that_are_no_class_numbers_are_refused(
    tmp_path: Path, cache: Path, labels: list[Any], feature: str, message: str
) -> None:
    test = table([noise(1), noise(2)], labels, datasets.Value(feature))
    config = write(tmp_path / "labels", table([noise(0)], [0]), test)
    with pytest.raises(DataError, match=message):
        load(config, cache)


def test_labels_beyond_the_named_classes_are_refused(tmp_path: Path, cache: Path) -> None:
    named = table([noise(0)], [1], datasets.ClassLabel(names=["cat", "dog"]))
    config = write(tmp_path / "set", named, table([noise(1)], [2]))
    with pytest.raises(DataError, match="label out of range: 2 at sample 0 of set/test, with 2 classes"):
        load(config, cache)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"image_column": "image"}, "unknown column 'image'; .*; .*train has: img, label; set data.image_column"),
        ({"label_column": "labels"}, "unknown column 'labels'; did you mean 'label'.*set data.label_column"),
        ({"image_column": "label"}, "row 0 of .*train, column 'label', holds no image; .*data.image_column"),
        (
            {"test_split": "validation"},
            "no split 'validation' in .*; splits found: test, train; set data.path, data.tr",
        ),
    ],
)
def test_wrong_columns_and_splits_are_named(
    colours: DataConfig, cache: Path, settings: dict[str, str], message: str
) -> None:
    config = DataConfig(source="huggingface", path=colours.path, **settings)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=message) as caught:
        load(config, cache)
    assert "\n" not in str(caught.value)
    assert not cache.exists()


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (None, "row 1 of .*train, column 'img', holds no image"),
        ({"bytes": b"not a picture", "path": None}, "row 1 of .*/train: of no known format; mend or remove this row$"),
        (
            {"bytes": png(noise(1))["bytes"][:60], "path": None},
            "cannot decode the image in row 1 .*; mend or",
        ),
        (Image.fromarray(np.ones((4, 5), np.uint16)), "row 1 of .* has more than 8 bits a channel"),
    ],
)
def test_cells_that_hold_no_picture_are_refused(tmp_path: Path, cache: Path, cell: Any, message: str) -> None:
    config = write(tmp_path / "cells", table([noise(0), cell], [0, 0]), table([noise(1)], [0]))
    with pytest.raises(DataError, match=message):
        load(config, cache)


def test_an_empty_split_is_refused(tmp_path: Path, cache: Path) -> None:
    config = write(tmp_path / "set", table([noise(0)], [0]), table([], []))
    with pytest.raises(DataError, match="test is empty"):
        load(config, cache)


def test_a_broken_parquet_file_is_refused(colours: DataConfig, cache: Path) -> None:
    file = next(Path(colours.path).rglob("train*.parquet"))
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(DataError, match=rf"cannot read {file}: .*; fetch this file again"):
        load(colours, cache)


def test_a_parquet_file_with_a_damaged_page_is_refused(colours: DataConfig, cache: Path) -> None:
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    file = next(Path(colours.path).rglob("train*.parquet"))
    page = pq.ParquetFile(file).metadata.row_group(0).column(1)
    content = bytearray(file.read_bytes())
    content[page.data_page_offset + 8 : page.data_page_offset + page.total_compressed_size] = b"\xff" * (
        page.total_compressed_size - 8
    )
    file.write_bytes(content)
    with pytest.raises(DataError, match=rf"cannot read {file}: .*; fetch this file again") as caught:
        load(colours, cache)
    assert "\n" not in str(caught.value)


def test_files_of_a_split_with_other_columns_are_refused(colours: DataConfig, cache: Path) -> None:
    (folder,) = Path(colours.path).iterdir()
    second = folder / "train-00001-of-00002.parquet"
    table([noise(5)], [4]).rename_column("label", "class").to_parquet(str(second))
    with pytest.raises(DataError, match=rf"{second} has columns img, class, but train-00000.* has img, label; give"):
        load(colours, cache)


def test_a_split_in_two_folders_is_refused(tmp_path: Path, cache: Path) -> None:
    write(tmp_path / "set" / "a", table([noise(0)], [0]), table([noise(1)], [0]))
    write(tmp_path / "set" / "b", table([noise(2)], [0]), table([noise(3)], [0]))
    with pytest.raises(DataError, match=r"split 'train' lies in several folders: .*; set data.path to one of them"):
        load(DataConfig(source="huggingface", path=str(tmp_path / "set")), cache)


def test_paths_that_lead_nowhere_are_refused(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, message in (
        (str(tmp_path / "nowhere"), "nowhere does not exist"),
        ("./nowhere", "data.path ./nowhere does not exist"),
        ("~/nowhere/at/all", "does not exist"),
        (str(tmp_path / "file"), "is a file; name the folder"),
        (str(tmp_path), "no split 'train' in .*; splits found: none"),
    ):
        with pytest.raises(DataError, match=message):
            load(DataConfig(source="huggingface", path=path), cache)
    with pytest.raises(ConfigError, match=r"data.path is empty"):
        load(DataConfig(source="huggingface"), cache)


def test_a_local_folder_is_named_in_full_and_nothing_else_is(
    colours: DataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path, expected in (("colours", colours.path), ("./colours", colours.path), ("a/set", "a/set"), ("", "")):
        config = Config().with_values({"data.source": "huggingface", "data.path": path})
        assert sources.located(config).data.path == expected
    digits = Config().with_values({"data.path": "colours"})
    assert sources.located(digits) == digits


def test_a_set_on_the_hub_is_read_and_cached(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = datasets.DatasetDict(train=table([noise(0), noise(1)], [0, 1]), test=table([noise(2)], [1]))
    asked: list[tuple[str, str]] = []

    def load_dataset(path: str, cache_dir: str) -> datasets.DatasetDict:
        asked.append((path, cache_dir))
        return found

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    config = DataConfig(source="huggingface", path="somebody/colours")
    dataset = load(config, cache)
    assert asked == [("somebody/colours", str(cache / "huggingface"))]
    assert dataset.name == "colours"
    np.testing.assert_array_equal(dataset.train.images[1].transpose(1, 2, 0), np.asarray(noise(1)))
    monkeypatch.setattr(sources, "read", no_decoding)
    assert load(config, cache).sha256 == dataset.sha256
    with pytest.raises(DataError, match="no split 'valid' in 'somebody/colours'; splits found: train, test; set"):
        load(DataConfig(source="huggingface", path="somebody/colours", test_split="valid"), cache)


def test_images_that_the_hub_left_as_files_are_read(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise(0).save(tmp_path / "picture.png")
    found = table([str(tmp_path / "picture.png")], [0])
    monkeypatch.setattr(datasets, "load_dataset", lambda path, cache_dir: {"train": found, "test": found})
    dataset = load(DataConfig(source="huggingface", path="somebody/files"), cache)
    np.testing.assert_array_equal(dataset.test.images[0].transpose(1, 2, 0), np.asarray(noise(0)))
    found = table([str(tmp_path / "nowhere.png")], [0])
    with pytest.raises(DataError, match=r"cannot decode the image in row 0 of somebody/files/train: .*nowhere.png"):
        load(DataConfig(source="huggingface", path="somebody/files"), cache)


def test_a_hub_out_of_reach_is_one_line_with_the_remedy(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = logging.getLogger("huggingface_hub")
    said, level = io.StringIO(), library.level

    def load_dataset(path: str, cache_dir: str) -> None:
        logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 1s [Retry 1/5].")
        raise ConnectionError("Couldn't reach\nthe hub")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(library, "handlers", [logging.StreamHandler(said)])
    datasets.enable_progress_bars()
    with pytest.raises(DataError, match=r"cannot load 'a/b' from the hub .* the hub.; .*a local folder") as caught:
        load(DataConfig(source="huggingface", path="a/b"), cache)
    assert "\n" not in str(caught.value)
    assert datasets.is_progress_bar_enabled()
    assert (said.getvalue(), library.level) == ("", level)


@pytest.mark.slow
@pytest.mark.skipif("FRAMP_TEST_DATA" not in os.environ, reason="FRAMP_TEST_DATA names no folder with cifar10")
def test_cifar10_is_what_it_should_be(cache: Path) -> None:
    config = DataConfig(source="huggingface", path=str(Path(os.environ["FRAMP_TEST_DATA"]) / "cifar10"))
    dataset = load(config, cache)
    assert (len(dataset.train), len(dataset.test), dataset.classes) == (50000, 10000, 10)
    assert dataset.train.images.shape[1:] == (3, 32, 32)
    assert np.bincount(dataset.train.labels).tolist() == [5000] * 10
    assert np.bincount(dataset.test.labels).tolist() == [1000] * 10
    np.testing.assert_allclose(dataset.mean, (0.4914, 0.4822, 0.4465), atol=1e-3)
