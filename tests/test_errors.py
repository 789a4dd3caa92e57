import inspect

from framp import errors
from framp.errors import FrampError, listed, unknown


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    assert unknown("recipe", "framb", ["fiarse", "framp"]) == "unknown recipe 'framb'; did you mean 'framp'?"


def test_a_name_like_no_other_is_answered_with_all() -> None:
    assert unknown("recipe", "xyz", ["b", "a"]) == "unknown recipe 'xyz'; known: a, b"


def test_every_error_is_one_that_the_command_line_prints_in_a_line() -> None:
    classes = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__]
    assert len(classes) >= 7
    assert all(issubclass(kind, FrampError) for kind in classes)


def test_names_are_listed_as_in_a_sentence() -> None:
    assert [listed(names, "or") for names in (["a"], ["a", "b"], "abc")] == ["a", "a or b", "a, b or c"]
