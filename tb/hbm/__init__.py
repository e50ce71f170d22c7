"""Testbenches of `hw.hbm`: controller and device."""

from scripts.simulator import Testbench

from .models import CONTROLLERS, DEVICES, controller_model, device_model

TESTBENCHES = [
    *(
        Testbench(
            name=f"hbm_device_{name}", model=device_model(name), module="tb.hbm.test_device", long=name == "hbm2c",
            environment={"HBM_CONFIG": name}, plusargs=("+hbm_report_only",),
        )
        for name in DEVICES
    ),
    *(
        Testbench(
            name=f"hbm_controller_{name}", model=controller_model(name), module="tb.hbm.test_controller",
            environment={"HBM_CONFIG": name}, plusargs=("+hbm_pattern",),
        )
        for name in CONTROLLERS
    ),
    *(
        Testbench(
            name=f"hbm_axi_{name}", model=controller_model(name), module="tb.hbm.test_axi",
            environment={"HBM_CONFIG": name}, plusargs=("+hbm_pattern",),
        )
        for name in CONTROLLERS
    ),
]  # fmt: skip
