"""Makes ``tests/models/fixtures/*.onnx`` with both of PyTorch's exporters.

A maintainer's tool, run in an environment of its own (torch==2.13.0, onnx==1.20.1, onnxscript)::

    python -m venv scratch && scratch/bin/pip install torch==2.13.0 onnx==1.20.1 onnxscript
    scratch/bin/python tests/tools/make_onnx_fixtures.py

``NAME.dynamo.onnx`` comes from the default exporter (``.data`` beside it holds its weights),
``NAME.script.onnx`` from ``dynamo=False``. Weights are random; nothing is trained.
"""

from pathlib import Path

import onnx
import torch
from torch import nn

FIXTURES = Path(__file__).parents[1] / "models" / "fixtures"


class View(nn.Module):
    """Flattens by the batch's size, as much published code does."""

    def forward(self, x):
        return x.view(x.size(0), -1)


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x):
        x = torch.flatten(x, 1)
        return self.fc2(x + torch.relu(self.fc1(x)))


class Scaled(nn.Module):
    """An image minus ``mean``, over ``std``: as published code has it where the images are not prepared."""

    def __init__(self, mean, std):
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1))

    def forward(self, x):
        return (x - self.mean) / self.std


class Centred(nn.Module):
    """The same with plain numbers."""

    def forward(self, x):
        return (x - 0.5) / 0.25


class Chain(nn.Module):
    """Scalars and values a channel, on either side of the image."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor([1.5, -0.75]).view(2, 1, 1))

    def forward(self, x):
        return 0.25 + (1 - 2 * x) * self.gain / 0.5


class Elements(nn.Module):
    """A mean and a deviation an element of the flattened image."""

    def __init__(self, n):
        super().__init__()
        self.mean, self.std = nn.Buffer(torch.rand(n)), nn.Buffer(torch.rand(n) + 0.25)

    def forward(self, x):
        return (torch.flatten(x, 1) - self.mean) / self.std


def norm(n):
    """Batch normalisation that is not the identity."""
    layer = nn.BatchNorm2d(n)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    nn.init.normal_(layer.running_mean)
    nn.init.uniform_(layer.running_var, 0.5, 2)
    return layer


def normalised():
    """Networks that normalise their images themselves: name -> (network, shape of an image)."""

    def padded(channels):
        return (nn.Conv2d(channels, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 5))

    return {
        "scaled_gray": (nn.Sequential(Scaled([0.1307], [0.3081]), *padded(1)), (1, 8, 8)),
        "scaled_scalar": (nn.Sequential(Centred(), *padded(1)), (1, 8, 8)),
        "scaled_colour": (nn.Sequential(Scaled([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]), *padded(3)), (3, 8, 8)),
        "scaled_batchnorm": (nn.Sequential(norm(3), *padded(3)), (3, 8, 8)),
        "scaled_chain": (nn.Sequential(Chain(), norm(2), *padded(2)), (2, 8, 8)),
        "scaled_elements": (nn.Sequential(Elements(36), nn.Linear(36, 12), nn.ReLU(), nn.Linear(12, 4)), (1, 6, 6)),
    }


def networks():
    """name -> (network, shape of an image, whether gradloom supports it)"""

    return {
        "batchnorm": (
            nn.Sequential(
                nn.Conv2d(1, 4, 3, padding=1, bias=False),
                norm(4),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(4, 6, 3),
                norm(6),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Flatten(),
                nn.Dropout(0.5),
                nn.Linear(54, 5),
            ),
            (1, 16, 16),
        ),
        "stride": (
            nn.Sequential(
                nn.Conv2d(3, 4, 3, stride=2, padding=1),
                nn.ReLU(),
                nn.Conv2d(4, 5, (3, 2), stride=(1, 2), padding=(0, 1)),
                nn.MaxPool2d(2),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(20, 7),
                nn.BatchNorm1d(7),
                nn.ReLU(),
                nn.Linear(7, 3),
            ),
            (3, 12, 12),
        ),
        "mlp": (nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10, bias=False)), (1, 8, 8)),
        "view": (nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(3), View(), nn.Linear(12, 4)), (1, 10, 8)),
        "average_pool": (
            nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(18, 4)),
            (1, 8, 8),
        ),
        "branch": (Branch(), (1, 4, 4)),
    }


def export(net, shape, name):
    net = net.eval()
    image = torch.zeros(2, *shape)
    torch.onnx.export(
        net,
        (image,),
        FIXTURES / f"{name}.script.onnx",
        dynamo=False,
        opset_version=17,
        input_names=["image"],
        output_names=["logits"],
        dynamic_axes={"image": {0: "batch"}, "logits": {0: "batch"}},
    )
    path = FIXTURES / f"{name}.dynamo.onnx"
    torch.onnx.export(
        net,
        (image,),
        path,
        dynamo=True,
        input_names=["image"],
        output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
    )
    # The exporter notes source lines, with their paths, beside every node.
    model = onnx.load(path, load_external_data=False)
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output):
        del value.metadata_props[:]
    del model.graph.metadata_props[:]
    onnx.save(model, path)


def main():
    torch.manual_seed(1)
    FIXTURES.mkdir(parents=True, exist_ok=True)
    for name, (net, shape) in networks().items():
        export(net, shape, name)
    # The exporters fold BatchNorm after a convolution themselves, unless asked to preserve the mode.
    net, shape = networks()["batchnorm"]
    torch.onnx.export(
        net.eval(),
        (torch.zeros(1, *shape),),
        FIXTURES / "batchnorm_kept.script.onnx",
        dynamo=False,
        training=torch.onnx.TrainingMode.PRESERVE,
        do_constant_folding=False,
        input_names=["image"],
        output_names=["logits"],
    )
    # A fixed batch, as an export without dynamic axes has it.
    net, shape = networks()["view"]
    torch.onnx.export(net.eval(), (torch.zeros(1, *shape),), FIXTURES / "fixed_batch.script.onnx", dynamo=False)
    torch.manual_seed(2)
    for name, (net, shape) in normalised().items():
        export(net, shape, name)


if __name__ == "__main__":
    main()
