"""Testbenches of `hw.hbm`: controller and device."""

from scripts.simulator import Testbench

from .models import CONTROLLERS, controller_model

TESTBENCHES = [
    Testbench(
        name=f"hbm_controller_{name}", model=controller_model(name), module="tb.hbm.test_controller",
        environment={"HBM_CONFIG": name}, plusargs=("+hbm_pattern",),
    )
    for name in CONTROLLERS
]  # fmt: skip
