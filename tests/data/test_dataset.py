import json
import math
import pickle
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from framp.data import Dataset, Split
from framp.errors import DataError


def small(name: str = "small", seed: int = 0) -> Dataset:
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, size=(9, 3, 4, 4), dtype=np.uint8)
    labels = np.arange(9) % 3
    return Dataset.from_arrays(name, images[:6], labels[:6], images[6:], labels[6:])


def test_moments_are_those_of_the_scaled_training_images() -> None:
    train = np.array([[[[0, 255]], [[51, 51]]]], dtype=np.uint8)
    dataset = Dataset.from_arrays("two channels", train, np.array([0]), np.full_like(train, 9), np.array([1]))
    assert dataset.mean == (0.5, 0.2)
    assert dataset.std == (0.5, 1.0)
    assert dataset.classes == 2


def test_moments_agree_with_numpy_across_chunks() -> None:
    images = np.random.default_rng(0).integers(0, 256, size=(1500, 2, 3, 3), dtype=np.uint8)
    dataset = Dataset.from_arrays("long", images, np.zeros(1500, int), images[:1], np.zeros(1, int))
    np.testing.assert_allclose(dataset.mean, (images / 255).mean(axis=(0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(dataset.std, (images / 255).std(axis=(0, 2, 3)), rtol=1e-12)


def test_grey_images_get_a_channel() -> None:
    images = np.arange(8, dtype=np.uint8).reshape(2, 2, 2)
    dataset = Dataset.from_arrays("grey", images, np.array([0, 1], np.uint8), images, np.array([1, 0]), classes=5)
    assert dataset.train.images.shape == (2, 1, 2, 2)
    assert dataset.train.labels.dtype == np.int64
    assert dataset.classes == 5
    assert math.isclose(dataset.mean[0], 3.5 / 255)


def test_hash_follows_the_content_and_not_the_name() -> None:
    assert small("a").sha256 == small("b").sha256
    assert small(seed=1).sha256 != small(seed=2).sha256


IMAGES = np.zeros((2, 1, 2, 2), dtype=np.uint8)
LABELS = np.array([0, 1])


def test_a_label_far_beyond_the_others_is_refused_unless_there_are_so_many_classes() -> None:
    images, labels = np.zeros((4, 1, 2, 2), np.uint8), np.array([0, 1, 2, 1_000_000])
    with pytest.raises(DataError) as caught:
        Dataset.from_arrays("x", images, labels % 3, images, labels)
    assert str(caught.value).startswith(
        "label 1000000 at sample 3 of x/test, but there are only 4 different labels; correct it, number the classes "
        "0 to 3, or say how many there are"
    )
    assert Dataset.from_arrays("x", images, labels % 3, images, labels, 2_000_000).classes == 2_000_000
    gaps = np.array([0, 2, 5, 2])
    assert Dataset.from_arrays("x", images, gaps, images, gaps).classes == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((IMAGES, LABELS, IMAGES, np.array([0, 7]), 3), "label out of range: 7 at sample 1 of x/test, with 3 classes"),
        ((IMAGES, np.array([-1, 0]), IMAGES, LABELS), "label out of range: -1 at sample 0 of x/train"),
        ((IMAGES / 255, LABELS, IMAGES, LABELS), "images are float64; give uint8"),
        ((IMAGES, LABELS / 1, IMAGES, LABELS), "labels are float64; give class numbers"),
        ((IMAGES, LABELS[:1], IMAGES, LABELS), "2 images but 1 labels"),
        ((IMAGES[:0], LABELS[:0], IMAGES, LABELS), "a split is empty"),
        ((IMAGES[0, 0], LABELS, IMAGES, LABELS), "as .N, C, H, W."),
        ((IMAGES, LABELS[:, None], IMAGES, LABELS), "labels are int64 of shape .2, 1."),
        ((np.zeros((2, 8, 8, 3), np.uint8), LABELS, IMAGES, LABELS), "channels last; give .N, C, H, W."),
        ((IMAGES, LABELS, IMAGES[:, :, :1], LABELS), "train images are .1, 2, 2. but test images are .1, 1, 2."),
    ],
)
def test_malformed_arrays_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        Dataset.from_arrays("x", *arguments)
    assert "\n" not in str(caught.value)


def test_a_split_refuses_other_types() -> None:
    with pytest.raises(DataError, match="images are float32"):
        Split(IMAGES.astype(np.float32), LABELS)
    with pytest.raises(DataError, match="labels are int32"):
        Split(IMAGES, LABELS.astype(np.int32))


def test_saving_and_opening_keeps_everything(tmp_path: Path) -> None:
    dataset = small()
    saved = dataset.save(tmp_path / "deep" / "set")
    for found in (saved, Dataset.open(tmp_path / "deep" / "set")):
        assert isinstance(found.train.images, np.memmap)
        assert found.folder == tmp_path / "deep" / "set"
        for part in ("train", "test"):
            np.testing.assert_array_equal(getattr(found, part).images, getattr(dataset, part).images)
            np.testing.assert_array_equal(getattr(found, part).labels, getattr(dataset, part).labels)
        assert (found.name, found.classes, found.mean, found.std, found.sha256) == (
            dataset.name,
            dataset.classes,
            dataset.mean,
            dataset.std,
            dataset.sha256,
        )
    assert [entry.name for entry in (tmp_path / "deep").iterdir()] == ["set"]


def test_saving_again_uses_the_files_there(tmp_path: Path) -> None:
    small().save(tmp_path / "set")
    before = (tmp_path / "set" / "train_images.npy").stat().st_mtime_ns
    small().save(tmp_path / "set")
    assert (tmp_path / "set" / "train_images.npy").stat().st_mtime_ns == before
    with pytest.raises(DataError, match="holds another dataset, small; delete this folder"):
        small(seed=5).save(tmp_path / "set")


def test_losing_the_race_to_write_uses_the_winners_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Dataset._write

    def overtaken(self: Dataset, folder: Path) -> None:
        write(self, folder)
        monkeypatch.setattr(Dataset, "_write", write)
        small().save(tmp_path / "set")

    monkeypatch.setattr(Dataset, "_write", overtaken)
    assert small().save(tmp_path / "set").sha256 == small().sha256
    assert [entry.name for entry in tmp_path.iterdir()] == ["set"]


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Dataset, folder: Path) -> None:
        (folder / "train_images.npy").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Dataset, "_write", full)
    with pytest.raises(DataError, match=r"cannot write the dataset to .*: No space left on device"):
        small().save(tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_takes_no_more_is_named_with_its_reason(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, before[1]))
    try:
        with pytest.raises(DataError) as caught:
            small().save(tmp_path / "set")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(caught.value) == (
        f"cannot write the dataset to {tmp_path / 'set'}: File too large; "
        "make room there or name another place in FRAMP_CACHE"
    )
    assert list(tmp_path.iterdir()) == []


