"""Numbers as people read them."""

STEPS = ("B", "kB", "MB", "GB", "TB", "PB")


def bytes_text(count: float) -> str:
    """Write a number of bytes with a decimal unit: 1.23 MB."""
    value = float(count)
    for unit in STEPS[:-1]:
        if abs(value) < 999.5:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} {STEPS[-1]}"


def seconds_text(seconds: float) -> str:
    """Write a duration: 0.42 s, 12.3 s, 4 min 05 s, 2 h 07 min."""
    if seconds < 9.95:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def percent(fraction: float) -> str:
    """Write a fraction as a percentage without its sign, for columns that carry it in their heading: 54.3."""
    return f"{100 * fraction:.1f}"
