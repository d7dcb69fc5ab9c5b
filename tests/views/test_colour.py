"""The two figures of the house scale: distance of +x and -x under colour blindness, contrast of text."""

from __future__ import annotations

import re

import numpy as np
import pytest

from accredit.views.colour import DARK, LIGHT, STEPS, domain, glyph, ink, magnitude, shade
from accredit.views.page import asset

XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
# Machado, Oliveira and Fernandes 2009, severity 1.0.
MACHADO = {
    "normal": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protan": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deutan": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritan": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
SCALES = {"light": LIGHT, "dark": DARK}


def linear(colour: str) -> np.ndarray:
    c = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(light: np.ndarray) -> np.ndarray:
    x = XYZ @ light / (XYZ @ np.ones(3))
    f = np.where(x > 216 / 24389, np.cbrt(x), (24389 / 27 * x + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(a: str, b: str) -> float:
    low, high = sorted(float(XYZ[1] @ linear(c)) for c in (a, b))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("sight", MACHADO)
@pytest.mark.parametrize("scale", SCALES)
def test_plus_and_minus_stay_apart_for_every_eye(scale: str, sight: str):
    colours = [lab(np.clip(np.array(MACHADO[sight]) @ linear(c), 0, 1)) for c in SCALES[scale]]
    nearest = min(float(np.linalg.norm(colours[i] - colours[-1 - i])) for i in range(STEPS))
    assert nearest >= 24.5, "red and green score 1 here, the house scale 25 to 28"


@pytest.mark.parametrize("dark", [False, True])
def test_text_on_every_step_has_a_contrast_of_4_5(dark: bool):
    worst = min(contrast(shade(k, dark=dark), ink(k, dark=dark)) for k in range(-STEPS, STEPS + 1))
    assert worst >= 4.5


@pytest.mark.parametrize("dark", [False, True])
def test_token_strips_keep_one_text_colour(dark: bool):
    assert {ink(k, dark=dark) for k in range(-3, 4)} == {"#FFFFFF" if dark else "#000000"}


@pytest.mark.parametrize("dark", [False, True])
def test_lightness_runs_one_way_from_zero_to_both_ends(dark: bool):
    lightness = [lab(linear(shade(k, dark=dark)))[0] for k in range(-STEPS, STEPS + 1)]
    steps = np.diff(lightness[STEPS:]), np.diff(lightness[: STEPS + 1][::-1])
    assert all((d > 0).all() if dark else (d < 0).all() for d in steps)


def test_the_style_sheet_holds_the_same_scales():
    css = asset("report.css").lower()
    for scale in (LIGHT, DARK):
        names = [*(f"n{k}" for k in range(5, 0, -1)), "z", *(f"p{k}" for k in range(1, 6))]
        for name, colour in zip(names, scale, strict=True):
            short = "".join(colour[i] for i in (1, 3, 5)).lower()
            assert re.search(rf"--{name}:\s?(?:{colour.lower()}|#{short})[;}}]", css), (name, colour)


def test_bars_and_marks_have_a_contrast_of_3_with_their_paper():
    css = asset("report.css")
    light, dark = css.split("[data-theme=dark]")[:2]
    for block in (light, dark):
        value = dict(re.findall(r"--([a-z0-9-]+):\s?(#[0-9A-Fa-f]{3,6})", block))
        full = {k: v if len(v) == 7 else "#" + "".join(c * 2 for c in v[1:]) for k, v in value.items()}
        for name in ("up", "down", "zero", "edge", "flip", "agree", "focus", *(f"part{i}" for i in range(6))):
            assert contrast(full[name], full["raised"]) >= 3, name


def test_domain_is_the_98th_percentile_of_what_is_not_zero():
    credit = np.concatenate([np.zeros(500), np.linspace(-1, 1, 101)[np.linspace(-1, 1, 101) != 0]])
    assert domain(credit) == pytest.approx(0.99, abs=0.011)
    assert domain(np.zeros(3)) == 1.0


def test_magnitude_is_signed_clipped_and_zero_only_for_nothing():
    assert [magnitude(x, 1.0) for x in (0, 1e-3, 0.2, 0.21, 1, 9, -0.5, -9)] == [0, 1, 1, 2, 5, 5, -3, -5]
    assert [glyph(x) for x in (1.0, -1.0, 0.0)] == ["▲", "▼", "·"]
