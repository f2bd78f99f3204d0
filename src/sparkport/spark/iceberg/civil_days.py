"""Days since 1970 as calendar dates, also in years that Python's own dates do not have."""

from __future__ import annotations

__all__ = ["civil_day", "iso_day", "month_of", "year_of"]

_DAYS_IN_400_YEARS = 146_097
_FROM_MARCH_OF_YEAR_0 = 719_468


def civil_day(days: int) -> tuple[int, int, int]:
    """Year, month and day. Years begin in March here, which puts a leap day at their end."""
    era, day = divmod(days + _FROM_MARCH_OF_YEAR_0, _DAYS_IN_400_YEARS)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    after_new_year = month >= 10
    return (
        400 * era + year + after_new_year,
        month - 9 if after_new_year else month + 3,
        day - (153 * month + 2) // 5 + 1,
    )


def year_of(days: int) -> int:
    """Years since 1970, as Iceberg's partitions count them."""
    return civil_day(days)[0] - 1970


def month_of(days: int) -> int:
    """Months since January 1970, as Iceberg's partitions count them."""
    year, month, _ = civil_day(days)
    return 12 * (year - 1970) + month - 1


def iso_day(days: int) -> str:
    """The date as Java writes and reads it: years of more than four digits have a sign."""
    year, month, day = civil_day(days)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{month:02}-{day:02}"
