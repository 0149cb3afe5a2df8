"""Numbers with units, short enough for a table cell."""

_SCALES = {
    "ns": ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")),
    "KiB": ((1024.0**2, "G"), (1024.0, "M"), (1.0, "K")),
    "MiB": ((1024.0, "G"), (1.0, "M")),
    "x": ((1.0, "x"),),
}


def digits(value: float) -> str:
    """Three significant digits without an exponent, as far as four places do."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 100:
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}"


def show(value: float, unit: str) -> str:
    """For example 4.91ns, 12.3us, 101M."""
    scales = _SCALES.get(unit)
    if scales is None:
        return digits(value)
    for factor, name in scales:
        if abs(value) >= factor * 0.9995 or factor == scales[-1][0]:
            return digits(value / factor) + name
    return digits(value)


def duration(seconds: float) -> str:
    seconds = int(round(seconds))
    if seconds < 60:
        return f"{seconds} s"
    return f"{seconds // 60} min {seconds % 60:02d} s"
