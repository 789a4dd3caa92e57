"""The arithmetic of every recipe against formulas written out as loops over scalars."""
