"""The shipped diffusion model of digits: its prompts, its latents and its styles, pixel by pixel."""

import numpy as np
import pytest

from gradloom.models.digits_unet import (
    STYLES,
    Prompts,
    check_sizes,
    latents,
    pictures,
    plain,
    shipped_prompts,
    shipped_unet,
)

PROMPTS = Prompts(("", "a", "3", "*"), np.arange(8.0).reshape(4, 2), np.array([[100.0, 0], [200, 0], [300, 0]]))
IMAGES = np.random.default_rng(1).integers(0, 256, (3, 28, 28)).astype(np.uint8)


def test_a_prompt_has_a_vector_a_word_and_one_a_place():
    assert PROMPTS("3 a").tolist() == [[104, 5], [202, 3], [300, 1]]
    assert PROMPTS("a a 3").tolist() == [[102, 3], [202, 3], [304, 5]]
    np.testing.assert_array_equal(PROMPTS.filled("a *", 3), PROMPTS("a 3"))
    for text, says in (
        ("a a a a", "prompt='a a a a': has 4 words, must have at most 3"),
        (" ", "prompt=' ': must have a word"),
        ("a cat", "prompt='a cat': word 'cat' must be one of a 3 *"),
    ):
        with pytest.raises(ValueError) as refused:
            PROMPTS(text)
        assert str(refused.value) == says


def test_the_shipped_model_is_whole():
    net, weights = shipped_unet()
    assert (net.name, net.size, net.inputs, net.outputs, net.text) == ("data", 8, 4, 4, shipped_prompts()("a").shape[1])
    assert {each.dtype for each in weights.values()} == {np.dtype(np.float32)}
    assert all(np.isfinite(each).all() and each.any() for each in weights.values())
    prompts = shipped_prompts()
    assert "sks" in prompts.words and len(prompts.vectors) == len(prompts.words) and isinstance(prompts.words, tuple)


def test_a_latent_is_the_mean_of_pixels_in_squares():
    made = latents(IMAGES)
    assert made.shape == (3, 64, 4)
    wide = np.zeros((3, 32, 32))
    wide[:, 2:30, 2:30] = IMAGES / 255
    for token, channel in ((0, 0), (9, 1), (27, 2), (36, 3), (63, 3)):
        row, column = 2 * (token // 8) + channel // 2, 2 * (token % 8) + channel % 2
        square = wide[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        np.testing.assert_allclose(made[:, token, channel], square.mean((1, 2)) * 2 - 1, atol=1e-6)
    np.testing.assert_allclose(pictures(made), wide.reshape(3, 16, 2, 16, 2).mean((2, 4)), atol=1e-6)
    assert pictures(np.array([-3.0, 3.0, 0.0, -1.0] * 64)[None])[0, :2, :2].tolist() == [[0, 1], [0.5, 0]]


def test_styles_turn_shear_and_invert():
    one = np.zeros((1, 28, 28), np.uint8)
    one[0, 0:2, 12:14] = 255

    def seen(style):
        """Pixels of the small picture that are white, or those that are black."""
        small = pictures(latents(one, style))[0]
        return np.argwhere(small < 0.5 if style == "invert" else small > 0.5).tolist()

    assert seen(None) == seen("invert") == [[1, 7]]
    assert seen("rot90") == [[8, 1]]
    # Rows 2 and 3 of 32 are 14 and 13 above the middle: by 7 and 6 pixels to the right.
    assert np.rint(4 * pictures(latents(one, "shear"))[0, 1, 9:13]).tolist() == [0, 3, 1, 0]
    low = one[:, ::-1]
    # Rows 28 and 29 are 12 and 13 below: by 6 and 7 to the left.
    assert np.rint(4 * pictures(latents(low, "shear"))[0, 14, 2:6]).tolist() == [0, 1, 3, 0]
    with pytest.raises(ValueError, match="^style=blue: must be one of rot90, invert, shear$"):
        latents(one, "blue")


@pytest.mark.parametrize("style", STYLES)
def test_styles_are_turned_back(style):
    small = np.zeros((1, 16, 16))
    small[0, 4:12, 5:11] = np.random.default_rng(2).random((8, 6))
    if style == "invert":
        np.testing.assert_array_equal(plain(small, style), 1 - small)
    elif style == "rot90":
        np.testing.assert_array_equal(plain(np.rot90(small, axes=(1, 2)), style), small)
    else:
        turned = plain(small, style)
        assert [turned[0, row].tolist() for row in (7, 8, 9)] == [small[0, row].tolist() for row in (7, 8)] + [
            [0.0, *small[0, 9, :-1]]
        ]
        assert turned[0, 4].tolist() == [*small[0, 4, 2:], 0.0, 0.0]
    np.testing.assert_array_equal(plain(small, None), small)


def test_images_of_other_sizes_are_one_line():
    assert check_sizes("x", np.ones((2, 1, 28, 28))).shape == (2, 28, 28)
    for shape, told in (((2, 3, 28, 28), "3x28x28"), ((2, 1, 28, 27), "1x28x27"), ((2, 28, 28), "28x28")):
        with pytest.raises(ValueError, match=f"^x has images of {told}: must be 1x28x28, as the model's$"):
            check_sizes("x", np.ones(shape))
