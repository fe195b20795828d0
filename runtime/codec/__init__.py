"""The wire format and the codecs that write it."""

from runtime.codec.interface import Decoded, FragmentCodec
from runtime.codec.registry import codec_for
from runtime.codec.wire import Header

__all__ = ["Decoded", "FragmentCodec", "Header", "codec_for"]
