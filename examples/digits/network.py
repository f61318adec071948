"""A small network of dense layers on the digits data, in numpy."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

DATA = Path(__file__).parent / "data" / "digits.csv.gz"
LAYERS = (64, 128, 64, 10)  # so small that BLAS keeps to one thread: ranks that share cores would fight over them

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Digits:
    """Images as rows of 64 floats from 0 to 1, and the digit each shows; four fifths to train on, one held out."""

    images: Floats
    labels: Labels
    held_out_images: Floats
    held_out_labels: Labels

    def shifted(self, samples: Labels, rng: np.random.Generator) -> Floats:
        """The training images of these samples, each moved by up to a pixel in either direction."""
        framed = np.pad(self.images[samples].reshape(-1, 8, 8), ((0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(framed, (8, 8), axis=(1, 2))
        down, right = rng.integers(0, 3, (2, len(samples)))
        moved: Floats = windows[np.arange(len(samples)), down, right].reshape(-1, 64)
        return moved


def load_digits(path: Path = DATA) -> Digits:
    """Reads the data and splits it, always in the same way."""
    with gzip.open(path, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.int64)
    table = table[np.random.default_rng(1797).permutation(len(table))]
    images, labels = (table[:, :64] / 16).astype(np.float32), table[:, 64]
    held_out = len(table) // 5
    return Digits(images[held_out:], labels[held_out:], images[:held_out], labels[:held_out])


class Network:
    """Dense layers with ReLU between. All parameters lie in one vector, `parameters`, that ranks can exchange."""

    def __init__(self, seed: int, layers: tuple[int, ...] = LAYERS) -> None:
        shapes = list(itertools.pairwise(layers))
        self.parameters: Floats = np.zeros(sum(m * n + n for m, n in shapes), np.float32)
        self._layers = _split(self.parameters, shapes)
        self.gradient: Floats = np.zeros_like(self.parameters)
        self._gradients = _split(self.gradient, shapes)
        rng = np.random.default_rng(seed)
        for weights, _ in self._layers:
            weights[:] = rng.normal(0, np.sqrt(2 / len(weights)), weights.shape)

    def forward(self, images: Floats) -> list[Floats]:
        """The activations of each layer, from the images themselves to the ten logits."""
        activations = [images]
        for index, (weights, bias) in enumerate(self._layers):
            out = activations[-1] @ weights + bias
            activations.append(out if index == len(self._layers) - 1 else np.maximum(out, 0))
        return activations

    def backward(self, activations: list[Floats], labels: Labels, between_layers: Callable[[], None]) -> float:
        """Fills `gradient` with the sum over these samples; returns the sum of their cross-entropy losses."""
        logits = activations[-1] - activations[-1].max(axis=1, keepdims=True)
        probabilities = np.exp(logits)
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        rows = np.arange(len(labels))
        loss = -np.log(probabilities[rows, labels] + 1e-12).sum()
        delta = probabilities
        delta[rows, labels] -= 1
        for index in reversed(range(len(self._layers))):
            gradient, bias_gradient = self._gradients[index]
            gradient[:] = activations[index].T @ delta
            bias_gradient[:] = delta.sum(axis=0)
            if index:
                delta = (delta @ self._layers[index][0].T) * (activations[index] > 0)
                between_layers()
        return float(loss)

    def accuracy(self, images: Floats, labels: Labels) -> float:
        """The share of images whose digit is named right."""
        return float((self.forward(images)[-1].argmax(axis=1) == labels).mean())


def _split(vector: Floats, shapes: list[tuple[int, int]]) -> list[tuple[Floats, Floats]]:
    """Views of `vector` as each layer's weights and bias."""
    views, start = [], 0
    for m, n in shapes:
        weights = vector[start : start + m * n].reshape(m, n)
        views.append((weights, vector[start + m * n : start + m * n + n]))
        start += m * n + n
    return views
