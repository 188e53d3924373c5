"""Engines of the machines, in the order of their numbers."""
from ..engines.array.spec import SPEC as _ARRAY
from ..engines.encode.spec import SPEC as _ENCODE
from ..engines.gradient.spec import SPEC as _GRADIENT
from ..engines.head.spec import SPEC as _HEAD
from ..engines.linear.spec import SPEC as _LINEAR
from ..engines.update.spec import SPEC as _UPDATE
from ..engines.vector.spec import SPEC as _VECTOR
from ..shell.engines import Engines

__all__ = ["ARRAY", "ENCODE", "GRADIENT", "HEAD", "IMAGES", "LANGUAGE", "LINEAR", "UPDATE", "VECTOR"]

#: Convolutional networks.
IMAGES = Engines(_ARRAY, _HEAD, _ENCODE)
ARRAY, HEAD, ENCODE = IMAGES.own
#: Language models.
LANGUAGE = Engines(_LINEAR, _GRADIENT, _UPDATE, _VECTOR)
LINEAR, GRADIENT, UPDATE, VECTOR = LANGUAGE.own
