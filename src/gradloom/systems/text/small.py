"""A small language model with random weights, on a simulated machine."""

from collections.abc import Mapping, Sequence

import numpy as np

from gradloom.models.adapters.lora import Adapter, fresh_lora
from gradloom.models.filled import filled, filled_tensor
from gradloom.models.language import LanguageModel
from gradloom.program.descent import AdamW
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.sim.run.counted import check_words
from gradloom.sim.run.device import SimulatedDevice

from .quantized import in_order
from .run.decode import Decoding
from .run.frozen import Frozen
from .run.instant import InstantTrainer, arranged
from .run.step import StepMachine
from .run.training import Training, largest

__all__ = ["SMALL", "SmallLanguage", "frozen_of", "random_tensors"]

#: A transformer whose tensors fill tiles of 64.
SMALL = LanguageModel(
    name="small",
    hidden=128,
    inter=192,
    layers=2,
    heads=2,
    kv_heads=1,
    head_dim=64,
    vocab=150,
    context=64,
    rope_theta=100.0,
    norm_eps=1e-5,
    tied=False,
)


def random_tensors(rng: np.random.Generator, model: LanguageModel = SMALL) -> dict[str, np.ndarray]:
    """Tensors of a model: norms about 1, matrices and biases about 0."""
    return {
        name: rng.normal(1, 0.2, shape) if name.endswith("norm.weight") else rng.normal(0, 0.1, shape)
        for name, shape in model.tensors.items()
    }


def frozen_of(tensors: Mapping[str, np.ndarray], model: LanguageModel = SMALL) -> Frozen:
    """A model with these tensors, its linears quantised."""
    return Frozen(
        filled(model),
        lambda name: filled_tensor(model, name, tensors[name]),
        lambda name: in_order(model, name, tensors[f"{name}.weight"].astype(np.float32)),
    )


class SmallLanguage:
    """:data:`SMALL` with a text.

    The text is as long as the machine takes. What runs is compared with the reference, word by word.

    Parameters
    ----------
    config : LanguageConfig
    memory_bytes : int
        Of the device.
    rank : int, optional
        Of the adapters, else the most of a pass.
    """

    def __init__(self, config: LanguageConfig, memory_bytes: int, *, rank: int | None = None) -> None:
        self.config, self.memory_bytes = config, memory_bytes
        self.rank = config.rank if rank is None else rank
        rng = np.random.default_rng(3)
        self.model, self.frozen = SMALL, frozen_of(random_tensors(rng))
        self.tokens = tuple(rng.integers(0, self.model.vocab, min(config.tokens, 64)).tolist())
        self.adapters = {
            name: Adapter(rng.normal(0, 0.1, each.a.shape), rng.normal(0, 0.1, each.b.shape), each.scale)
            for name, each in fresh_lora(self.model, rank=self.rank, targets=("q_proj", "v_proj", "down_proj")).items()
        }

    def _machine(self, device: SimulatedDevice) -> StepMachine:
        return StepMachine(self.config, memory_bytes=self.memory_bytes, device=device)

    def steps(self, device: SimulatedDevice, rng: np.random.Generator) -> None:
        """By AdamW and by SGD, of a whole text and of a few tokens."""
        for tokens, rule in ((self.tokens, AdamW(lr=1e-2, weight_decay=0.1)), (self.tokens[:5], 0.05)):
            self.step(device, tokens, rule)

    def step(self, device: SimulatedDevice, tokens: Sequence[int], rule: AdamW | float) -> None:
        """A step of training."""
        training = Training(self.frozen, tokens, self.adapters, range(self.model.layers), rule=rule)
        frac = training.fracs(largest(training.exact()), headroom=1)
        self._machine(device).run(training, frac).check(training.integers(frac))

    def instant(self, device: SimulatedDevice, rng: np.random.Generator) -> None:
        """Two steps on a text whose cache the first one makes."""
        hidden, rank = self.model.hidden, self.rank
        blocks = {
            layer: Adapter(rng.normal(0, 0.1, (rank, hidden)), rng.normal(0, 0.1, (hidden, rank)), 2.0)
            for layer in range(self.model.layers)
        }
        made = InstantTrainer(self.frozen, blocks, range(self.model.layers), AdamW(lr=1e-2))
        layout, held, _ = arranged(made, [self.tokens], self.config)
        made.machine = self._machine(device)
        made.machine.frozen, made.machine.held = layout, held
        for _ in range(2):
            made.step(self.tokens)

    def requests(self, device: SimulatedDevice, rng: np.random.Generator) -> None:
        """The next token of a text, twice."""
        text = self.tokens[:7]
        whole = Training(self.frozen, text, self.adapters, range(self.model.layers))
        exact = whole.exact()
        frac = whole.fracs(largest(exact), headroom=2)
        before = whole.integers(frac)
        machine = self._machine(device)
        machine.load(whole, frac)
        for position in (4, 5):
            token = Decoding(whole, frac, position, [text[position]])
            after = token.integers(before)
            loaded = token.load(machine, before)
            machine.host.request(loaded.start, len(loaded.program))
            machine.host.wait_request()
            check_words(token.values(machine, loaded), after.values)
            before = after
