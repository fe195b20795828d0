"""The reference codec: plain torch on the CPU, by the reference mathematics; other devices by moving."""

import numpy as np
import torch

from geosim.policy.maths import (
    Compressed,
    Key,
    compress_fragment,
    contribution,
    decompress_fragment,
    residual,
)
from runtime.codec.body import read_body, write_section
from runtime.codec.interface import FragmentCodec


class ReferenceCodec(FragmentCodec):
    """Slow, plain and right: what every other codec is tested against."""

    name = "reference"

    @classmethod
    def runs_on(cls, device: torch.device) -> bool:
        """Everywhere."""
        return True

    def _encode(
        self,
        values: torch.Tensor,
        weight: float,
        residual_: torch.Tensor | None,
        key: Key,
        body: torch.Tensor,
    ) -> bool:
        u = contribution(values.to(torch.float32), weight, residual_).cpu()
        if not torch.isfinite(u).all():
            return False
        parts = compress_fragment(u, self.sections, key)
        data = b"".join(
            write_section(section, _host(part.indices), part.q.numpy(), _host(part.scales))
            for section, part in zip(self.sections, parts, strict=True)
        )
        body.copy_(torch.from_numpy(np.frombuffer(bytearray(data), np.uint8)))
        if residual_ is not None:
            assert self.decay is not None
            residual_.copy_(residual(u, decompress_fragment(parts, self.sections), self.decay))
        return True

    def _decode_add(self, body: torch.Tensor, key: Key, out: torch.Tensor) -> None:
        parts = [
            Compressed(*(None if x is None else torch.from_numpy(np.array(x)) for x in arrays))
            for arrays in read_body(body.numpy(), self.sections, key)
        ]
        out += decompress_fragment(parts, self.sections).to(out.device)


def _host(x: torch.Tensor | None) -> np.ndarray | None:
    return None if x is None else x.numpy()
