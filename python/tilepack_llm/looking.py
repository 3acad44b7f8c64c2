"""compare, diff, suggest: what formats cost, where checkpoints differ, what to make for a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._documented import lists_options
from ._options import CompareOptions, DiffOptions, Path, SuggestOptions
from ._running import Showing, run
from ._words import operands, words

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class Comparison:
    """What formats cost a checkpoint.

    formats  one mapping for each, the smallest first: format, bytes, snr_db, worst_first, ...
    report   everything that `tilepack compare --json` prints
    """

    formats: Sequence[Mapping[str, Any]]
    report: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Differences:
    """Where two checkpoints differ.

    items   one mapping for each tensor that does: name, difference, sqnr_db, ...
    report  everything that `tilepack diff --json` prints
    """

    equal: bool
    items: Sequence[Mapping[str, Any]]
    report: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Suggestions:
    """Formats for a GPU, the preferred one first.

    formats  one mapping for each: format, reason, error, convert and serve (commands as lists)
    report   everything that `tilepack suggest --json` prints
    """

    formats: Sequence[Mapping[str, Any]]
    report: Mapping[str, Any] = field(repr=False)


@lists_options("compare")
def compare(source: Path, **options: Unpack[CompareOptions]) -> Comparison:
    """Sizes and errors of formats on a checkpoint, without writing.

    options  compare(source, to=["fp8-ct", "w4a16-ct"]); without to all that lose something
    Raises Error.
    """
    report = run("compare", words(options, CompareOptions) + operands(source))
    return Comparison(report["formats"], report)


@lists_options("diff")
def diff(
    a: Path, b: Path, *, progress: Showing = None, **options: Unpack[DiffOptions]
) -> Differences:
    """Compares two checkpoints tensor by tensor, across formats, by value.

    progress  as of convert()
    A difference is a result here, and no exception. Raises Error where files cannot be read.
    """
    report = run("diff", words(options, DiffOptions) + operands(a, b), progress)
    return Differences(report["equal"], report["items"], report)


@lists_options("suggest")
def suggest(source: Path, **options: Unpack[SuggestOptions]) -> Suggestions:
    """Says which format to make for a GPU, why, and by which commands.

    Raises Error, also where no format fits.
    """
    report = run("suggest", words(options, SuggestOptions) + operands(source))
    return Suggestions(report["suggestions"], report)
