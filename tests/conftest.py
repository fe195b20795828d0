"""How hypothesis runs here: the same examples every time, however long the machine takes for one."""

from hypothesis import settings

settings.register_profile("geosim", deadline=None, derandomize=True)
settings.load_profile("geosim")
