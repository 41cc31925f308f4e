"""Reads result files: what a Google Benchmark program writes with --benchmark_out_format=json.

Everything else is refused with the file's name, the place, what was expected and what was there."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, StringConstraints, ValidationError, create_model, field_validator

from .environment import Failure
from .measuring import EXACT, UNITS, plain

# Excludes control characters, because it is printed.
Text = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
Whole = Annotated[int, Field(ge=0, le=2**53)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Model = TypeVar("Model", bound=BaseModel)


def read(model: type[Model], name: str, text: bytes | None = None) -> Model:
    """Results of a file, or of text that has this name."""
    try:
        return model.model_validate_json(Path(name).read_bytes() if text is None else text)
    except OSError as e:
        raise Failure(f"{name}: cannot be read: {e.strerror}") from None
    except ValidationError as e:
        first = e.errors(include_url=False)[0]
        place = "".join(f"[{x}]" if isinstance(x, int) else f".{x}" for x in first["loc"])[1:]
        got = (
            "" if first["type"] in ("json_invalid", "missing") else f", got {first['input']!r:.80}"
        )
        raise Failure(f"{name}: {place}{': ' if place else ''}{first['msg']}{got}") from None


class Context(BaseModel, extra="allow"):
    date: Text
    rematch_format: Literal["1"] = "1"
    rematch_commit: Text = ""
    rematch_dirty: Text = ""
    rematch_times: Literal["yes", "no"] = "yes"


class AnyEntry(BaseModel):
    name: Annotated[Text, Field(min_length=1, max_length=1000)]
    run_type: Literal["iteration", "aggregate"]
    repetition_index: int | None = None
    time_unit: Literal["ns", "us", "ms", "s"] = "ns"
    # None: the run gave up.
    real_time: Positive | None = None
    cpu_time: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    label: Text = ""
    error_occurred: bool = False
    skipped: bool = False
    error_message: Text = "no message"


Entry: Any = create_model("Entry", __base__=AnyEntry, **{c: (Whole | None, None) for c in EXACT})


class Content(BaseModel):
    context: Context
    benchmarks: list[Entry]

    @field_validator("benchmarks", mode="before")
    @classmethod
    def without_statistics(cls, entries: Any) -> Any:
        """Aggregates are not used: the variation of a counter that is zero is no number."""
        if not isinstance(entries, list):
            return entries
        return [
            {k: e[k] for k in ("name", "run_type") if k in e}
            if isinstance(e, dict) and e.get("run_type") == "aggregate"
            else e
            for e in entries
        ]


@dataclass
class Run:
    """All repetitions of one benchmark in one file, times in nanoseconds."""

    times: dict[str, list[float]] = field(default_factory=lambda: {"real": [], "cpu": []})
    exact: dict[str, list[int]] = field(default_factory=dict)
    label: str = ""
    error: str = ""

    def add(self, e: Any, has_times: bool) -> None:
        if e.error_occurred or e.skipped:
            self.error = e.error_message
            return
        if has_times:
            self.times["real"].append(e.real_time * UNITS[e.time_unit])
            self.times["cpu"].append(e.cpu_time * UNITS[e.time_unit])
        self.label = self.label or e.label
        for name in EXACT:
            if (value := getattr(e, name)) is not None:
                self.exact.setdefault(name, []).append(value)


class ResultFile:
    def __init__(self, path: str) -> None:
        content = read(Content, path)
        context, self.path = content.context, path
        self.date, self.commit = context.date, context.rematch_commit
        self.dirty = context.rematch_dirty not in ("", "0", "no", "false")
        said = {name: str(value) for name, value in (context.model_extra or {}).items()}
        # Fields that must agree for times to be comparable.
        self.fingerprint = {n: v for n, v in said.items() if n.startswith("rematch_")}
        if not self.fingerprint:
            theirs = ("host_name", "num_cpus", "library_build_type")
            self.fingerprint = {name: said.get(name, "") for name in theirs}
        elif "rematch_format" not in context.model_fields_set:
            raise Failure(f'{path}: context: expected a field "rematch_format", got none')
        self.runs: dict[str, Run] = {}
        self.take(content)

    def take(self, content: Content) -> None:
        full: dict[str, str] = {}
        seen = set()
        for i, e in enumerate(content.benchmarks):
            if e.run_type == "aggregate":
                continue
            name, index = plain(e.name), e.repetition_index
            twice = full.setdefault(name, e.name) != e.name or (name, index) in seen
            timed = e.error_occurred or e.skipped or None not in (e.real_time, e.cpu_time)
            if twice or not timed:
                wanted = "each repetition once" if twice else "real_time and cpu_time"
                raise Failure(f"{self.path}: benchmarks[{i}]: expected {wanted} of {name}")
            seen |= {(name, index)} if index is not None else set()
            self.runs.setdefault(name, Run()).add(e, content.context.rematch_times == "yes")
        if content.benchmarks and not self.runs:
            wanted = "repetitions (run without --benchmark_report_aggregates_only)"
            raise Failure(f"{self.path}: benchmarks: expected {wanted}")