def test_the_files_are_those_of_numpy(tmp_path: Path) -> None:
    small().save(tmp_path / "set")
    np.save(tmp_path / "labels.npy", small().train.labels)
    assert (tmp_path / "set" / "train_labels.npy").read_bytes() == (tmp_path / "labels.npy").read_bytes()


@pytest.mark.parametrize("file", ["train_images.npy", "train_labels.npy", "test_images.npy", "meta.json"])
@pytest.mark.parametrize("left", [0.0, 0.5, 0.95, None])
def test_a_damaged_folder_is_named_with_the_remedy(tmp_path: Path, file: str, left: float | None) -> None:
    small().save(tmp_path / "set")
    victim = tmp_path / "set" / file
    if left is None:
        victim.unlink()
    else:
        content = victim.read_bytes()
        victim.write_bytes(content[: int(len(content) * left)])
    with pytest.raises(DataError, match=r"the dataset in .*set is damaged \(.+\); delete this folder") as caught:
        Dataset.open(tmp_path / "set")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("change", [{"schema": 9}, {"classes": 1}, {"shapes": {}}])
def test_a_folder_that_contradicts_itself_is_damaged(tmp_path: Path, change: dict[str, Any]) -> None:
    small().save(tmp_path / "set")
    meta = tmp_path / "set" / "meta.json"
    meta.write_text(json.dumps(json.loads(meta.read_text()) | change))
    with pytest.raises(DataError, match=r"is damaged .* delete this folder"):
        Dataset.open(tmp_path / "set")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no dataset in .*nowhere"):
        Dataset.open(tmp_path / "nowhere")


def test_a_pickle_carries_only_the_path(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, size=(100, 3, 16, 16), dtype=np.uint8)
    dataset = Dataset.from_arrays("x", images, np.zeros(100, int), images, np.zeros(100, int))
    saved = dataset.save(tmp_path / "set")
    carried = pickle.dumps(saved)
    assert len(carried) < 1000
    again = pickle.loads(carried)
    assert isinstance(again.train.images, np.memmap)
    assert again.sha256 == dataset.sha256


def test_a_pickle_of_arrays_in_memory_carries_them() -> None:
    again = pickle.loads(pickle.dumps(small()))
    assert again.folder is None
    np.testing.assert_array_equal(again.train.images, small().train.images)


def test_some_classes_may_be_absent() -> None:
    images = np.zeros((2, 1, 2, 2), np.uint8)
    assert Dataset.from_arrays("x", images, np.array([1, 3]), images, np.array([1, 1])).classes == 4
    assert Dataset.from_arrays("x", images, np.array([1, 9]), images, np.array([1, 1]), classes=10).classes == 10
