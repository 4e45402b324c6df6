"""The public surface: a sorted list, and every name on it is there."""

import planner


def test_the_public_names_are_sorted_and_exist() -> None:
    assert planner.__all__ == sorted(planner.__all__)
    assert set(planner.__all__) == set(planner._HOME)
    for name in planner.__all__:
        assert getattr(planner, name) is not None


def test_no_other_name_is_made_up() -> None:
    assert not hasattr(planner, "torch")
