"""Image load and dump of the HBM device, whole granules in address order whatever the address map."""

from pathlib import Path

import numpy as np

from scripts.simulator import Testbench, run
from tb.hbm.models import controller_model

AT, GRANULES = 1000, 512


def test_image_is_loaded_and_dumped(tmp_path: Path) -> None:
    image = np.random.default_rng(5).bytes(32 * GRANULES)
    (tmp_path / "image.bin").write_bytes(image)
    bench = Testbench("hbm_image", controller_model("hbm4"), "tb.hbm.test_image")
    results = run(
        bench, work=tmp_path,
        environment={"HBM_CONFIG": "hbm4", "HBM_IMAGE": str(tmp_path / "image.bin"), "HBM_IMAGE_AT": str(AT)},
        plusargs=[
            f"+hbm0_image={tmp_path / 'image.bin'}", f"+hbm0_image_at={AT}", f"+hbm0_dump={tmp_path / 'dump.bin'}",
            f"+hbm0_dump_at={AT - 1}", f"+hbm0_dump_granules={GRANULES + 2}",
        ],
    )  # fmt: skip
    assert [result.message for result in results if not result.passed] == []
    assert len(results) == 1
    expected = bytearray(32) + bytearray(image) + bytearray(32)
    expected[32 + 7 : 32 + 15] = b"granules"
    assert (tmp_path / "dump.bin").read_bytes() == bytes(expected)
