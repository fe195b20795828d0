"""Laws are drawn the same way every time, on machines of any speed."""

from hypothesis import settings

settings.register_profile("laws", deadline=None, derandomize=True)
settings.load_profile("laws")
