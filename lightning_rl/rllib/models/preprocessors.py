"""RLlib's preprocessors."""

from lightning_rl.models.preprocessors import (
    FlattenPreprocessor,
    NoPreprocessor,
    OneHotPreprocessor,
    Preprocessor,
)
from lightning_rl.models.preprocessors import (
    NestedPreprocessor as DictFlatteningPreprocessor,
)
from lightning_rl.models.preprocessors import (
    NestedPreprocessor as TupleFlatteningPreprocessor,
)
from lightning_rl.models.preprocessors import (
    make_preprocessor as get_preprocessor,
)

__all__ = [
    "DictFlatteningPreprocessor",
    "FlattenPreprocessor",
    "NoPreprocessor",
    "OneHotPreprocessor",
    "Preprocessor",
    "TupleFlatteningPreprocessor",
    "get_preprocessor",
]
