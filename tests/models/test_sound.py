"""Features of sound are librosa's, and a WAV file is read whole or refused by name."""

import wave
from pathlib import Path

import numpy as np
import pytest

from gradloom.models.sound import Sound, read_wav

#: Of the sweep below by librosa 0.11: a power spectrum by ``stft`` in frames of 480 samples of 512, every 320, by
#: ``filters.mel(htk=True, norm=None)`` of 40 bands; logarithms; ``feature.mfcc(S=…)`` of them.
LIBROSA = np.load(Path(__file__).parent / "fixtures" / "sound_by_librosa.npz")


def sweep(count=2400, rate=16000):
    t = np.arange(count) / rate
    return np.round(0.5 * 32767 * np.sin(2 * np.pi * (300 * t + 9000 * t * t))).astype(np.int16)


def write(path, samples, *, rate=16000, channels=1, width=2):
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, width, rate, 0, "NONE", ""))
        file.writeframes(samples.tobytes())


@pytest.mark.parametrize("kind", ("logmel", "mfcc"))
def test_features_are_those_of_librosa(kind):
    sound = Sound.of(kind)
    found = sound.features(sweep() / 2.0**15)
    assert found.shape == (7, sound.channels)
    np.testing.assert_allclose(found, LIBROSA[kind], atol=2e-6)


@pytest.mark.parametrize("width", (1, 2, 3, 4))
def test_samples_of_every_width_are_read(tmp_path, width):
    codes = np.array([-(1 << (8 * width - 1)), -1, 0, 1, (1 << (8 * width - 1)) - 1])
    raw = (codes + 128 if width == 1 else codes).astype("<i4").view(np.uint8).reshape(-1, 4)[:, :width]
    write(tmp_path / "a.wav", np.ascontiguousarray(raw), width=width)
    np.testing.assert_array_equal(read_wav(tmp_path / "a.wav", 16000), codes / 2.0 ** (8 * width - 1))


SPOILT = {
    "a rate": (lambda path: write(path, sweep(), rate=8000), "has 8000 samples a second, the front end 16000"),
    "two channels": (lambda path: write(path, sweep(), channels=2), "has 2 channels: must have 1"),
    "no file": (lambda path: path.write_bytes(b"RIFF"), "is no WAV file of integers"),
    "the end": (
        lambda path: (write(path, sweep()), path.write_bytes(path.read_bytes()[:-100])),
        "holds 4700 bytes of 4800: is it truncated",
    ),
}


@pytest.mark.parametrize("fault", SPOILT)
def test_a_file_that_is_not_read_is_named(tmp_path, fault):
    spoil, why = SPOILT[fault]
    spoil(tmp_path / "a.wav")
    with pytest.raises(ValueError, match=rf"a\.wav: {why}"):
        read_wav(tmp_path / "a.wav", 16000)


@pytest.mark.parametrize(
    ("text", "why"),
    (
        ("plp", "plp: must be logmel or mfcc"),
        ("mfcc,rate", "rate=: must be an integer"),
        ("mfcc,tune=3", "'tune' must be one of rate, window"),
        ("mfcc,mels=20,mels=20", "'mels' must be one of"),
        ("mfcc,rate=8000,high=4001", "high=4001: must be above low=20 and at most half of rate=8000"),
        ("mfcc,coefficients=41", "coefficients=41: must be at most mels=40"),
        ("logmel,mels=250", "mels=250: band 0 of 20 to 4000 Hz lies between two frequencies"),
        ("mfcc,hop=0", "hop=0: must be from 1 to 1000"),
    ),
)
def test_a_front_end_that_is_none_is_refused(text, why):
    with pytest.raises(ValueError, match=f"sound={text}: .*{why}"):
        Sound.of(text)
