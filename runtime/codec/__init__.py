"""The wire format and the codecs that write it."""

from runtime.codec.interface import Decoded, FragmentCodec, Opened
from runtime.codec.registry import codec_for
from runtime.codec.wire import Header

__all__ = ["Decoded", "FragmentCodec", "Header", "Opened", "codec_for"]
