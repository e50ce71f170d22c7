"""Check an arithmetic block, in anybody's Verilog, against a specification from `golden.specifications`."""
