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
            name=f"hbm_{kind}_{name}", model=controller_model(name), module=f"tb.hbm.test_{kind}",
            environment={"HBM_CONFIG": name}, plusargs=("+hbm_pattern",), long=name != "hbm4",
        )
        for name in CONTROLLERS
        for kind in ("controller", "axi", "environment", *(("ecc",) if CONTROLLERS[name].scrub_interval else ()))
    ),
]  # fmt: skip
